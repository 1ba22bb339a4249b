"""Chapter 1: its tests tell right from wrong, its text and files agree, and it runs alone."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from grader.tests import chapter_checks
from grader.tests.mutants import framework

NAME = "01_preflight"
SAMPLE = "assets/samples/01_preflight_cpu.json"
PREFLIGHT_SCHEMA = "assets/schema/inference-preflight-v1.schema.json"
REPORT_SCHEMA = "assets/schema/inference-mechanism-gpu-v2.schema.json"


@pytest.fixture(scope="module")
def chapter() -> framework.Chapter:
    return framework.load(NAME)


class TestChapter(chapter_checks.ChapterTests):
    name = NAME


# validate_report against the JSON Schema


def _core_report() -> dict[str, Any]:
    """A report in the original form, with every optional part filled."""
    path = {"median_ms": 0.5, "p95_ms": 0.75, "peak_allocated_bytes": 4096}
    row = {
        "token_count": 1, "output_close": True, "graph_count": 1, "graph_break_count": 0, "gpu_operator_keys": ["k"],
        "eager": path, "compiled": copy.deepcopy(path), "speedup": 1.5,
    }  # fmt: skip
    return {
        "schema_version": "inference-mechanism-gpu/v2", "semantic_id": "INF-EXECUTION-DISPATCH",
        "profile_id": "INF-CUDA-MECHANISM", "run_label": "default",
        "workload": {"token_counts": [1, 32], "hidden_size": 64, "dtype": "float32", "warmup": 1, "repeats": 3},
        "hardware": {"device": "CPU", "torch_version": "2.13.0", "cuda": "13.0"},
        "candidate_matrix": [row, copy.deepcopy(row)],
        "summary": {"correctness_passed": True, "captured_without_breaks": True, "faster_cases": 1, "total_cases": 3},
        "failure": [{"token_count": 9, "type": "RuntimeError", "message": "boom"}],
        "evidence_level": "local_mechanism_benchmark", "decision": "tune_or_fallback",
    }  # fmt: skip


def _places(node: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The key sequence of every value inside a report."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*keys, key)
        yield from _places(value, (*keys, key))


def _broken() -> Iterator[tuple[str, dict[str, Any]]]:
    """One report for each way to lose a key or to give a value another type."""
    good = _core_report()
    for keys in _places(good):
        for wrong in (None, True, "text", 1.5, [], {}, {"a": 1}, [None], "delete"):
            report = copy.deepcopy(good)
            parent: Any = report
            for key in keys[:-1]:
                parent = parent[key]
            if wrong == "delete":
                if isinstance(parent, list):
                    continue
                del parent[keys[-1]]
            elif _same_type(parent[keys[-1]], wrong):
                continue
            else:
                parent[keys[-1]] = copy.deepcopy(wrong)
            yield f"{'.'.join(map(str, keys))}={wrong!r}", report


def _same_type(old: Any, new: Any) -> bool:
    """Whether the new value differs in what it says, not in its type: those are not for validate_report."""
    number = isinstance(old, float) and isinstance(new, (int, float)) and not isinstance(new, bool)
    return number or (type(old) is type(new) and new != [None])


def _schema_paths(error: jsonschema.ValidationError) -> set[str]:
    """The paths that a schema error is about, written as validate_report writes them."""
    if error.validator == "anyOf":  # null or something: the branch that is not the plain null one
        inner = [deeper for deeper in error.context if not (deeper.validator == "type" and not deeper.path)]
        if inner:
            return set().union(*map(_schema_paths, inner))
    path = ""
    for key in error.absolute_path:
        path += f"[{key}]" if isinstance(key, int) else f".{key}" if path else key
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        return {f"{path}.{key}" if path else key for key in missing}
    return {path or "$"}


def _in_schema(report: Any) -> set[str]:
    validator = jsonschema.Draft202012Validator(chapter_checks.load_json(REPORT_SCHEMA))
    return set().union(*map(_schema_paths, validator.iter_errors(report)), set())


def test_validate_report_agrees_with_the_schema_on_broken_reports(chapter: framework.Chapter) -> None:
    """Every key missing, every value of another type: both name the same paths."""
    validate = chapter.namespace()["validate_report"]
    cases = list(_broken())
    assert len(cases) > 300
    for what, report in cases:
        found = validate(report)
        assert len(found) == len(set(found)), what
        assert set(found) == _in_schema(report), what


def test_validate_report_agrees_with_the_schema_on_good_reports(chapter: framework.Chapter) -> None:
    """All recorded v2 results, and both ways to leave optional parts empty."""
    validate = chapter.namespace()["validate_report"]
    empty = _core_report()
    empty["failure"], empty["hardware"]["cuda"], empty["candidate_matrix"] = None, None, []
    samples = [chapter_checks.load_json(path) for path in (framework.ROOT / "assets/samples").glob("*.json")]
    recorded = [sample for sample in samples if sample.get("schema_version") == "inference-mechanism-gpu/v2"]
    for report in [_core_report(), empty, *recorded]:
        assert validate(report) == []
        assert _in_schema(report) == set()


@pytest.mark.parametrize("report", [[], None, 3, "text"])
def test_both_refuse_what_is_no_object(chapter: framework.Chapter, report: Any) -> None:
    assert chapter.namespace()["validate_report"](report) == ["$"]
    assert _in_schema(report) == {"$"}


# files and figures


def test_the_table_of_files_has_the_row_of_every_chapter() -> None:
    """Its own file name, as the settings cell gives it, and its semantic_id; and every link leads to a file."""
    table = (framework.ROOT / "assets/experiments.md").read_text(encoding="utf-8")
    for master in sorted((framework.ROOT / "solutions").glob("*/0*_*.py")):
        source = master.read_text(encoding="utf-8")
        row = next(line for line in table.splitlines() if line.startswith(f"| {int(master.name[:2])} |"))
        path = re.search(r'"(benchmarks/results/\w+_\{RUN_LABEL\}\.json)"', source)
        semantic_id = re.search(r"`(INF-[A-Z-]+)`", row)
        assert path is not None and f"`{path[1]}`" in row, master.name
        assert semantic_id is not None and semantic_id[1] in source, master.name
    for link in re.findall(r"\]\(([^)]+)\)", table):
        assert (framework.ROOT / "assets" / link).is_file(), link


def test_the_table_of_result_fields_names_every_field() -> None:
    """Other chapters link to it; a field that the formats gain must be explained there."""
    table = (framework.ROOT / "assets/experiments.md").read_text(encoding="utf-8")
    named = {part for name in re.findall(r"`([A-Za-z0-9_.]+)`", table) for part in name.split(".")}
    schema = chapter_checks.load_json(REPORT_SCHEMA)
    wanted = set(schema["required"])
    for part in (schema["properties"]["workload"], schema["properties"]["hardware"], schema["$defs"]["row"]):
        wanted |= set(part["required"])
    for part in ("path", "summary", "failure"):
        wanted |= set(schema["$defs"][part]["required"])
    wanted |= set(schema["dependentSchemas"]["extension"]["properties"]["candidate_matrix"]["items"]["required"])
    preflight = chapter_checks.load_json(PREFLIGHT_SCHEMA)
    wanted |= set(preflight["required"]) | set(preflight["$defs"]["noise_row"]["required"])
    wanted |= set(preflight["properties"]["compile_check"]["required"])
    assert wanted - named == set()


def test_the_recorded_sample_is_valid_and_small() -> None:
    sample = chapter_checks.load_json(SAMPLE)
    chapter_checks.validate(sample, "inference-preflight-v1")
    assert sample["hardware"]["device"]
    assert (framework.ROOT / SAMPLE).stat().st_size < 10_000


def test_the_plot_shows_the_numbers_of_the_file() -> None:
    """The axes' data, not pixels: medians, P95, ratios, and English text only."""
    names = chapter_checks.plot_names(NAME, "plot-function")
    sample = chapter_checks.load_json(SAMPLE)
    figure = names["plot_preflight"](sample)
    left, right = figure.axes
    for line, key in zip(left.lines, ("median_ms", "p95_ms"), strict=True):
        assert list(line.get_ydata()) == [row[key] for row in sample["noise"]]
        assert list(line.get_xdata()) == [row["element_count"] for row in sample["noise"]]
    assert list(right.lines[0].get_ydata()) == [row["aa_ratio"] for row in sample["noise"]]
    assert sample["hardware"]["device"] in figure.get_suptitle()
    chapter_checks.check_words_are_english(figure)
    names["plt"].close(figure)


@pytest.mark.slow
def test_real_run_on_the_cpu_writes_a_valid_file(tmp_path: Path) -> None:
    """And the reader shows it."""
    report, done = chapter_checks.run_for_real(
        NAME, tmp_path, "inf_cuda_mechanism_preflight_default.json", "inference-preflight-v1"
    )
    assert report["run_mode"] == "real_cpu"
    assert f"tier: {report['tier']}" in chapter_checks.text(done, "reader")
