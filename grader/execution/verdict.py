"""From what happened in a test to its outcome: status, score, and a message that the student may read."""

from __future__ import annotations

import ast
import builtins
import math
import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from grader.execution.cells import Cells, StudentCell, TestCell
from grader.execution.remote import MissingName, Stop, StudentFault
from grader.execution.student import CellRun
from grader.model import TestOutcome

MESSAGE_CAP = 2000


@dataclass(frozen=True)
class Context:
    """What judging a test needs: the cells, how the student's went, which solutions were attempted."""

    cells: Cells
    runs: dict[str, CellRun]
    attempted: dict[str, bool]

    def tried(self, cell: StudentCell | None) -> bool:
        return cell is None or self.attempted.get(cell.grade_id, True)


class AuthoringError(Exception):
    """The test cell itself is at fault."""


@dataclass(frozen=True)
class Judged:
    outcome: TestOutcome
    outputs: list[dict[str, Any]]


def judge(
    context: Context, test: TestCell, error: BaseException | None, value: Any, stop: Stop | None, printed: str
) -> Judged:
    """The outcome of a test that ended with ``error``, or with ``value`` as the value of its last line.

    Args:
        stop: why the student's process ended during the test, whether or not the test noticed.
        printed: what the test wrote to standard output.
    """
    outputs = [{"output_type": "stream", "name": "stdout", "text": printed}] if printed else []
    error = stop or error
    if error is None and value is not None:
        score = partial_credit(value, test.points)
        if score is None:
            error = AuthoringError(
                f"the test's last line has the value {builtins.repr(value)[:80]}, "
                f"which is no float or int between 0 and {test.points:g}"
            )
        else:
            data = {"text/plain": repr(value)}
            outputs.append({"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": None})
            return Judged(_partial(context, test, score), outputs)
    if error is None:
        return Judged(TestOutcome(test.grade_id, "passed", test.points, test.points), outputs)
    status, message, hidden = explain(context, test, error)
    outcome = TestOutcome(test.grade_id, status, 0.0, test.points, message[:MESSAGE_CAP], hidden)
    return Judged(outcome, [*outputs, error_output(error)])


def partial_credit(value: object, points: float) -> float | None:
    """The score that a last line stands for; None when nbgrader would misread it."""
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= points:  # type: ignore[arg-type, operator]
        return None
    return float(value)  # type: ignore[arg-type]


def _partial(context: Context, test: TestCell, score: float) -> TestOutcome:
    if score >= test.points:
        return TestOutcome(test.grade_id, "passed", test.points, test.points)
    question = context.cells.by_key(test.question)
    if score == 0 and not context.tried(question):
        return TestOutcome(test.grade_id, "no_attempt", 0.0, test.points, unfilled(question))
    return TestOutcome(
        test.grade_id, "failed", score, test.points, f"「{test.title}」得到部分分 {score:g} / {test.points:g}"
    )


def error_output(error: BaseException) -> dict[str, Any]:
    """The full error for the executed notebook, which only the instructor sees."""
    name = getattr(error, "type_name", "") or type(error).__name__
    text = str(error)
    if isinstance(error, Stop):
        name, text = (
            {"timed_out": "CellTimeoutError", "crashed": "DeadKernelError"}.get(error.status, "LimitError"),
            text,
        )
    lines = ["Traceback (most recent call last):"]
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith("<test "):
            lines.append(f"  {frame.filename[1:-1]}, line {frame.lineno}, in {frame.name}: {frame.line or ''}")
    lines += [f"  student: {line.strip()}" for line in getattr(error, "trace", ())]
    lines.append(f"{name}: {text}" if text else name)
    return {"output_type": "error", "ename": name, "evalue": clean(text), "traceback": [clean(x) for x in lines]}


def clean(text: str) -> str:
    """Without what a file in UTF-8 can't hold, and within a cap."""
    return text[:20_000].encode("utf-8", "replace").decode()


def in_hidden(context: Context, test: TestCell, tb: TracebackType | None) -> bool:
    """Whether any frame of the failure lies between the markers of hidden tests, in this cell or an earlier one."""
    hidden = {t.filename: t.hidden_lines for t in context.cells.tests}
    return any(line in hidden.get(frame.f_code.co_filename, ()) for frame, line in traceback.walk_tb(tb))


def after_hidden(test: TestCell, tb: TracebackType | None) -> bool:
    """Whether hidden tests of the same cell may have run before the failure.

    The student's function could have kept what they passed in, and tell it in the words of a visible assertion.
    """
    if not test.hidden_lines:
        return False
    ends = [(node.lineno, node.end_lineno or node.lineno) for node in ast.parse(test.source).body]
    first = min(test.hidden_lines)
    unsafe = min((start for start, end in ends if end >= first), default=first)
    return any(frame.f_code.co_filename == test.filename and line >= unsafe for frame, line in traceback.walk_tb(tb))


