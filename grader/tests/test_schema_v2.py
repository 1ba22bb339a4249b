"""The JSON Schema of the v2 result file: both good forms pass, each broken report is refused at its place."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from grader.tests.experiment_support import CHAIN_SAMPLE, ROOT, SWIGLU_SAMPLE, original_form, plan, row, sample, shared

SCHEMA = json.loads((ROOT / "assets" / "schema" / "inference-mechanism-gpu-v2.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FAILURE = {"token_count": 32, "type": "InductorError", "message": "InvalidCxxCompiler"}
DELETE = object()


def places(report: Any) -> set[str]:
    """Where the schema finds faults; a missing key is reported at the object that lacks it."""
    return {error.json_path for error in VALIDATOR.iter_errors(report)}


def changed(report: dict, path: str, value: Any) -> dict:
    """A copy with one value replaced (or deleted); the path reads ``candidate_matrix.0.eager.p95_ms``."""
    result = copy.deepcopy(report)
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = result
    for part in way:
        place = place[part]
    if value is DELETE:
        del place[last]
    else:
        place[last] = value
    return result


def gpu_report() -> dict:
    """The original form as a GPU run would write it."""
    report = original_form(sample(SWIGLU_SAMPLE))
    report["hardware"] = {"device": "Some GPU", "torch_version": "2.6.0", "cuda": "12.4"}
    report["workload"]["dtype"] = "float16"
    for one in report["candidate_matrix"]:
        one["eager"]["peak_allocated_bytes"] = one["compiled"]["peak_allocated_bytes"] = 1 << 20
    return report


def test_the_schema_is_a_valid_schema_of_its_draft() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def good_reports() -> Iterator[Any]:
    yield pytest.param(sample(SWIGLU_SAMPLE), id="recorded")
    yield pytest.param(sample(CHAIN_SAMPLE), id="recorded chain")
    yield pytest.param(original_form(sample(CHAIN_SAMPLE)), id="original form")
    yield pytest.param(gpu_report(), id="original form, gpu")
    yield pytest.param(shared()["build_report"]([row(1)], [FAILURE], plan()), id="one failure")
    yield pytest.param(shared()["build_report"]([], [FAILURE], plan()), id="only failures")
    yield pytest.param(changed(gpu_report(), "candidate_matrix.0.graph_break_count", -1), id="original form, -1 breaks")
    yield pytest.param(gpu_report() | {"note": "added by hand"}, id="unknown key")
    yield pytest.param(
        changed(sample(), "candidate_matrix.0.numerics.compiled_max_error", None), id="error not finite is null"
    )
    yield pytest.param(changed(sample(), "candidate_matrix.0.eager.peak_delta_bytes", 0), id="no extra memory")


@pytest.mark.parametrize("report", list(good_reports()))
def test_good_reports_pass(report: dict) -> None:
    assert places(report) == set()


TOP = ("schema_version", "semantic_id", "profile_id", "run_label", "workload", "hardware", "candidate_matrix",
       "summary", "failure", "evidence_level", "decision")  # fmt: skip
REQUIRED = [
    *TOP,
    *(f"workload.{key}" for key in ("token_counts", "hidden_size", "dtype", "warmup", "repeats")),
    *(f"hardware.{key}" for key in ("device", "torch_version", "cuda")),
    *(f"summary.{key}" for key in ("correctness_passed", "captured_without_breaks", "faster_cases", "total_cases")),
    *(
        f"candidate_matrix.1.{key}"
        for key in ("token_count", "output_close", "graph_count", "graph_break_count", "gpu_operator_keys", "eager",
                    "compiled", "speedup")
    ),
    *(
        f"candidate_matrix.1.{side}.{key}"
        for side in ("eager", "compiled")
        for key in ("median_ms", "p95_ms", "peak_allocated_bytes")
    ),
]  # fmt: skip
ADDED = [
    *(f"summary.{key}" for key in ("accepted_token_counts", "tie_token_counts", "slower_token_counts")),
    *(
        f"candidate_matrix.1.{key}"
        for key in ("speedup_ci95", "noise_band", "aa_ratio_ci95", "verdict", "drift_ratio", "numerics", "compile",
                    "evidence")
    ),
    *(
        f"candidate_matrix.1.{side}.{key}"
        for side in ("eager", "compiled")
        for key in ("min_ms", "iqr_ms", "peak_delta_bytes", "samples_ms")
    ),
    *(f"candidate_matrix.1.compile.{key}" for key in ("first_call_ms", "dynamic", "recompiles_during_measurement",
                                                       "break_even_calls")),
    "candidate_matrix.1.evidence.kernels",
    "candidate_matrix.1.evidence.level",
    *(f"extension.{key}" for key in ("name", "seed", "measurement", "environment")),
]  # fmt: skip


def owner(path: str) -> str:
    """json_path of the object that holds the last key."""
    result = "$"
    for part in path.split(".")[:-1]:
        result += f"[{part}]" if part.isdigit() else f".{part}"
    return result


@pytest.mark.parametrize("path", REQUIRED)
def test_an_original_key_is_missing(path: str) -> None:
    assert places(changed(gpu_report(), path, DELETE)) == {owner(path)}
    assert owner(path) in places(changed(sample(), path, DELETE))


@pytest.mark.parametrize("path", ADDED)
def test_an_added_key_is_missing_where_the_extension_is_claimed(path: str) -> None:
    assert places(changed(sample(), path, DELETE)) == {owner(path)}


ROW = "candidate_matrix.0"
WRONG_VALUES = [
    ("schema_version", ["inference-mechanism-gpu/v1", 2, None]),
    ("semantic_id", ["INF-OTHER", "", None]),
    ("profile_id", ["INF-CPU", None]),
    ("run_label", ["", 1, None]),
    ("workload.token_counts", [[], [0], [1.5], ["1"], [1, 1], 1, None]),
    ("workload.hidden_size", [0, -1, 1.5, "1024", True, None]),
    ("workload.dtype", ["fp16", "", None]),
    ("workload.warmup", [-1, 0.5, None]),
    ("workload.repeats", [0, True, None]),
    ("hardware.device", ["", None, 0]),
    ("hardware.torch_version", ["", None, 2.13]),
    ("hardware.cuda", ["", 12.4]),
    ("candidate_matrix", [{}, None, "[]"]),
    (f"{ROW}.token_count", [0, "1", True, None]),
    (f"{ROW}.output_close", [1, "true", None]),
    (f"{ROW}.graph_count", [-1, 1.5, None]),
    (f"{ROW}.graph_break_count", [-2, "0", None]),
    (f"{ROW}.gpu_operator_keys", [[""], [1], "kernel", None]),
    (f"{ROW}.speedup", [math.nan, math.inf, -math.inf, 0, -1, "1.2", True, None]),
    (f"{ROW}.eager", [[], None]),
    (f"{ROW}.eager.median_ms", [math.nan, math.inf, 0, -1, "1", None]),
    (f"{ROW}.compiled.p95_ms", [math.nan, math.inf, 0, -1, "1", None]),
    (f"{ROW}.compiled.peak_allocated_bytes", [-1, 1.5, "0"]),
    (f"{ROW}.speedup_ci95", [[1.0], [1.0, 1.1, 1.2], [math.nan, 1.0], ["1", 2], None]),
    (f"{ROW}.aa_ratio_ci95", [[], [0, 1], [0.9, math.inf], None]),
    (f"{ROW}.noise_band", [-0.1, math.nan, None]),
    (f"{ROW}.verdict", ["quicker", "", None]),
    (f"{ROW}.drift_ratio", [0, math.nan, None]),
    (f"{ROW}.numerics.eager_max_error", [-1, math.nan, math.inf, "0"]),
    (f"{ROW}.compile.first_call_ms", [0, math.nan, None]),
    (f"{ROW}.compile.dynamic", [0, None]),
    (f"{ROW}.compile.recompiles_during_measurement", [-1, None]),
    (f"{ROW}.compile.break_even_calls", [0, 1.5, "10"]),
    (f"{ROW}.evidence.level", ["fused", None]),
    (f"{ROW}.evidence.kernels", [[], {"k": {}}, {"k": {"calls": 0, "self_us": 1}}]),
    (f"{ROW}.evidence.kernels", [{"k": {"calls": 1, "self_us": math.nan}}]),
    (f"{ROW}.eager.min_ms", [0, math.nan]),
    (f"{ROW}.eager.iqr_ms", [-1, math.nan]),
    (f"{ROW}.eager.samples_ms", [[], [0], [math.nan], "1"]),
    ("summary.correctness_passed", ["yes", 1, None]),
    ("summary.captured_without_breaks", ["yes", 0, None]),
    ("summary.faster_cases", [-1, 1.5, None]),
    ("summary.total_cases", [-1, "3", None]),
    ("summary.accepted_token_counts", [[0], None, 256]),
    ("failure", [{}, "none", [{}], [{"token_count": 1, "type": "X"}]]),
    ("failure", [[FAILURE | {"token_count": 0}], [FAILURE | {"type": ""}]]),
    ("evidence_level", ["kernel_observed", None]),
    ("decision", ["accept", None, True]),
    ("extension", [None, [], "paired-evidence/1"]),
    ("extension.name", ["paired-evidence/2", None]),
    ("extension.seed", [0.5, None, "0"]),
    ("extension.measurement", [[], {"atol": math.nan}, {"nested": {}}]),
    ("extension.environment", [None, {"python": ["3.11"]}]),
    ("extension.decision_reasons", ["none", [""]]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value"), [(path, value) for path, values in WRONG_VALUES for value in values], ids=str
)
def test_a_wrong_value_is_refused_at_its_place(path: str, value: Any) -> None:
    place = owner(path + ".x")
    found = places(changed(sample(), path, value))
    assert found and all(item.startswith(place) for item in found)


def test_a_graph_break_count_of_minus_one_is_only_for_the_original_form() -> None:
    assert places(changed(sample(), f"{ROW}.graph_break_count", -1)) == {"$.candidate_matrix[0].graph_break_count"}


@pytest.mark.parametrize("document", [None, [], "report", 1, {}])
def test_what_is_no_report_is_refused(document: Any) -> None:
    assert places(document) == {"$"}
