"""Runs one submission: the student's cells in the sandbox, the tests here. This is the trusted process of one student.

It reports as it goes, so that whoever waits can end it when a hostile value keeps a test busy, and go on with the
rest.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import marshal
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from grader.execution import verdict
from grader.execution.cells import Cells, TestCell, compiled
from grader.execution.namespace import TestNamespace
from grader.execution.remote import TEST_CALLS, Stop
from grader.execution.student import DEFINITIONS_S, REPLAYS, CellRun, Student
from grader.model import ExecutionRequest, Flag, TestOutcome

TEST_S = 30.0  # what a test may take beside its calls
START_S = 180.0

Emit = Callable[..., None]


def run(request: ExecutionRequest, cells: Cells, emit: Emit, hung: frozenset[str] = frozenset()) -> None:
    """Run cells and tests, reporting each step.

    Args:
        cells: of the request's notebook.
        emit: called with ``"phase", name, seconds`` (what comes next and how long it may take), ``"process", pid``,
            ``"cells", {index: outputs}``, ``"test", index, outcome, outputs``, ``"done", notes, flags, timing``.
        hung: tests that did not come to an end in an earlier try, by grade_id; they are left out.
    """
    timing: dict[str, float] = {}
    begun = time.monotonic()
    limits = request.limits
    emit("phase", "", START_S + (REPLAYS + 2) * limits.notebook_s + len(cells.student) * 4 * DEFINITIONS_S)
    with Student(request, cells, lambda pid: emit("process", pid)) as student:
        student.prepare()
        timing["cells"] = time.monotonic() - begun
        emit("cells", {c.index: outputs(student.runs.get(c.key, CellRun())) for c in cells.student})
        context = verdict.Context(cells, student.runs, request.attempted)
        namespace = TestNamespace(cells.imports)
        for test in cells.tests:
            if test.grade_id not in hung:
                judged = run_test(context, test, namespace, student, emit)
                emit("test", test.index, judged.outcome, judged.outputs)
            namespace.reserved |= test.names
        student.discard()
        timing["tests"] = time.monotonic() - begun - timing["cells"]
        emit("done", student.notes(), flags(student), timing)


def flags(student: Student) -> tuple[Flag, ...]:
    """What looks like tampering. Hints, never part of a score."""
    found = [Flag("runner_patched", what) for what in student.patched]
    found += [Flag("sandbox_limit", what) for what in sorted(student.hits)]
    if student.survivors:
        found.append(Flag("sandbox_probe", f"{student.survivors} processes left running by cells"))
    if student.forged:
        found.append(Flag("forged_reply", f"{student.forged} messages that the runner does not send"))
    return tuple(found)


def outputs(run: CellRun) -> list[dict[str, Any]]:
    """A student's cell outputs as a notebook holds them: text only."""
    found = []
    for item in run.outputs:
        if type(item) is not dict:
            continue
        kinds = [k for k in ("stream", "result", "display") if type(item.get(k)) is str]
        if kinds == ["stream"] and item["stream"] in ("stdout", "stderr") and type(item.get("text")) is str:
            text = verdict.clean(item["text"][:1_000_000]) if len(item["text"]) < 20_000 else _long(item["text"])
            found.append({"output_type": "stream", "name": item["stream"], "text": text})
        elif kinds == ["result"]:
            data = {"text/plain": _long(item["result"])}
            found.append({"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": None})
        elif kinds == ["display"]:
            data = {"text/plain": _long(item["display"])}
            found.append({"output_type": "display_data", "data": data, "metadata": {}})
    if run.error is not None:
        found.append(verdict.error_output(run.error))
    elif run.status not in ("ok", "error"):
        found.append(verdict.error_output(Stop(run.status, run.message)))
    return found


def _long(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class Printed(io.StringIO):
    """What a test prints, the first ``cap`` characters of it."""

    def __init__(self, cap: int) -> None:
        super().__init__()
        self.left = cap

    def write(self, text: str) -> int:
        kept = text[: self.left]
        self.left -= len(kept)
        super().write(kept)
        return len(text)


def run_test(
    context: verdict.Context, test: TestCell, namespace: TestNamespace, student: Student, emit: Emit
) -> verdict.Judged:
    """Run one test and judge it.

    Student code can keep what a hidden test passed in (in shared memory, in a file) and tell it in the words of a
    later, visible failure. So where hidden tests ran before, those words come from a second try, in a sandbox that has
    seen none; the score stays that of the first.
    """
    knows, names = student.knows_hidden, dict(namespace.globals)
    judged = _run_once(context, test, namespace, student, emit)
    if student.again:
        student.again = False
        namespace.globals.clear()
        namespace.globals.update(names)
        judged = _run_once(context, test, namespace, student, emit)
    student.knows_hidden = student.sandbox is not None and (student.knows_hidden or bool(test.hidden_lines))
    if not knows or not _tells(judged.outcome):
        return judged
    student.discard()
    namespace.globals.clear()
    namespace.globals.update(names)
    again = _run_once(context, test, namespace, student, emit)
    student.knows_hidden = student.sandbox is not None and bool(test.hidden_lines)
    same = again.outcome.status == judged.outcome.status and not again.outcome.hidden
    message = again.outcome.message if same else f"「{test.title}」未通过"
    return replace(judged, outcome=replace(judged.outcome, message=message))


def _tells(outcome: TestOutcome) -> bool:
    """Whether the message may hold words or values of the student's."""
    return outcome.status in ("failed", "error") and not outcome.hidden and bool(outcome.message)


def _run_once(
    context: verdict.Context, test: TestCell, namespace: TestNamespace, student: Student, emit: Emit
) -> verdict.Judged:
    """Run one test against a fresh process and judge it. No exception of the test or of the student leaves."""
    limits = student.limits
    printed = Printed(limits.output)
    allowed = TEST_CALLS * limits.call_s + TEST_S

    def restarting(begins: bool) -> None:
        emit("phase", test.grade_id, START_S + limits.notebook_s if begins else allowed)

    emit("phase", test.grade_id, allowed)
    session = student.session(test, restarting)
    error: BaseException | None = None
    value = None
    namespace.session = session
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(Printed(0)):
            value = execute(test, namespace)
    except BaseException as e:  # whatever a test raises is its verdict
        error = e
    finally:
        namespace.session = None
    stop = session.stop
    if stop is None and isinstance(error, Stop):
        stop = error
    if stop is not None and error is not None and stop is not error:
        stop.__traceback__ = stop.__traceback__ or error.__traceback__
    if isinstance(error, MemoryError):
        student.hits.add("memory")
    judged = verdict.judge(context, test, error, value, stop, printed.getvalue())
    student.release(session)
    return judged


def execute(test: TestCell, namespace: TestNamespace) -> Any:
    """Run a test cell's source; returns the value of its last line if that is an expression, as a notebook shows it."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    linecache.cache[test.filename] = (len(test.source), None, test.source.splitlines(True), test.filename)
    body, shown = marshal.loads(test.program) if test.program else compiled(test.source, test.filename)
    exec(body, namespace.globals)
    return None if shown is None else eval(shown, namespace.globals)


def not_run(test: TestCell, status: str, message: str) -> tuple[TestOutcome, list[dict[str, Any]]]:
    """The outcome of a test that could not be brought to an end, and its outputs."""
    score = None if status == "not_run" else 0.0
    outcome = TestOutcome(test.grade_id, status, score, test.points, message)
    return outcome, [verdict.error_output(Stop(status, message))]
