"""The experiment of chapter 4 as its notebook runs it: the cells of step 5, read from the master, executed in order."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from grader.authoring.master import include_source, parse_master, sample_line
from grader.authoring.settings import course

ROOT = Path(__file__).resolve().parents[2]
MASTER = ROOT / "solutions" / "04_execution_dispatch" / "04_execution_dispatch.py"
SAMPLES = ROOT / "assets" / "samples"
SWIGLU_SAMPLE = SAMPLES / "inf_execution_dispatch_compile_sample_cpu.json"
CHAIN_SAMPLE = SAMPLES / "inf_execution_dispatch_compile_sample_chain_cpu.json"
STEP5_TAGS = {"settings", "experiment", "reader", "plot"}


@cache
def step5_cells() -> tuple[tuple[str, str, str], ...]:
    """(slug, tag, source) of each code cell of step 5, includes and samples filled in."""
    master, cells = parse_master(MASTER), []
    for cell in master.cells:
        tags = STEP5_TAGS & set(cell.metadata.get("tags", []))
        if cell.cell_type != "code" or not tags:
            continue
        source = include_source(master, cell, course()) if "include" in cell.metadata else cell.source
        if "sample" in cell.metadata:
            source += "\n" + sample_line(master, cell, course())
        cells.append((cell.cell_id, tags.pop(), source))
    return tuple(cells)


def step5_text() -> str:
    """The text cells of the master, one after the other."""
    return "\n".join(cell.source for cell in parse_master(MASTER).cells if cell.cell_type == "markdown")


def with_settings(source: str, settings: dict[str, Any]) -> str:
    """Replace ``NAME = …`` lines, as a student does by hand."""
    for name, value in settings.items():
        source, count = re.subn(rf"(?m)^{name} = .*$", lambda _, n=name, v=value: f"{n} = {v!r}", source)
        assert count == 1, f"the settings cell does not assign {name} in a line of its own"
    return source


def run_step5(settings: dict[str, Any], *, tags: set[str] = STEP5_TAGS, until: str | None = None) -> tuple[dict, str]:
    """Execute the cells of step 5 in the current folder.

    Args:
        settings: what replaces the defaults of the settings cell.
        tags: only cells with one of these tags.
        until: stop after the cell with this slug.

    Returns:
        the namespace afterwards, and what was printed.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for slug, tag, source in step5_cells():
            if tag not in tags:
                continue
            source = with_settings(source, settings) if tag == "settings" else source
            exec(compile(source, slug, "exec"), namespace)
            if slug == until:
                break
    return namespace, printed.getvalue()


@cache
def shared() -> dict[str, Any]:
    """What the shared cells define, without running an experiment. Don't change it."""
    namespace: dict[str, Any] = {}
    for slug, _, source in step5_cells():
        if slug.startswith("exp-"):
            exec(compile(source, slug, "exec"), namespace)
    return namespace


def sample(path: Path = CHAIN_SAMPLE) -> dict[str, Any]:
    """A fresh copy of a recorded result."""
    return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)


def _no_constant(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


def row(token_count: int = 1, verdict: str = "faster", **changes: Any) -> dict[str, Any]:
    """A row that has nothing wrong with it; ``evidence__level=…`` changes a nested value."""
    speedup = {"faster": 1.5, "tie": 1.0, "slower": 0.6}[verdict]
    path = {"median_ms": 1.0, "p95_ms": 1.2, "min_ms": 0.9, "iqr_ms": 0.1, "samples_ms": [0.9, 1.0, 1.2]}
    path |= {"peak_allocated_bytes": None, "peak_delta_bytes": None}
    result = {
        "token_count": token_count,
        "output_close": True,
        "graph_count": 1,
        "graph_break_count": 0,
        "gpu_operator_keys": ["graph_0_cpp_fused_add_0"],
        "eager": path | {"median_ms": speedup},
        "compiled": dict(path),
        "speedup": speedup,
        "speedup_ci95": [speedup - 0.1, speedup + 0.1],
        "noise_band": 0.05,
        "aa_ratio_ci95": [0.99, 1.01],
        "verdict": verdict,
        "drift_ratio": 1.0,
        "numerics": {"eager_max_error": 1e-6, "compiled_max_error": 1e-6},
        "compile": {
            "first_call_ms": 900.0,
            "cache_hit": False,
            "dynamic": False,
            "recompiles_during_measurement": 0,
            "break_even_calls": None,
        },
        "evidence": {"kernels": {"graph_0_cpp_fused_add_0": {"calls": 5, "self_us": 3.0}}, "level": "kernel_observed"},
    }
    for name, value in changes.items():
        outer, _, inner = name.partition("__")
        if inner:
            result[outer][inner] = value
        else:
            result[outer] = value
    return result


def plan(**changes: Any) -> dict[str, Any]:
    """What ``run_experiment`` needs, small."""
    return {
        "workload": "made up",
        "semantic_id": "INF-EXECUTION-DISPATCH",
        "profile_id": "INF-CUDA-MECHANISM",
        "run_label": "default",
        "device": "cpu",
        "dtype": "float32",
        "token_counts": [1, 4],
        "hidden_size": 8,
        "warmup": 1,
        "repeats": 3,
        "rounds": 2,
        "atol": 1e-4,
        "rtol": 1e-4,
        "seed": 0,
    } | changes


def original_form(report: dict) -> dict:
    """The same result with the original keys only."""
    path_keys = ("median_ms", "p95_ms", "peak_allocated_bytes")
    row_keys = ("token_count", "output_close", "graph_count", "graph_break_count", "gpu_operator_keys", "speedup")
    summary_keys = ("correctness_passed", "captured_without_breaks", "faster_cases", "total_cases")
    plain = {key: value for key, value in report.items() if key != "extension"}
    plain["workload"] = {
        key: report["workload"][key] for key in ("token_counts", "hidden_size", "dtype", "warmup", "repeats")
    }
    plain["summary"] = {key: report["summary"][key] for key in summary_keys}
    plain["candidate_matrix"] = [
        {key: one[key] for key in row_keys}
        | {side: {key: one[side][key] for key in path_keys} for side in ("eager", "compiled")}
        for one in report["candidate_matrix"]
    ]
    return plain


def paths_in(document: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """(path, value) of every scalar of a JSON document."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from paths_in(value, f"{path}.{key}")
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from paths_in(value, f"{path}[{index}]")
    else:
        yield path, document
