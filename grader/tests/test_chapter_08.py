"""Chapter 8: its tests tell right from wrong, its plans are audited against real runs, and it runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grader.model import Notebook
from grader.tests import chapter_checks
from grader.tests.mutants import framework

NAME = "08_capstone"
CHAPTER = framework.load(NAME)
MODULE = framework.mutants_of(NAME)
SAMPLE = "assets/samples/08_capstone_cpu.json"
SCHEMA = "dispatch-audit-v1"
VISIBLE = {cell.grade_id for cell in CHAPTER.visible_tests}
CASES = {
    "flash, plain input": "confirmed",
    "MATH asked first": "fell_back",
    "only MATH allowed": "confirmed",
    "flash, dropout 0.1": "fell_back",
    "flash, 3-D input": "fell_back",
    "swiglu compiled": "confirmed",
    "compiled, no kernel events": "unproven",
    "recompile limit reached": "fell_back",
}


class TestChapter(chapter_checks.ChapterTests):
    name = NAME

    def check_mistakes(self) -> None:
        """The summary function runs all that visible cells check."""
        for mutant in MODULE.MUTANTS:
            lost = chapter_checks.report_of(CHAPTER, mutant).lost & VISIBLE
            assert not lost or f"todo{CHAPTER.cell(mutant.caught_by).todo}_all" in lost, mutant.name

    def check_filled(self, done: Notebook) -> None:
        """What 4.4 says about its five dispatches."""
        cell = next(cell for cell in done["cells"] if cell["id"] == "together")
        lines = cell["outputs"][0]["text"].splitlines()
        assert lines[-5:] == [
            "{} ('sdpa_flash', 'miss')",
            "{'request_id': 18} ('sdpa_flash', 'hit')",
            "{'dropout_p': 0.1} ('sdpa_math', 'miss')",
            "{'request': 'sdpa_math'} ('sdpa_math', 'hit')",
            "{'request': 'sdpa_flash', 'rank': 3} RuntimeError: "
            "requested path 'sdpa_flash' is not available: requires_rank",
        ]
        assert "sdpa_flash" in lines[8] and "inductor_static" in lines[10]


# the toolbox agrees with the chapters it comes from


def test_the_graph_tools_agree_with_chapter_5() -> None:
    """Same graph, same matches for the patterns both have, same groups, as chapter 5's reference solution."""
    ours, theirs = CHAPTER.namespace(), framework.load("05_graph_capture").namespace()
    assert theirs["normalize_graph"](theirs["BLOCK_NODES"]) == ours["BLOCK"]
    for pattern in ours["PATTERNS"]:
        assert ours["match_dag"](ours["BLOCK"], pattern) == theirs["match_dag"](ours["BLOCK"], pattern)
    matches = ours["find_matches"](ours["BLOCK"])
    for priority in (ours["PRIORITY"], ours["PRIORITY"][::-1]):
        mine = ours["select_groups"](ours["BLOCK"], matches, priority)
        assert mine == theirs["select_groups"](ours["BLOCK"], matches, priority)


def test_the_gate_agrees_with_chapter_4_where_nothing_is_required() -> None:
    ours, theirs = CHAPTER.namespace(), framework.load("04_execution_dispatch").namespace()
    backends = [{k: v for k, v in backend.items() if k != "requires"} for backend in ours["CPU_BACKENDS"]]
    for pattern in ("attention", "swiglu", "unknown"):
        for change in ({}, {"dtype": "int8"}, {"dynamic_shape": True}, {"device": "cuda", "seq_len": 10**10}):
            args = ({"pattern": pattern}, {**ours["CPU_WORKLOAD"], **change}, backends)
            assert ours["dispatch_candidate"](*args) == theirs["dispatch_candidate"](*args)


def test_a_key_without_a_field_that_a_check_read_gives_a_stale_hit() -> None:
    """Drop any one key field: some change of the workload is then answered with the old plan's path."""
    names = CHAPTER.namespace()
    plan = names["build_plan"](names["BLOCK"], names["CPU_BACKENDS"], names["CPU_WORKLOAD"])
    backends = [{"name": "picky", "patterns": ["attention"], "dtypes": ["float32"], "devices": ["cpu"],
                 "max_seq_len": 512, "supports_dynamic_shape": False,
                 "requires": {"dropout_p": [0.0], "rank": [4], "last_stride": [1]}}]  # fmt: skip
    changes = {"dtype": "int8", "device": "cuda", "seq_len": 1024, "dynamic_shape": True, "dropout_p": 0.1, "rank": 3}
    changes["last_stride"] = 2
    assert sorted(changes) == plan["key_fields"]

    def build(workload: dict[str, Any]) -> dict[str, Any]:
        choice = names["dispatch_candidate"]({"pattern": "attention"}, workload, backends)
        paths = [choice["execution_path"], "eager"]
        return {"available": list(dict.fromkeys(paths)), "rejected": choice["rejected_backends"]}

    def paths(fields: list[str], field: str) -> list[tuple[str, str]]:
        plan_cache: dict[Any, Any] = {}
        inputs = [names["CPU_WORKLOAD"], {**names["CPU_WORKLOAD"], field: changes[field]}]
        return [names["dispatch"](plan_cache, fields, workload, build) for workload in inputs]

    for field in plan["key_fields"]:
        narrow = [other for other in plan["key_fields"] if other != field]
        assert paths(plan["key_fields"], field) == [("picky", "miss"), ("eager", "miss")]
        assert paths(narrow, field) == [("picky", "miss"), ("picky", "hit")], f"{field} can be left out"


