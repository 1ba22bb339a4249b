"""The experiment end to end on the CPU, small: the notebook's own cells, real compilation, real files.

Each run is a process of its own in an empty folder, so that the compiler's settings don't leak into other tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest

from grader.tests.experiment_support import ROOT, shared

pytestmark = pytest.mark.timeout(180)

SCHEMA = json.loads((ROOT / "assets" / "schema" / "inference-mechanism-gpu-v2.schema.json").read_text(encoding="utf-8"))
SMALL = {"RUN_MODE": "real_cpu", "GPU_TOKEN_COUNTS": [8], "GPU_HIDDEN_SIZE": 64, "GPU_WARMUP": 2, "GPU_REPEATS": 25}
MAIN = "benchmarks/results/inf_execution_dispatch_compile_default_cpu.json"
CHAIN = "benchmarks/results/inf_execution_dispatch_compile_default_chain_cpu.json"

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("g++", "clang++")),
    reason="no C++ compiler here: Inductor can't compile for the CPU (install g++)",
)

NOTEBOOK = f"""
import json, matplotlib
matplotlib.use("Agg")
from grader.tests.experiment_support import run_step5
import matplotlib.pyplot as plt
_, printed = run_step5({SMALL!r})
titles = [plt.figure(number).get_suptitle() for number in plt.get_fignums()]
print(json.dumps({{"printed": printed, "titles": titles}}))
"""

CASES = """
import json, torch
from grader.tests.experiment_support import plan, shared

state = {"scale": 1.0}

