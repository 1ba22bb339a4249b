"""What the tests of execution share: notebooks built from a few lines, and their execution."""

from __future__ import annotations

from typing import Any

from grader.execution import execute
from grader.model import Execution, ExecutionRequest, Limits, TestOutcome

QUICK = Limits(cell_s=4, call_s=2, notebook_s=20, cpu_s=20)


def solution(source: str, grade_id: str = "q1", **metadata: Any) -> dict[str, Any]:
    return _cell(
        source, {"nbgrader": {"grade": False, "solution": True, "locked": False, "grade_id": grade_id}, **metadata}
    )


def locked(source: str, grade_id: str = "helper") -> dict[str, Any]:
    return _cell(source, {"nbgrader": {"grade": False, "solution": False, "locked": True, "grade_id": grade_id}})


def graded(source: str, grade_id: str = "t1", points: float = 1, **metadata: Any) -> dict[str, Any]:
    block = {"grade": True, "solution": False, "locked": True, "grade_id": grade_id, "points": points}
    return _cell(source, {"nbgrader": block, **metadata})


def given(source: str, **metadata: Any) -> dict[str, Any]:
    return _cell(source, metadata)


def extra(source: str) -> dict[str, Any]:
    return _cell(source, {"grader": {"origin": "student"}})


def _cell(source: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": metadata, "source": source, "outputs": [], "execution_count": None}


def run(
    *cells: dict[str, Any], attempted: dict[str, bool] | None = None, limits: Limits = QUICK, sandbox: str = "bwrap"
) -> Execution:
    numbered = [{**cell, "id": f"c{i}"} for i, cell in enumerate(cells)]
    notebook = {"cells": numbered, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return execute(ExecutionRequest("someone", notebook, attempted or {}, limits, sandbox))


def outcome(execution: Execution, grade_id: str = "t1") -> TestOutcome:
    return next(t for t in execution.tests if t.grade_id == grade_id)


def statuses(execution: Execution) -> list[str]:
    return [t.status for t in execution.tests]


def output_text(execution: Execution, index: int) -> str:
    """All text of one cell's outputs."""
    found = []
    for output in execution.notebook["cells"][index]["outputs"]:
        found.append(output.get("text") or output.get("data", {}).get("text/plain") or "\n".join(output["traceback"]))
    return "\n".join(found)
