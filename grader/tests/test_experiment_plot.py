"""The experiment's plot: what its axes hold, for full files, original files, failures and no file at all."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grader.tests.experiment_support import (
    CHAIN_SAMPLE,
    SWIGLU_SAMPLE,
    original_form,
    plan,
    row,
    run_step5,
    sample,
    shared,
    step5_cells,
)

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    matplotlib.pyplot.close("all")


def curve(axis: Axes, label: str) -> tuple[list[float], list[float]]:
    """x and y of the curve with this label."""
    line = next(line for line in axis.get_lines() if line.get_label() == label)
    return list(line.get_xdata()), list(line.get_ydata())


def labels(axis: Axes) -> set[str]:
    return set(axis.get_legend_handles_labels()[1])


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


def test_times_of_both_paths_against_tokens_on_log_axes() -> None:
    report = sample(CHAIN_SAMPLE)
    times, _ = shared()["plot_report"](report).axes
    rows = report["candidate_matrix"]
    for path in ("eager", "compiled"):
        for key, name in (("median_ms", "median"), ("p95_ms", "P95")):
            x, y = curve(times, f"{path} {name}")
            assert x == [one["token_count"] for one in rows]
            assert y == [one[path][key] for one in rows]
    assert (times.get_xscale(), times.get_yscale()) == ("log", "log")
    assert "ms" in times.get_ylabel()


def test_speed_up_with_interval_band_and_accepted_shapes() -> None:
    report = sample(CHAIN_SAMPLE)
    _, speedups = shared()["plot_report"](report).axes
    rows = report["candidate_matrix"]
    x, y = curve(speedups, "median ratio")
    assert (x, y) == ([one["token_count"] for one in rows], [one["speedup"] for one in rows])
    accepted = report["summary"]["accepted_token_counts"]
    assert curve(speedups, "accepted")[0] == accepted != []
    assert curve(speedups, "accepted")[1] == [one["speedup"] for one in rows if one["token_count"] in accepted]
    bars = next(c for c in speedups.containers if c.get_label() == "95% interval")[2][0].get_segments()
    for segment, one in zip(bars, rows, strict=True):
        assert list(segment[:, 1]) == pytest.approx(one["speedup_ci95"])
    band = next(c for c in speedups.collections if c.get_label() == "noise band").get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(1 + max(one["noise_band"] for one in rows))
    assert band[:, 1].min() == pytest.approx(1 / (1 + max(one["noise_band"] for one in rows)))


def test_a_refused_report_marks_no_shape() -> None:
    _, speedups = shared()["plot_report"](sample(SWIGLU_SAMPLE)).axes
    assert "accepted" not in labels(speedups)


def test_original_form_has_no_interval_but_all_points() -> None:
    _, speedups = shared()["plot_report"](original_form(sample(CHAIN_SAMPLE))).axes
    assert labels(speedups) == {"median ratio"}
    assert len(curve(speedups, "median ratio")[0]) == len(sample(CHAIN_SAMPLE)["candidate_matrix"])


def test_one_row_and_a_failure() -> None:
    failure = {"token_count": 32, "type": "InductorError", "message": "no compiler"}
    report = shared()["build_report"]([row(1)], [failure], plan())
    assert "failed: T = [32]" in texts(shared()["plot_report"](report))


def test_only_failures_still_say_so() -> None:
    failure = {"token_count": 32, "type": "InductorError", "message": "no compiler"}
    report = shared()["build_report"]([], [failure], plan())
    assert "failed: T = [32]" in texts(shared()["plot_report"](report))


def test_titles_name_hardware_and_say_when_it_is_the_sample(tmp_path: Path) -> None:
    report = sample(CHAIN_SAMPLE)
    saved = tmp_path / "x.json"
    from_sample = texts(shared()["plot_saved"](saved, report))
    assert "Recorded sample" in from_sample and report["hardware"]["device"] in from_sample
    saved.write_text(json.dumps(report | {"hardware": report["hardware"] | {"device": "My CPU"}}))
    own = texts(shared()["plot_saved"](saved, report))
    assert "My CPU" in own and "Recorded sample" not in own


def test_no_file_and_no_sample_says_where_the_file_would_be(tmp_path: Path, capsys) -> None:
    assert shared()["plot_saved"](tmp_path / "x.json") is None
    assert str(tmp_path / "x.json") in capsys.readouterr().out


def test_text_inside_the_figure_is_ascii_and_survives_grey_and_dark() -> None:
    """No CJK glyphs on Colab; a dark theme must not turn the text white on white; lines differ without colour."""
    with matplotlib.pyplot.style.context("dark_background"):
        figure = shared()["plot_report"](sample(CHAIN_SAMPLE))
    assert texts(figure).isascii()
    assert matplotlib.colors.to_hex(figure.get_facecolor()) == "#ffffff"
    for text in figure.findobj(matplotlib.text.Text):
        if text.get_text():
            assert matplotlib.colors.to_hex(text.get_color()) == "#000000", text.get_text()
    looks = {(line.get_linestyle(), line.get_marker()) for line in figure.axes[0].get_lines()}
    assert len(looks) == 4


def test_the_notebook_draws_both_recorded_samples_without_a_result(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, printed = run_step5({})
    titles = [texts(matplotlib.pyplot.figure(number)) for number in matplotlib.pyplot.get_fignums()]
    assert ["Recorded sample, not your machine: ResidualSwiGLU" in titles[0], "MemoryBoundChain" in titles[1]] == [
        True
    ] * 2
    assert "样例" in printed


def test_reader_and_plot_cells_never_measure(tmp_path: Path, monkeypatch) -> None:
    """They run to the end although everything that measures raises."""
    monkeypatch.chdir(tmp_path)
    namespace, _ = run_step5({}, tags={"settings", "experiment"})

    def measuring(*args, **kwargs):
        raise AssertionError("it measured")

    for name in ("measure_pair", "measure_shape", "run_matrix", "run_experiment", "compile_fresh", "profile_kernels"):
        assert name in namespace
        namespace[name] = measuring
    for slug, tag, source in step5_cells():
        if tag in {"reader", "plot"}:
            exec(compile(source, slug, "exec"), namespace)
    assert len(matplotlib.pyplot.get_fignums()) == 2