def breaks(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y.sin() + 1

def recompiles(x):
    if not torch.compiler.is_compiling():
        state["scale"] += 1.0  # every eager call makes the compiled code stale
    return x * state["scale"]

def wrong_when_compiled(x):
    return x.sin() + (1.0 if torch.compiler.is_compiling() else 0.0)

def not_a_number(x):
    return (x - x) / (x - x)

def raises(x):
    raise RuntimeError("out of memory, for example")

result = {}
for fn in (breaks, recompiles, wrong_when_compiled, not_a_number, raises):
    rows, failures = shared()["run_matrix"](lambda t: (fn, (torch.randn(t, 8),)), plan(token_counts=[4]))
    result[fn.__name__] = shared()["build_report"](rows, failures, plan(token_counts=[4]))
with torch.compiler.set_stance("force_eager"):
    same = plan(token_counts=[1, 4, 16], rounds=20)
    rows, failures = shared()["run_matrix"](lambda t: (torch.sin, (torch.randn(t, 8),)), same)
result["switched_off"] = shared()["build_report"](rows, failures, same)
print(json.dumps(result, allow_nan=False))
"""


@dataclass
class Run:
    """A finished process: its folder, and the JSON of its last line."""

    folder: Path
    result: dict

    def report(self, path: str = MAIN) -> dict:
        return json.loads((self.folder / path).read_text(encoding="utf-8"))


def run(program: str, folder: Path, cache: Path, **environment: str) -> Run:
    """Run a Python program in a folder, with this cache of compiled code and one compile worker."""
    env = {"PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=os.environ | env | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return Run(folder, json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the whole file: headers are compiled once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def notebook_run(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Run:
    return run(NOTEBOOK, tmp_path_factory.mktemp("notebook"), cache)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict:
    return run(CASES, tmp_path_factory.mktemp("cases"), cache).result


@needs_compiler
@pytest.mark.parametrize("path", [MAIN, CHAIN], ids=["main", "chain"])
def test_real_cpu_writes_a_file_that_the_schema_accepts(notebook_run: Run, path: str) -> None:
    report = notebook_run.report(path)
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    assert report["failure"] is None
    assert report["hardware"]["cuda"] is None
    assert report["workload"]["dtype"] == "float32"
    assert report["workload"]["token_counts"] == [row["token_count"] for row in report["candidate_matrix"]]
    assert [item.name for item in (notebook_run.folder / path).parent.glob("*.tmp")] == []


@needs_compiler
@pytest.mark.parametrize("path", [MAIN, CHAIN], ids=["main", "chain"])
def test_real_cpu_rows_are_measured_captured_and_observed(notebook_run: Run, path: str) -> None:
    for row in notebook_run.report(path)["candidate_matrix"]:
        assert row["output_close"] is True
        assert row["numerics"]["compiled_max_error"] < 1e-4
        assert (row["graph_count"], row["graph_break_count"]) == (1, 0)
        assert (row["compile"]["recompiles_during_measurement"], row["compile"]["dynamic"]) == (0, False)
        assert row["compile"]["first_call_ms"] > row["compiled"]["p95_ms"]
        assert row["evidence"]["level"] == "kernel_observed"
        assert row["gpu_operator_keys"] == sorted(row["evidence"]["kernels"]) != []
        assert all("cpp_fused" in name for name in row["gpu_operator_keys"])
        assert len(row["eager"]["samples_ms"]) == len(row["compiled"]["samples_ms"]) == 100
        assert row["eager"]["peak_allocated_bytes"] is None


@needs_compiler
def test_the_chain_is_one_kernel_and_is_called_once_per_call(notebook_run: Run) -> None:
    """What "fused" means in the text of 5.4: the whole chain is one generated kernel."""
    for row in notebook_run.report(CHAIN)["candidate_matrix"]:
        assert [kernel["calls"] for kernel in row["evidence"]["kernels"].values()] == [5]


@needs_compiler
def test_the_reader_and_the_plots_show_the_own_result(notebook_run: Run) -> None:
    printed, titles = notebook_run.result["printed"], notebook_run.result["titles"]
    assert printed.count("已保存") == 2
    assert printed.count("token_count=8 ") == 2
    assert ["ResidualSwiGLU" in titles[0], "MemoryBoundChain" in titles[1]] == [True, True]
    assert not any("Recorded sample" in title for title in titles)


@needs_compiler
def test_a_graph_break_is_counted_and_refused(cases: dict) -> None:
    report = cases["breaks"]
    (row,) = report["candidate_matrix"]
    assert (row["graph_count"], row["graph_break_count"]) == (2, 1)
    assert "T=4: graph_break" in report["extension"]["decision_reasons"]
    assert report["decision"] == "tune_or_fallback"


@needs_compiler
def test_recompiling_while_measuring_is_counted_and_refused(cases: dict) -> None:
    report = cases["recompiles"]
    assert report["candidate_matrix"][0]["compile"]["recompiles_during_measurement"] > 0
    assert "T=4: recompile" in report["extension"]["decision_reasons"]


@needs_compiler
def test_a_compiled_path_that_is_wrong_is_refused(cases: dict) -> None:
    report = cases["wrong_when_compiled"]
    (row,) = report["candidate_matrix"]
    assert row["output_close"] is False
    assert row["numerics"]["eager_max_error"] < 1e-6 < 0.9 < row["numerics"]["compiled_max_error"]
    assert report["decision"] == "tune_or_fallback"


@needs_compiler
def test_outputs_that_are_no_numbers_are_refused_and_written_as_null(cases: dict) -> None:
    report = cases["not_a_number"]
    (row,) = report["candidate_matrix"]
    assert row["output_close"] is False
    assert row["numerics"] == {"eager_max_error": None, "compiled_max_error": None}
    jsonschema.Draft202012Validator(SCHEMA).validate(report)


@needs_compiler
def test_a_shape_that_raises_becomes_a_failure(cases: dict) -> None:
    report = cases["raises"]
    assert report["failure"][0]["message"] == "out of memory, for example"
    assert (report["candidate_matrix"], report["summary"]["total_cases"]) == ([], 1)
    jsonschema.Draft202012Validator(SCHEMA).validate(report)


def test_without_a_compiler_the_reason_is_recorded_and_the_notebook_goes_on(tmp_path: Path) -> None:
    empty, own_cache = tmp_path / "bin", tmp_path / "cache"
    empty.mkdir()
    done = run(NOTEBOOK, tmp_path, own_cache, PATH=str(empty), CXX="g++")
    report = done.report()
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    assert [failure["token_count"] for failure in report["failure"]] == [8]
    assert all("compiler" in failure["message"].lower() for failure in report["failure"])
    assert (report["candidate_matrix"], report["decision"]) == ([], "tune_or_fallback")
    assert report["extension"]["environment"]["cxx_found"] is False
    assert "失败" in done.result["printed"]


@needs_compiler
def test_with_the_compiler_switched_off_both_paths_are_eager_and_nothing_is_accepted(cases: dict) -> None:
    """An A/A test through the whole path: "compiled" runs the eager function, and no graph is captured."""
    report = cases["switched_off"]
    assert [row["evidence"]["level"] for row in report["candidate_matrix"]] == ["none", "none", "none"]
    assert [row["graph_count"] for row in report["candidate_matrix"]] == [0, 0, 0]
    assert "T=4: not_captured" in report["extension"]["decision_reasons"]
    assert report["decision"] == "tune_or_fallback"
    assert report["summary"]["accepted_token_counts"] == []


@pytest.mark.parametrize(
    ("graph_count", "kernels", "level"),
    [
        (0, [], "none"),
        (1, [], "capture_only"),
        (1, ["ampere_sgemm_128x64_tn"], "capture_only"),  # a library kernel: eager runs it too
        (1, ["graph_0_cpp_fused_add_0"], "kernel_observed"),
        (1, ["ampere_sgemm_128x64_tn", "triton_poi_fused_add_0"], "kernel_observed"),
    ],
)
def test_evidence_level(graph_count: int, kernels: list[str], level: str) -> None:
    assert shared()["evidence_level"](graph_count, dict.fromkeys(kernels, {})) == level