# real runs


@pytest.mark.slow
def test_real_run_on_the_cpu_gives_the_verdicts_of_the_text(tmp_path: Path) -> None:
    """Each verdict comes from operators that really ran; the numbers agree with float64."""
    settings: dict[str, Any] = {"GPU_TOKEN_COUNTS": [8], "GPU_REPEATS": 3, "GPU_ROUNDS": 2}
    report, done = chapter_checks.run_for_real(
        NAME, tmp_path, "inf_dispatch_capstone_default_cpu.json", SCHEMA, **settings
    )
    assert report["failure"] is None
    assert {item["case"]: item["verdict"] for item in report["cases"]} == CASES
    first = next(item for item in report["cases"] if item["case"] == "MATH asked first")
    assert (first["planned"], first["observed"]) == ("sdpa_math", ["sdpa_flash"])
    assert any("flash_attention" in name for name in first["operators"])
    assert len(report["block_audit"]) == 14
    assert {item["verdict"] for item in report["block_audit"]} == {"confirmed"}
    for path in report["candidate_matrix"][0]["paths"].values():
        assert path["output_close"] and path["max_error"] < 1e-4
    printed = chapter_checks.text(done, "reader")
    assert "MATH asked first" in printed and "fell_back" in printed


# files and figures


def test_the_recorded_sample_is_valid_and_shows_what_the_text_says() -> None:
    sample = chapter_checks.load_json(SAMPLE)
    chapter_checks.validate(sample, SCHEMA)
    assert {item["case"]: item["verdict"] for item in sample["cases"]} == CASES
    assert {item["verdict"] for item in sample["block_audit"]} == {"confirmed"}
    assert all(path["output_close"] for row in sample["candidate_matrix"] for path in row["paths"].values())
    first, last = (row["paths"] for row in sample["candidate_matrix"])
    compared = ("eager_flash", "inductor_static", "inductor_dynamic")
    assert [(round(first[name]["speedup"], 2), first[name]["verdict"]) for name in compared] == [
        (1.09, "faster"),
        (1.31, "faster"),
        (1.33, "faster"),
    ]
    assert {last[name]["verdict"] for name in compared} == {"tie"}
    assert (framework.ROOT / SAMPLE).stat().st_size < 40_000


def test_the_table_of_the_text_lists_the_eight_situations() -> None:
    text = chapter_checks.cell_source(NAME, "step-5-5")
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 6]
    verdicts = [cells[4].strip().strip("`") for cells in rows if cells[4].strip().startswith("`")]
    assert verdicts == list(CASES.values())


def test_the_plot_shows_plan_and_observation_side_by_side() -> None:
    """The axes' data and words, not pixels; English text only; also before TODO 3 is done."""
    names = chapter_checks.plot_names(NAME, "exp-plot")
    sample = chapter_checks.load_json(SAMPLE)
    figure = names["plot_capstone"](sample, "Recorded: ")
    speedups, cases, block = figure.axes
    wanted = [row["paths"]["inductor_static"]["speedup"] for row in sample["candidate_matrix"]]
    assert wanted in [list(line.get_ydata()) for line in speedups.lines]
    for axis, items in ((cases, sample["cases"]), (block, sample["block_audit"])):
        words = " ".join(text.get_text() for text in axis.texts)
        assert "planned" in words and "observed" in words and words.isascii()
        for item in items:
            assert item["planned"] in words and f"[{item['verdict']}]" in words
        assert len(axis.lines) == len(items)
    assert figure.get_suptitle().startswith("Recorded: " + sample["hardware"]["device"])
    names["plt"].close(figure)
    for item in sample["cases"]:
        item["verdict"] = item["observed"] = None
    figure = names["plot_capstone"](sample | {"block_audit": None})
    assert "[TODO 3]" in " ".join(text.get_text() for text in figure.axes[1].texts)
    names["plt"].close(figure)
