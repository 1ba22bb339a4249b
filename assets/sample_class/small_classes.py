"""The small classes of the chapters other than 4: five notebooks each, their answers taken from the chapter's mutants.

Every chapter has the same five students; what a mistake costs follows from ``grader/tests/mutants/NN_name.py``.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

from grader.tests.mutants import framework

Notebook = dict[str, Any]


@dataclass(frozen=True)
class SmallClass:
    """What the students of one chapter hand in.

    variants: names of right solutions, one for each TODO: the perfect hand-in is nobody's copy of the reference.
    mistakes: names of two mutants in different TODOs.
    """

    variants: tuple[str, str, str]
    mistakes: tuple[str, str]


SMALL = {
    "01_preflight": SmallClass(("v1_table", "v2_loop", "v3_generator"), ("t1_all_reasons", "t3_bool_is_integer")),
    "02_operator_fusion": SmallClass(
        ("v1_loops", "v2_subtracts", "v3_maximum"), ("t2_escape_not_written", "t3_parallel_divides")
    ),
    "03_flash_attention": SmallClass(
        ("v1_row_by_row", "v2_skips_hidden_blocks", "v3_other_ceiling"), ("t1_acc_keeps_old_base", "t2_no_scale")
    ),
    "05_graph_capture": SmallClass(
        ("v1_recursive", "v2_backtracking", "v3_by_running"), ("t1_one_step", "t3_overlap_allowed")
    ),
    "06_dynamic_shapes": SmallClass(
        ("v1_table_of_sizes", "v2_recursion", "v3_bisect"), ("t1_one_makes_dynamic", "t3_strictly_larger")
    ),
    "07_execution_evidence": SmallClass(
        ("v1_counter", "v2_randrange", "v3_helpers"), ("t1_keeps_compile", "t2_median_of_ratios")
    ),
    "08_capstone": SmallClass(("v1_two_logs", "v2_json_key", "v3_loops"), ("t2_key_dtype", "t3_absence_is_fallback")),
}
PERFECT, UNTOUCHED, HALF_DONE, MISTAKEN = "he_jia", "林小雨", "qin_yu", ("tang_wei", "许诺")


def make(chapter: str, release: Notebook) -> dict[str, bytes]:
    """Every file of a chapter's class: path below the class's folder → content."""
    loaded, small = framework.load(chapter), SMALL[chapter]
    works = {
        PERFECT: loaded.answers(*small.variants),
        UNTOUCHED: {},
        HALF_DONE: {grade_id: source for grade_id, source in loaded.answers().items() if grade_id == "todo1"},
    }
    works |= {name: loaded.answers(mistake) for name, mistake in zip(MISTAKEN, small.mistakes, strict=True)}
    return {f"{name}/{chapter}.ipynb": _handed_in(release, answers) for name, answers in works.items()}


def expected(chapter: str) -> dict[str, framework.Report]:
    """Student → what grading in process says of the same work."""
    loaded = framework.load(chapter)
    reports = {
        PERFECT: loaded.grade(),
        UNTOUCHED: loaded.grade(unfilled={1, 2, 3}),
        HALF_DONE: loaded.grade(unfilled={2, 3}),
    }
    mistakes = [framework.mutant_of(chapter, name) for name in SMALL[chapter].mistakes]
    return reports | {name: loaded.grade(mutant) for name, mutant in zip(MISTAKEN, mistakes, strict=True)}


def _handed_in(release: Notebook, answers: dict[str, str]) -> bytes:
    """The release with these sources in its solution cells, as Jupyter writes it."""
    notebook = copy.deepcopy(release)
    for cell in notebook["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if grade_id in answers:
            cell["source"] = answers[grade_id]
    return (json.dumps(notebook, ensure_ascii=False, indent=1) + "\n").encode()
