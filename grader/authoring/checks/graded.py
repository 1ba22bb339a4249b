"""Graded cells of the source: ids, points, and whether what they do is what nbgrader reads."""

from __future__ import annotations

import math

from grader.authoring.checks.blunt import blunt_tests, compares_nothing, names_used
from grader.authoring.checks.finding import (
    Finding,
    is_autograded,
    is_chapter,
    is_python,
    label,
    nbgrader_of,
    parse,
    tags,
)
from grader.authoring.checks.points import (
    USE_FLOAT,
    functions_in,
    judge_last_value,
    judges_by_value,
    names_in,
    shows_answer,
    swallowed_runner,
    tests_something,
)
from grader.authoring.checks.probe import Outcome, run_cells
from grader.model import SKIP_TAGS, Notebook


def check_ids_and_points(notebook: Notebook) -> list[Finding]:
    """Duplicate or missing grade_ids; points that are missing, no number, or not above zero."""
    findings: list[Finding] = []
    seen: set[str] = set()
    for index, cell in enumerate(notebook["cells"]):
        block, name = nbgrader_of(cell), label(notebook, index)
        if not any(block.get(key) for key in ("grade", "solution", "locked", "task")):
            continue
        grade_id = block.get("grade_id")
        if not isinstance(grade_id, str) or not grade_id.strip():
            findings.append(Finding(name, "the cell has no grade_id", "give it one of its own"))
        elif grade_id in seen:
            findings.append(Finding(name, f"the grade_id {grade_id!r} is used twice", "give every cell its own"))
        seen.add(str(grade_id))
        points = block.get("points")
        if (block.get("grade") or block.get("task")) and not _is_positive(points):
            shown = "missing" if points is None else repr(points)
            findings.append(Finding(name, f"its points are {shown}", "set points to a number above 0"))
    return findings


def check_graded_cells(notebook: Notebook) -> tuple[list[Finding], dict[str, float]]:
    """What the syntax of the graded cells tells.

    Returns:
        the findings, and for each graded cell that the reference must decide (label → points) the rest.
    """
    findings: list[Finding] = []
    undecided: dict[str, float] = {}
    if not is_python(notebook):
        return findings, undecided
    student = _student_names(notebook)
    functions: dict = {}
    uses = _names_used(notebook)
    for index, cell in enumerate(notebook["cells"]):
        block, name = nbgrader_of(cell), label(notebook, index)
        trusted = cell["cell_type"] == "code" and block.get("locked") and not block.get("solution")
        if not (trusted or is_autograded(cell)):
            continue
        tree = parse(cell["source"])
        if tree is None:
            findings.append(Finding(name, "the cell is no valid Python", "correct its syntax"))
            continue
        bound = names_in(tree)
        functions = {**{k: v for k, v in functions.items() if k not in bound}, **functions_in(tree)}
        if not is_autograded(cell):
            continue
        own_names = student - functions.keys()
        if not tests_something(tree, functions) and not shows_answer(tree, own_names):
            findings.append(Finding(name, "the graded cell calls nothing: it earns full marks whatever the answer",
                                    "call the test at the end of the cell"))  # fmt: skip
            continue
        if compares_nothing(tree, functions, own_names) and not judges_by_value(tree, functions):
            findings.append(Finding(name, "the graded cell compares nothing: any answer that runs earns full marks",
                                    "assert what the answer must be"))  # fmt: skip
            continue
        elsewhere = set().union(*(used for i, used in uses.items() if i != index))
        blunt = [Finding(name, *problem) for problem in blunt_tests(tree, functions, own_names, elsewhere)]
        if blunt:
            findings += blunt
            continue
        runner = swallowed_runner(tree)
        if runner:
            cause = f"{runner} reports failures without raising: the cell earns full marks anyway"
            findings.append(Finding(name, cause, "assert that its result was successful"))
            continue
        verdict = judge_last_value(cell["source"], tree, functions, own_names)
        if verdict.cause:
            findings.append(Finding(name, verdict.cause, verdict.remedy))
        elif verdict.undecided:
            undecided[name] = float(block.get("points") or 0)
    return findings, undecided


