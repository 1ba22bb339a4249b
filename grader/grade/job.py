"""Grading one submission up to its verdicts: a pure function that runs in any process on any machine."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from grader.model import Execution, ExecutionRequest, Flag, Limits, Notebook
from grader.structure import INSTRUCTOR_ONLY, nbgrader_metadata


@dataclass(frozen=True)
class Job:
    """One submission to grade. Plain data."""

    student: str
    source: Notebook
    release: Notebook
    submitted: Notebook
    limits: Limits
    sandbox: str


@dataclass(frozen=True)
class Outcome:
    """What came of a job. ``execution`` is None where not a single test could be run; ``reason`` then says why.

    edition: the student's code in the release's cells, without hidden tests, for nbgrader's ``submitted/``.
    """

    student: str
    status: str
    execution: Execution | None = None
    edition: Notebook | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()


def grade_one(job: Job) -> Outcome:
    """Rebuild and execute one submission. Raises only for a fault of the grader itself."""
    from grader.execution import execute
    from grader.rebuild import rebuild

    rebuilt = rebuild(job.source, job.release, job.submitted)
    request = ExecutionRequest(job.student, rebuilt.notebook, rebuilt.attempted, job.limits, job.sandbox)
    execution = execute(request)
    return Outcome(
        student=job.student,
        status=execution.status,
        execution=execution,
        edition=student_edition(rebuilt.notebook, job.release),
        notes=tuple(rebuilt.notes) + tuple(execution.notes),
        flags=tuple(rebuilt.flags) + tuple(execution.flags),
    )


def failure(student: str, error: BaseException) -> Outcome:
    """What a student gets whose notebook the grader itself fails on: no score, and nobody else is touched."""
    return Outcome(
        student,
        "crashed",
        reason=f"The grader itself failed on this notebook ({type(error).__name__}: {str(error)[:300]}). "
        "Please report it with the notebook; grade it by hand until it is fixed.",
    )


def student_edition(rebuilt: Notebook, release: Notebook) -> Notebook:
    """The student's cells of a rebuilt notebook, with tests and locked cells as they were released."""
    released = {nbgrader_metadata(c)["grade_id"]: c for c in release["cells"] if nbgrader_metadata(c)}
    cells = []
    for cell in rebuilt["cells"]:
        block = nbgrader_metadata(cell)
        if INSTRUCTOR_ONLY in cell["metadata"].get("tags", []):
            continue
        kept = copy.copy(cell)  # what is within isn't changed
        if block and not block.get("solution"):
            kept["source"] = released[block["grade_id"]]["source"]
        if kept["cell_type"] == "code":
            kept["outputs"], kept["execution_count"] = [], None
        cells.append(kept)
    return {**{key: value for key, value in rebuilt.items() if key != "cells"}, "cells": cells}
