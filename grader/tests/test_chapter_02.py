"""Chapter 2: its tests tell right from wrong, its cost model predicts its experiment, and it runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grader.tests import chapter_checks
from grader.tests.mutants import framework

NAME = "02_operator_fusion"
SAMPLE = "assets/samples/02_operator_fusion_cpu.json"


@pytest.fixture(scope="module")
def chapter() -> framework.Chapter:
    return framework.load(NAME)


class TestChapter(chapter_checks.ChapterTests):
    name = NAME


def test_the_figures_of_the_text_follow_from_the_reference(chapter: framework.Chapter) -> None:
    """The lines in the text cross at 193.9, and at 194 the fused line is no higher, at 193 it is."""
    eager, fused = (1.40, 0.339), (15.36, 0.267)
    crossing = chapter.namespace()["break_even_tokens"](eager, fused)
    assert round(crossing, 1) == 193.9
    lower = [tokens for tokens in (193, 194) if fused[0] + fused[1] * tokens <= eager[0] + eager[1] * tokens]
    assert lower == [194]


def _experiment(chapter: framework.Chapter) -> dict[str, Any]:
    """The names of the cells that fit the model; nothing is measured."""
    names = chapter.namespace()
    for cell in ("fit-line", "break-even-range", "cost-model"):
        exec(chapter_checks.cell_source(NAME, cell), names)
    return names


def _rows(eager: tuple[float, float], compiled: tuple[float, float], tokens: list[int]) -> list[dict[str, Any]]:
    """Noise-free rows of a result file, µs lines in, ms medians out."""
    rows = []
    for t in tokens:
        times = {"eager": eager[0] + eager[1] * t, "compiled": compiled[0] + compiled[1] * t}
        row = {path: {"median_ms": us / 1e3} for path, us in times.items()}
        rows.append({"token_count": t, "speedup": times["eager"] / times["compiled"], **row})
    return rows


def test_the_model_finds_the_lines_it_was_given(chapter: framework.Chapter) -> None:
    """Exact data: exact lines, exact break-even, a range of no width, exact predictions of what it has not seen."""
    rows = _rows((1.40, 0.339), (15.36, 0.267), [1, 16, 32, 64, 96, 128])
    model = _experiment(chapter)["cost_model"](rows, [1, 32, 96])
    assert model["eager"] == pytest.approx({"fixed_us": 1.40, "us_per_token": 0.339})
    assert model["compiled"] == pytest.approx({"fixed_us": 15.36, "us_per_token": 0.267})
    assert [model["break_even_tokens"], *model["break_even_range"]] == pytest.approx([13.96 / 0.072] * 3)
    assert [row["token_count"] for row in model["held_out"]] == [16, 64, 128]
    for row in model["held_out"]:
        assert row["predicted_speedup"] == pytest.approx(row["measured_speedup"])


def test_the_model_says_when_there_is_no_break_even(chapter: framework.Chapter) -> None:
    model = _experiment(chapter)["cost_model"](_rows((1, 0.2), (15, 0.3), [1, 2, 3, 4]), [1, 2, 3])
    assert model["break_even_tokens"] is None
    assert model["break_even_range"] == [None, None]


def test_the_recorded_sample_is_valid_and_small() -> None:
    sample = chapter_checks.load_json(SAMPLE)
    chapter_checks.validate(sample, "inference-mechanism-gpu-v2")
    chapter_checks.validate(sample["cost_model"], "cost-model-v1")
    assert (framework.ROOT / SAMPLE).stat().st_size < 20_000


def test_the_model_predicts_the_recorded_sample() -> None:
    """Within 10 % on every point that it has not seen, and the measured crossing lies in the range that it gives."""
    sample = chapter_checks.load_json(SAMPLE)
    model = sample["cost_model"]
    assert len(model["held_out"]) >= 4
    for row in model["held_out"]:
        assert abs(row["predicted_speedup"] / row["measured_speedup"] - 1) < 0.10
    low, high = model["break_even_range"]
    assert low <= model["break_even_tokens"] <= high
    speedups = {row["token_count"]: row["speedup"] for row in sample["candidate_matrix"]}
    last_slower = max(t for t, speedup in speedups.items() if speedup < 1)
    first_faster = min(t for t, speedup in speedups.items() if speedup > 1)
    assert last_slower < high
    assert first_faster > low


def test_the_text_quotes_the_recorded_sample() -> None:
    """5.4 interprets the sample: its numbers are those of the file."""
    text = chapter_checks.cell_source(NAME, "step-5-interpret")
    sample = chapter_checks.load_json(SAMPLE)
    model = sample["cost_model"]
    low, high = model["break_even_range"]
    slopes = model["eager"]["us_per_token"] / model["compiled"]["us_per_token"]
    speedups = {row["token_count"]: row["speedup"] for row in sample["candidate_matrix"]}
    quotes = [
        f"= {model['break_even_tokens']:.0f}，少用一个拟合点时在 {low:.0f} 到 {high:.0f} 之间",
        f"T=192 是 {speedups[192]:.3f} 倍，T=256 是 {speedups[256]:.3f} 倍",
        f"样例是 {slopes:.2f}",
    ]
    table = {"T": "", "预测": "", "实测": "", "误差": ""}
    for row in model["held_out"]:
        predicted, measured = row["predicted_speedup"], row["measured_speedup"]
        table["T"] += f" {row['token_count']} |"
        table["预测"] += f" {predicted:.3f} |"
        table["实测"] += f" {measured:.3f} |"
        table["误差"] += f" {100 * (predicted / measured - 1):+.1f}% |"
    for quote in [*quotes, *(f"| {name} |{cells}" for name, cells in table.items())]:
        assert quote in text, quote


def test_the_plot_shows_lines_points_and_break_even() -> None:
    """The axes' data, not pixels; every point lies on its line up to the error that the file itself states."""
    names = chapter_checks.plot_names(NAME, "exp-plot", "plot-model", "plot-prediction", "plot-function")
    sample = chapter_checks.load_json(SAMPLE)
    figure = names["plot_fusion"](sample, "Recorded sample, not your machine. ")
    left, right = figure.axes
    drawn = {line.get_label(): line for line in left.lines}
    model = sample["cost_model"]
    for path in ("eager", "compiled"):
        line = drawn[f"{path}: model"]
        expected = [model[path]["fixed_us"] + model[path]["us_per_token"] * t for t in line.get_xdata()]
        assert list(line.get_ydata()) == pytest.approx(expected)
        points: dict[int, float] = {}
        for kind in ("fitted", "held out"):
            line = drawn[f"{path}: {kind}"]
            points |= dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
        medians = {row["token_count"]: row[path]["median_ms"] * 1e3 for row in sample["candidate_matrix"]}
        assert points == pytest.approx(medians)
    for axis in (left, right):
        assert any(list(line.get_xdata()) == [model["break_even_tokens"]] * 2 for line in axis.lines)
    assert f"T* = {model['break_even_tokens']:.0f}" in right.get_title()
    assert sample["hardware"]["device"] in figure.get_suptitle()
    names["plt"].close(figure)


@pytest.mark.slow
def test_real_run_on_the_cpu_writes_a_valid_file(tmp_path: Path) -> None:
    """Valid v2 with the model in it, and the reader prints both."""
    report, done = chapter_checks.run_for_real(
        NAME, tmp_path, "inf_operator_fusion_default_cpu.json", "inference-mechanism-gpu-v2"
    )
    model = report["cost_model"]
    chapter_checks.validate(model, "cost-model-v1")
    assert report["failure"] is None
    assert report["summary"]["correctness_passed"]
    assert (model["unfused_bytes_per_token"], model["fused_bytes_per_token"]) == (5 * 4096, 3 * 4096)
    assert "T* = " in chapter_checks.text(done, "reader")
