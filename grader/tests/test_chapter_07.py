"""Chapter 7: its tests tell right from wrong, its text and files agree, and it runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grader.tests import chapter_checks
from grader.tests.mutants import framework

NAME = "07_execution_evidence"
CHAPTER = framework.load(NAME)
MODULE = framework.mutants_of(NAME)
SAMPLE = "assets/samples/07_execution_evidence_cpu.json"
RECORDED = "assets/samples/07_recorded_cpu.json"
V2 = "inference-mechanism-gpu-v2"


class TestChapter(chapter_checks.ChapterTests):
    name = NAME

    def check_mistakes(self) -> None:
        """The summary function runs all that visible cells check."""
        visible = {cell.grade_id for cell in CHAPTER.visible_tests}
        for mutant in MODULE.MUTANTS:
            lost = chapter_checks.report_of(CHAPTER, mutant).lost & visible
            assert not lost or f"todo{CHAPTER.cell(mutant.caught_by).todo}_all" in lost, mutant.name


# statements of the text


def test_the_profiles_of_the_text_hold_what_it_says() -> None:
    """70 rows, 3.5 s, one kernel of 0.16 ms in the first call; four levels in the four profiles."""
    names = CHAPTER.namespace()
    first = names["PROFILES"]["first_call"]
    assert len(first) == 70
    assert round(sum(event["self_us"] for event in first) / 1e6, 1) == 3.5
    kernels = [event for event in first if "cpp_fused" in event["name"]]
    assert [(event["count"], round(event["self_us"] / 1000, 2)) for event in kernels] == [(1, 0.16)]
    levels = {name: names["kernel_evidence"](events, "cpu")["level"] for name, events in names["PROFILES"].items()}
    assert levels == {
        "eager": "none",
        "first_call": "kernel_observed",
        "warmed": "kernel_observed",
        "warmed_no_kernel_events": "capture_only",
    }


def test_the_recorded_pairs_lead_to_what_the_text_says() -> None:
    names = CHAPTER.namespace()
    exec(chapter_checks.cell_source(NAME, "together"), names)
    rows = names["measured_rows"]
    policy = {"min_gain": 0.05, "required_level": "kernel_observed"}
    assert names["decide"](rows, policy)["reason"] == "no_profit"
    assert names["decide"](rows, policy)["slower"] == [1, 32]
    late = names["decide"](rows[2:], policy)
    assert (late["accepted"], late["tie"]) == ([256], [512])
    by_tokens = {row["token_count"]: row for row in rows}
    assert [round(x, 2) for x in by_tokens[512]["ci95"]] == [2.80, 3.24]
    assert [round(x, 2) for x in by_tokens[512]["aa_ci95"]] == [0.24, 0.46]
    times = chapter_checks.load_json(RECORDED)["pairs"]
    assert {len(series) for shape in times.values() for series in shape.values()} == {60}


def test_recorded_aa_data_is_never_accepted() -> None:
    """Each recorded A/A series as if it were a candidate, with itself as control."""
    names, rows = CHAPTER.namespace(), []
    for tokens, times in chapter_checks.load_json(RECORDED)["pairs"].items():
        interval = names["paired_speedup"](times["aa_first_us"], times["aa_second_us"], 0)["ci95"]
        good = {"failure": None, "output_close": True, "graph_breaks": 0, "recompiles": 0, "level": "kernel_observed"}
        rows.append({"token_count": int(tokens), **good, "ci95": interval, "aa_ci95": interval})
    result = names["decide"](rows, {"min_gain": 0.05, "required_level": "kernel_observed"})
    assert (result["accepted"], result["reason"]) == ([], "no_profit")


def test_decide_agrees_with_the_shared_experiment_cells() -> None:
    """Same verdicts as exp_verdict, same decision as exp_decide, on rows where both apply."""
    import math
    import random

    shared: dict[str, Any] = {"math": math, "random": random}
    for cell in ("exp_verdict", "exp_decide"):
        exec((framework.ROOT / f"assets/cells/{cell}.py").read_text(encoding="utf-8"), shared)
    decide, draw = CHAPTER.namespace()["decide"], random.Random(7)
    for _ in range(200):
        flat, nested = [], []
        for tokens in range(draw.randint(1, 4)):
            low, aa_low = draw.uniform(0.6, 1.6), draw.uniform(0.8, 1.0)
            ci, aa = [low, low + draw.uniform(0, 0.4)], [aa_low, draw.uniform(1.0, 1.3)]
            close, breaks = draw.random() < 0.9, int(draw.random() < 0.1)
            level = draw.choice(["capture_only", "kernel_observed"])
            verdict = shared["verdict_from_ci"](ci, shared["noise_band_of"](aa))
            flat.append({"token_count": tokens, "failure": None, "output_close": close, "graph_breaks": breaks,
                         "recompiles": 0, "level": level, "ci95": ci, "aa_ci95": aa})  # fmt: skip
            nested.append({"token_count": tokens, "output_close": close, "graph_count": 1, "graph_break_count": breaks,
                           "compile": {"recompiles_during_measurement": 0}, "evidence": {"level": level},
                           "speedup": 1.0, "verdict": verdict})  # fmt: skip
        mine = decide(flat, {"min_gain": 0.05, "required_level": "kernel_observed"})
        assert mine["decision"] == shared["decide_from_rows"](nested, [])[0]
        for verdict in ("tie", "slower"):
            assert mine[verdict] == [row["token_count"] for row in nested if row["verdict"] == verdict]


def test_the_interval_is_that_of_the_shared_experiment_cell() -> None:
    import random
    import statistics

    shared: dict[str, Any] = {"random": random, "statistics": statistics}
    exec((framework.ROOT / "assets/cells/exp_verdict.py").read_text(encoding="utf-8"), shared)
    draw = random.Random(1)
    a, b = ([draw.uniform(1, 2) for _ in range(31)] for _ in range(2))
    assert CHAPTER.namespace()["paired_speedup"](a, b, 3)["ci95"] == shared["ratio_ci95"](a, b, 3)


# files and figures


def test_the_recorded_sample_is_valid_and_shows_what_the_text_says() -> None:
    sample = chapter_checks.load_json(SAMPLE)
    chapter_checks.validate(sample, V2)
    study = sample["evidence_study"]
    chapter_checks.validate(study, "evidence-study-v1")
    assert study["profiles"]["first_call"]["calls"]["compile"] > 20
    assert study["profiles"]["warmed_no_kernel_events"]["level"] == "capture_only"
    assert {tuple(names) for names in study["kernel_names"].values()} == {("cpp_fused_add_mean_mul_pow_rsqrt_0",)}
    assert not [item for item in study["aa_trials"] if item["verdict"] == "faster"]
    assert [item for item in study["aa_trials"] if item["ratio"] > 1], "the naive rule accepts some"
    late = next(row for row in sample["candidate_matrix"] if row["token_count"] == 256)
    assert (round(late["speedup"], 2), late["verdict"]) == (3.65, "faster")
    assert sample["summary"]["accepted_token_counts"] == [256]
    assert (framework.ROOT / SAMPLE).stat().st_size < 40_000


def test_the_plot_shows_the_numbers_of_the_file() -> None:
    """The axes' data, not pixels; English text only."""
    names = chapter_checks.plot_names(NAME, "exp-plot", "exp-plot-evidence")
    sample = chapter_checks.load_json(SAMPLE)
    figure = names["plot_evidence"](sample, "Recorded: ")
    bars, trials, speedups = figure.axes
    profiles = sample["evidence_study"]["profiles"]
    heights = [patch.get_height() for patch in bars.patches]
    assert heights == [
        profile["calls"][kind] for kind in ("compile", "host", "kernel") for profile in profiles.values()
    ]
    drawn = [list(line.get_xdata()) for line in trials.lines[: len(sample["evidence_study"]["aa_trials"])]]
    assert drawn == [item["ci95"] for item in sample["evidence_study"]["aa_trials"]]
    points = {len(line.get_xdata()) for line in speedups.lines}
    assert len(sample["candidate_matrix"]) in points
    assert figure.get_suptitle().startswith("Recorded: " + sample["hardware"]["device"])
    chapter_checks.check_words_are_english(figure)
    names["plt"].close(figure)


