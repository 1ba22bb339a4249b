"""`execute`: the pure function behind every way of grading."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from grader.errors import GraderError
from grader.execution import server
from grader.execution.cells import Cells, TestCell, classify, source_of
from grader.model import Execution, ExecutionRequest, Flag, Notebook, TestOutcome

PRELOADED = ("numpy", "torch")
# By library: the module of it to import ahead. NumPy puts off importing its random numbers.
WARMED = {"numpy": "numpy.random", "torch": "torch", "matplotlib": "matplotlib.pyplot"}
GRACE_S = 5.0
BEGIN_S = 120.0
NOT_RUN = {"output_type": "error", "ename": "NotRun", "evalue": "", "traceback": ["NotRun: the test did not run"]}
VERDICTS = ("passed", "failed", "no_attempt", "error")


def execute(request: ExecutionRequest) -> Execution:
    """Run the student's cells in a sandbox and the instructor's tests outside it.

    The function depends on nothing but its argument and the machine, changes nothing, and may be called from any
    process and thread, several at a time.

    Raises:
        GraderError: no sandbox on this machine.
    """
    begun = time.monotonic()
    cells = classify(request.notebook)
    plain = replace(request, notebook={})  # its cells are all that the trusted process needs
    result = _Result(request, cells)
    hung: set[str] = set()
    for _ in range(len(cells.tests) + 1):
        stuck = _attempt(plain, result, frozenset(hung))
        if stuck is None:
            break
        hung.add(stuck)
    return result.finished(time.monotonic() - begun)


def warm_up(source: Path) -> None:
    """Get ready, in the background, to execute submissions of the notebook that lies at ``source``.

    Call it in a process that will call `execute`. A file that can't be read is somebody else's business.
    """
    with contextlib.suppress(Exception):
        notebook = json.loads(source.read_text("utf-8"))
        server.warm_up(_preload(notebook), _imported(classify(notebook)))


def _attempt(request: ExecutionRequest, result: _Result, hung: frozenset[str]) -> str | None:
    """One trusted process from begin to end. Returns the test at which it had to be ended, or died."""
    child = server.child(_preload(result.notebook), _imported(result.cells), request.sandbox)
    phase: str = ""
    allowed = BEGIN_S
    reason = ("timed_out", "测试没有在时限内结束 (time limit)")
    try:
        child.begin(request, result.cells, hung)
        while True:
            if not child.connection.poll(allowed):
                break
            for event in child.connection.recv():
                if event[0] == "phase":
                    phase, allowed = event[1], event[2] + GRACE_S
                elif event[0] == "problem":
                    raise GraderError(*event[1:])
                elif event[0] == "done":
                    result.done(*event[1:])
                    return None
                else:
                    result.take(*event)
    except (EOFError, OSError):
        reason = ("crashed", "测试进程意外终止 (the test's process died)")
    finally:
        child.end()
    if not phase:
        result.give_up(*reason)
        return None
    result.stuck(phase, *reason)
    return phase


def _preload(notebook: Notebook) -> tuple[str, ...]:
    """Libraries that the instructor's cells use, so that the trusted process has them before it starts."""
    text = "\n".join(source_of(c) for c in notebook["cells"] if _by_instructor(c))
    return tuple(name for name in PRELOADED if re.search(rf"\b{name}\b", text))


def _imported(cells: Cells) -> tuple[str, ...]:
    """Libraries that the cells of the student's process import, so that it has them before it starts."""
    text = "\n".join(c.source for c in cells.student)
    return tuple(
        module
        for name, module in WARMED.items()
        if re.search(rf"^\s*(?:import|from)\b.*\b{name}\b", text, re.MULTILINE)
    )


def _by_instructor(cell: dict[str, Any]) -> bool:
    nbgrader = cell.get("metadata", {}).get("nbgrader") or {}
    return cell["cell_type"] == "code" and bool(nbgrader.get("locked") or nbgrader.get("grade"))


class _Result:
    """The execution as it grows. It fails closed: until a test has passed, its outputs hold an error."""

    def __init__(self, request: ExecutionRequest, cells: Cells) -> None:
        self.request = request
        self.cells = cells
        self.notebook = copy.copy(request.notebook)  # no deeper: only a cell's outputs and execution_count change
        self.notebook["cells"] = [copy.copy(cell) for cell in request.notebook["cells"]]
        self.outcomes: dict[str, TestOutcome] = {}
        self.flags: tuple[Flag, ...] = ()
        self.notes: tuple[str, ...] = ()
        self.timing: dict[str, float] = {}
        self.count = 0
        for cell in self.notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"] = []
                cell["execution_count"] = None
        for test in cells.tests:
            self._set(test.index, [NOT_RUN])

    def _set(self, index: int, outputs: list[dict[str, Any]]) -> None:
        cell = self.notebook["cells"][index]
        convert = type(cell)
        self.count += 1
        cell["execution_count"] = index + 1
        cell["outputs"] = [convert({**o, **self._numbered(o, index + 1)}) for o in copy.deepcopy(outputs)]

    @staticmethod
    def _numbered(output: dict[str, Any], number: int) -> dict[str, Any]:
        return {"execution_count": number} if output["output_type"] == "execute_result" else {}

    def take(self, kind: str, *event: Any) -> None:
        if kind == "cells":
            for index, outputs in event[0].items():
                self._set(index, outputs)
        elif kind == "test":
            index, outcome, outputs = event
            if outcome.grade_id not in self.outcomes:
                self.outcomes[outcome.grade_id] = outcome
                self._set(index, outputs)

    def done(self, notes: tuple[str, ...], flags: tuple[Flag, ...], timing: dict[str, float]) -> None:
        self.notes, self.flags, self.timing = notes, flags, timing

    def stuck(self, grade_id: str, status: str, message: str) -> None:
        test = next(t for t in self.cells.tests if t.grade_id == grade_id)
        self._fail(test, status, message)

    def give_up(self, status: str, message: str) -> None:
        """Nothing could be run for the tests that have no outcome yet."""
        for test in self.cells.tests:
            if test.grade_id not in self.outcomes:
                self._fail(test, "not_run", message)
        self.notes += (message,)

    def _fail(self, test: TestCell, status: str, message: str) -> None:
        from grader.execution.tester import not_run

        outcome, outputs = not_run(test, status, message)
        self.outcomes[test.grade_id] = outcome
        self._set(test.index, outputs)

    def finished(self, seconds: float) -> Execution:
        self.give_up("not_run", "没有运行 (not run)") if len(self.outcomes) < len(self.cells.tests) else None
        tests = tuple(self.outcomes[t.grade_id] for t in self.cells.tests)
        timing = {**self.timing, "total": seconds}
        request = self.request
        return Execution(self.notebook, tests, status(tests), request.sandbox, self.notes, self.flags, timing)


def status(tests: tuple[TestOutcome, ...]) -> str:
    """The student's status from the verdicts: see `grader.model`."""
    if all(t.status in VERDICTS for t in tests):
        return "graded"
    if any(t.status in VERDICTS for t in tests):
        return "partial"
    return "timed_out" if any(t.status == "timed_out" for t in tests) else "crashed"
