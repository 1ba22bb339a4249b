"""The decision of the experiment against its table: what is accepted, what is refused, and why."""

from __future__ import annotations

import copy
import math

import pytest

from grader.tests.experiment_support import CHAIN_SAMPLE, SWIGLU_SAMPLE, plan, row, sample, shared

ACCEPT, REFUSE = "accept_for_selected_shapes", "tune_or_fallback"
COMPILE_FAILURE = {"token_count": 32, "type": "InductorError", "message": "CppCompileError: C++ compile error"}
NO_COMPILER = {
    "token_count": 1,
    "type": "InductorError",
    "message": "InvalidCxxCompiler: No working C++ compiler found",
}


def decide(rows: list, failures: list | None = None) -> tuple[str, list[str]]:
    return shared()["decide_from_rows"](rows, failures or [])


def report(rows: list, failures: list | None = None) -> dict:
    return shared()["build_report"](rows, failures or [], plan())


def test_one_faster_shape_is_accepted() -> None:
    assert decide([row(1, "tie"), row(32, "faster"), row(256, "tie")]) == (ACCEPT, [])


def test_as_many_slower_as_faster_shapes_is_accepted() -> None:
    assert decide([row(1, "slower"), row(32, "faster")]) == (ACCEPT, [])


@pytest.mark.parametrize(
    ("rows", "failures", "reason"),
    [
        ([], [], "no_faster_shape_with_observed_kernel"),
        ([], [NO_COMPILER], "failure"),
        ([row(1), row(256)], [COMPILE_FAILURE], "failure"),
        ([row(1, "tie"), row(32, "tie")], [], "no_faster_shape_with_observed_kernel"),
        ([row(1, "slower"), row(32, "slower"), row(256)], [], "more_slower_than_faster"),
        ([row(1), row(32, output_close=False)], [], "T=32: output_mismatch"),
        ([row(1), row(32, "tie", graph_count=0)], [], "T=32: not_captured"),
        ([row(1), row(32, graph_count=2, graph_break_count=1)], [], "T=32: graph_break"),
        ([row(1), row(32, "tie", graph_break_count=-1)], [], "T=32: graph_break"),
        ([row(1), row(32, compile__recompiles_during_measurement=1)], [], "T=32: recompile"),
        ([row(1), row(32, speedup=math.nan)], [], "T=32: not_finite"),
        ([row(1), row(32, speedup=math.inf)], [], "T=32: not_finite"),
        ([row(1), row(32, speedup=None)], [], "T=32: not_finite"),
        ([row(1, evidence__level="none")], [], "no_faster_shape_with_observed_kernel"),
        ([row(1, evidence__level="capture_only")], [], "no_faster_shape_with_observed_kernel"),
        ([row(1, evidence__level="capture_only"), row(32, "tie")], [], "no_faster_shape_with_observed_kernel"),
    ],
)
def test_refused_with_its_reason(rows: list, failures: list, reason: str) -> None:
    """Each case breaks a condition of the table; the reason names it, and its shape where it has one."""
    decision, reasons = decide(rows, failures)
    assert decision == REFUSE
    assert reason in reasons


def test_all_reasons_are_kept() -> None:
    rows = [row(1, "slower", output_close=False), row(32, "slower", graph_break_count=2)]
    _, reasons = decide(rows, [COMPILE_FAILURE])
    assert reasons == [
        "failure",
        "T=1: output_mismatch",
        "T=32: graph_break",
        "no_faster_shape_with_observed_kernel",
        "more_slower_than_faster",
    ]


def test_deciding_changes_nothing_and_repeats_itself() -> None:
    rows = [row(1, "slower"), row(32)]
    before = copy.deepcopy(rows)
    assert decide(rows) == decide(rows)
    assert rows == before


def test_accepted_shapes_are_those_that_won_with_a_kernel() -> None:
    """A shape that won without a kernel is no reason to accept, and isn't accepted along with another."""
    rows = [row(1, "slower"), row(32, "tie"), row(256), row(512, evidence__level="capture_only")]
    summary = report(rows)["summary"]
    assert summary["accepted_token_counts"] == [256]
    assert (summary["tie_token_counts"], summary["slower_token_counts"]) == ([32], [1])
    assert (summary["faster_cases"], summary["total_cases"]) == (2, 4)


def test_a_refused_report_accepts_no_shape_and_counts_failures() -> None:
    result = report([row(1), row(256)], [COMPILE_FAILURE])
    assert result["decision"] == REFUSE
    assert result["summary"]["accepted_token_counts"] == []
    assert (result["summary"]["faster_cases"], result["summary"]["total_cases"]) == (2, 3)
    assert result["summary"]["correctness_passed"] is False
    assert result["failure"] == [COMPILE_FAILURE]


def test_nothing_measured_proves_nothing() -> None:
    """With no rows, "all rows are right" must not read as a pass."""
    summary = report([], [NO_COMPILER])["summary"]
    assert summary["correctness_passed"] is False
    assert summary["captured_without_breaks"] is False


def test_no_failure_is_null() -> None:
    assert report([row(1)])["failure"] is None


@pytest.mark.parametrize("path", [SWIGLU_SAMPLE, CHAIN_SAMPLE], ids=lambda path: path.stem)
def test_the_recorded_decision_follows_from_the_recorded_rows(path) -> None:
    recorded = sample(path)
    decision, reasons = decide(recorded["candidate_matrix"], recorded["failure"])
    assert decision == recorded["decision"]
    assert reasons == recorded["extension"]["decision_reasons"]
    rebuilt = shared()["summarize_rows"](recorded["candidate_matrix"], [], decision)
    assert rebuilt == recorded["summary"]


def test_recorded_rows_turned_into_an_a_a_test_are_refused() -> None:
    """The recorded eager samples against themselves: kernels observed, graphs fine, no profit."""
    recorded, cells = sample(CHAIN_SAMPLE), shared()
    rows = []
    for one in recorded["candidate_matrix"]:
        samples = one["eager"]["samples_ms"]
        halves = [((x, x), (y, y)) for x, y in zip(samples[::2], samples[1::2], strict=True)]
        pair = cells["compare_pairs"](halves, halves, repeats=15, seed=0)
        rows.append(one | {key: pair[key] for key in ("speedup", "speedup_ci95", "noise_band", "verdict")})
    decision, reasons = decide(rows)
    assert decision == REFUSE
    assert "no_faster_shape_with_observed_kernel" in reasons