@pytest.mark.slow
def test_real_run_on_the_cpu_writes_a_valid_file(tmp_path: Path) -> None:
    """And the reader and the student's decide take it."""
    settings: dict[str, Any] = {"GPU_TOKEN_COUNTS": [1, 32], "GPU_REPEATS": 5, "GPU_ROUNDS": 2, "GPU_AA_TRIALS": 2}
    report, done = chapter_checks.run_for_real(
        NAME, tmp_path, "inf_execution_evidence_default_cpu.json", V2, **settings
    )
    chapter_checks.validate(report["evidence_study"], "evidence-study-v1")
    profiles = report["evidence_study"]["profiles"]
    assert {name: profile["level"] for name, profile in profiles.items()} == {
        "eager": "none",
        "first_call": "kernel_observed",
        "warmed": "kernel_observed",
        "warmed_no_kernel_events": "capture_only",
    }
    assert profiles["warmed"]["calls"]["compile"] == 0 < profiles["first_call"]["calls"]["compile"]
    assert len({tuple(names) for names in report["evidence_study"]["kernel_names"].values()}) == 1
    printed = chapter_checks.text(done, "reader")
    assert f"decision: {report['decision']}".replace(report["decision"], f'"{report["decision"]}"') in printed
    assert "your decide: {" in printed