def explain(context: Context, test: TestCell, error: BaseException) -> tuple[str, str, bool]:
    """Status, message for the student, and whether the failing statement is hidden."""
    hidden = in_hidden(context, test, error.__traceback__)
    chain: BaseException | None = error.__context__
    while chain is not None and not hidden:  # `assertRaises` and helpers may re-raise outside of the region
        hidden = in_hidden(context, test, chain.__traceback__)
        chain = chain.__context__
    status, plain, discreet = _explain(context, test, error)
    if status == "no_attempt":
        return status, plain, hidden
    if hidden:
        return status, f"隐藏测试「{test.title}」未通过：{discreet}", True
    if after_hidden(test, error.__traceback__):
        return status, f"「{test.title}」未通过：{discreet}", False
    return status, plain, False


def _explain(context: Context, test: TestCell, error: BaseException) -> tuple[str, str, str]:
    """Status, message with the values, message without them."""
    question = context.cells.by_key(test.question)
    if isinstance(error, Stop):
        return error.status, error.message, error.message
    unfinished = _stub(context, error)
    if unfinished is not None:
        return "no_attempt", unfilled(unfinished), unfilled(unfinished)
    if isinstance(error, MissingName):
        return _missing(context, question, error)
    if not context.tried(question):
        return "no_attempt", unfilled(question), unfilled(question)
    if isinstance(error, MemoryError) and isinstance(error, StudentFault):
        return "crashed", "内存超过上限 (memory limit, MemoryError)", "内存超过上限 (memory limit)"
    if isinstance(error, StudentFault):
        where = _where(context, error)
        return "error", f"{error.type_name}: {error.text}{where}", f"你的代码抛出 {error.kind}{where}"
    if isinstance(error, AuthoringError):
        return "error", f"评分单元格「{test.title}」本身有误，请联系教师", "评分单元格本身有误，请联系教师"
    if isinstance(error, AssertionError):
        return "failed", clean(str(error)) or _failing_line(test, error), "结果与要求不符"
    text = f"检查返回值时出错，通常是返回值的类型或结构不对：{type(error).__name__}: {error}"
    return "failed", clean(text), f"返回值的类型或结构不对 ({type(error).__name__})"


def _failing_line(test: TestCell, error: BaseException) -> str:
    """For an assertion without words: the line itself, which the student can read in the notebook."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith("<test ")]
    return f"「{test.title}」未通过：{frames[-1].line}" if frames else f"「{test.title}」未通过"


def _where(context: Context, error: Any) -> str:
    cell = context.cells.by_key(error.cell)
    if cell is None or error.line is None or not 0 < error.line <= cell.source.count("\n") + 1:
        return ""  # a line that isn't there could tell what a hidden test passed in
    return f"（你的单元格「{cell.title}」第 {error.line} 行）"


def _stub(context: Context, error: BaseException) -> StudentCell | None:
    """The unfilled solution cell whose stub raised ``error``."""
    if not isinstance(error, StudentFault) or error.type_name != "NotImplementedError":
        return None
    raised_in = context.cells.by_key(error.cell)
    for cell in context.cells.student:
        if cell.role == "solution" and cell.stub and error.text.strip() == cell.stub:
            return cell
    if raised_in is not None and raised_in.role == "solution" and not context.tried(raised_in):
        return raised_in
    return None


def unfilled(cell: StudentCell | None) -> str:
    """What an unfilled solution cell is told: its stub's own words."""
    if cell is None:
        return "尚未作答 (no attempt)"
    return cell.stub or f"尚未作答：「{cell.title}」(no attempt)"


def _missing(context: Context, question: StudentCell | None, error: MissingName) -> tuple[str, str, str]:
    run = context.runs.get(question.key) if question else None
    if run is not None and run.error is not None:
        unfinished = _stub(context, run.error)
        if unfinished is not None:
            return "no_attempt", unfilled(unfinished), unfilled(unfinished)
    if not context.tried(question):
        return "no_attempt", unfilled(question), unfilled(question)
    name = f"没有找到 `{error.missing}`"
    if run is not None and run.status not in ("ok", "error"):
        text = f"{name}：单元格「{question.title}」被中止，{run.message}"  # type: ignore[union-attr]
        return run.status, text, text
    if run is not None and run.error is not None:
        where = _where(context, run.error)
        text = f"{name}：单元格没有运行完，{run.error.type_name}: {run.error.text}{where}"
        return "error", text, text
    text = f"{name}：它被删除了 (deleted)" if error.deleted else f"{name}：没有单元格定义它 (NameError)"
    return "error", text, text