def check_by_running(source: Notebook, released: Notebook, undecided: dict[str, float]) -> list[Finding]:
    """Run the reference, and the untouched release against the same tests.

    Args:
        source: the instructor's notebook.
        released: its student's edition.
        undecided: graded cells whose last value the syntax doesn't tell.
    """
    if not is_python(source) or not any(is_autograded(cell) for cell in source["cells"]):
        return []
    try:
        reference, untouched = run_cells([_runnable(source), _runnable(_with_tests(released, source))])
    except (TimeoutError, RuntimeError) as error:
        return [Finding("", str(error), "the reference must run from top to bottom and end")]
    findings: list[Finding] = []
    student = _student_names(source)
    for index, cell in enumerate(source["cells"]):
        name = label(source, index)
        if name not in reference:
            continue
        outcome = reference[name]
        if outcome.error:
            if outcome.error.startswith("FileNotFoundError"):
                findings.append(Finding(name, f"it reads a file that students don't get: {outcome.error}",
                                        "students get the notebook alone: make the data in a cell"))  # fmt: skip
            elif is_autograded(cell) or nbgrader_of(cell).get("solution"):
                findings.append(Finding(name, f"the reference itself fails here: {outcome.error}",
                                        "correct the reference or the test"))  # fmt: skip
        elif is_autograded(cell):
            points = float(nbgrader_of(cell)["points"])
            findings += _judge_reference(name, outcome, points, name in undecided, is_chapter(source))
            if _earns(untouched[name], points) and (is_chapter(source) or _uses(cell, student)):
                findings.append(Finding(name, "the untouched release earns points here",
                                        "let the test fail until the student has done the work"))  # fmt: skip
    return findings


def _judge_reference(name: str, outcome: Outcome, points: float, undecided: bool, chapter: bool) -> list[Finding]:
    if outcome.type_name == "None":
        return []
    if outcome.number is None:
        cause = f"its last value is {outcome.type_name}: nbgrader reads that as full marks"
        return [Finding(name, cause, USE_FLOAT)]
    if not 0 <= outcome.number <= points or not math.isfinite(outcome.number):
        cause = f"its last value with the reference is {outcome.number:g}, outside 0 to {points:g}"
        return [Finding(name, cause, "give points between 0 and the cell's points")]
    if undecided:
        cause = f"its last value is a {outcome.type_name} now, but that it always is a plain number can't be seen"
        return [Finding(name, cause, "write float(…) around it")]
    if chapter and outcome.number != points:
        cause = f"the reference earns {outcome.number:g} of {points:g} points"
        return [Finding(name, cause, "correct the reference or the test")]
    return []


def _is_positive(points: object) -> bool:
    return isinstance(points, (int, float)) and not isinstance(points, bool) and math.isfinite(points) and points > 0


def _student_names(notebook: Notebook) -> set[str]:
    names: set[str] = set()
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and nbgrader_of(cell).get("solution"):
            tree = parse(cell["source"])
            names |= names_in(tree) if tree else set()
    return names


def _names_used(notebook: Notebook) -> dict[int, set[str]]:
    """The names that each code cell reads, by its number."""
    trees = {i: parse(cell["source"]) for i, cell in enumerate(notebook["cells"]) if cell["cell_type"] == "code"}
    return {index: names_used(tree) for index, tree in trees.items() if tree is not None}


def _uses(cell: dict, names: set[str]) -> bool:
    import ast

    tree = parse(cell["source"])
    return tree is not None and any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(tree))


def _earns(outcome: Outcome, points: float) -> bool:
    """Whether nbgrader would give points for this outcome."""
    return not outcome.error and not (outcome.number is not None and outcome.number == 0) and points > 0


def _runnable(notebook: Notebook) -> list[tuple[str, str]]:
    return [
        (label(notebook, index), cell["source"])
        for index, cell in enumerate(notebook["cells"])
        if cell["cell_type"] == "code" and not SKIP_TAGS & set(tags(cell))
    ]


def _with_tests(released: Notebook, source: Notebook) -> Notebook:
    """The student's edition with the full tests, as grading runs it."""
    full = {label(source, i): cell for i, cell in enumerate(source["cells"]) if is_autograded(cell)}
    names = [label(released, index) for index in range(len(released["cells"]))]
    cells = [full.get(name, cell) for name, cell in zip(names, released["cells"], strict=True)]
    return {**released, "cells": cells}
