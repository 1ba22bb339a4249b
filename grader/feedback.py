"""The page that a student gets: score by question, each failed behaviour in words, and what to do next.

Built from results.json alone, which never holds a hidden test's source or values. Flags are for the instructor and
stay out. Everything is escaped, and the page loads nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grader.files import read_json, write_atomic
from grader.grade.job import student_edition
from grader.gradebook.tree import CourseTree, write_notebook
from grader.model import Notebook
from grader.pages import template
from grader.structure import is_graded

MAX_OUTPUT = 5_000  # characters of one output in the student's copy of the notebook

# (Chinese, English) for a student's status and for a behaviour's status.
STUDENT_STATUS = {
    "graded": ("已评分", "graded"),
    "partial": ("部分评分", "partly graded"),
    "not_submitted": ("没有收到提交", "nothing was handed in"),
    "unreadable": ("文件无法读取", "the file can't be read"),
    "crashed": ("运行时崩溃", "the notebook crashed"),
    "timed_out": ("运行超时", "the notebook ran out of time"),
}
BEHAVIOUR_STATUS = {
    "passed": ("通过", "Passed."),
    "failed": ("结果不符合要求。", "The result is not what was asked for."),
    "no_attempt": ("这个 TODO 还没有填写。", "This TODO is not filled in yet."),
    "error": ("你的代码在运行时出错。", "Your code raised an error."),
    "timed_out": ("你的代码运行时间过长，已被停止。", "Your code took too long and was stopped."),
    "crashed": ("你的代码使 Python 进程退出。", "Your code ended the Python process."),
    "limit": ("你的代码超出了资源限制。", "Your code used more than it may (output, memory, files)."),
    "not_run": ("这一项未能运行，没有计分。", "This could not be run and has no score."),
}
HIDDEN_FAILED = (
    "隐藏测试没有通过：可见测试之外的输入上，这一行为不符合要求。",
    "A hidden test failed: on inputs other than the visible ones, this behaviour is not as required.",
)


def write_feedback(out: Path, results: dict[str, Any]) -> list[Path]:
    """Write ``feedback/STUDENT/CHAPTER.html`` for every student, and beside it the notebook as it ran.

    Returns:
        the pages.
    """
    tree = CourseTree(out, results["assignment"])
    release = read_json(tree.release)
    title = chapter_title(release, results["assignment"])
    paths = []
    for student in results["students"]:
        path = out / "feedback" / student["student"] / f"{results['assignment']}.html"
        executed = read_json(tree.autograded(student["student"]))
        notebook = path.with_suffix(".ipynb")
        if executed is not None and release is not None:
            write_notebook(notebook, student_copy(executed, release), compact=True)
        else:
            notebook.unlink(missing_ok=True)
        write_atomic(path, page(student, results, title, notebook.name if notebook.exists() else None))
        paths.append(path)
    return paths


def student_copy(executed: Notebook, release: Notebook) -> Notebook:
    """The executed notebook as its author may see it: tests as released, and plain text output of the other cells.

    Student cells ran where no hidden test is, so their output can't hold one; a test's output can.
    """
    copied = student_edition(executed, release)
    outputs = {cell.get("id"): cell.get("outputs", []) for cell in executed["cells"]}
    for cell in copied["cells"]:
        cell["metadata"] = {key: value for key, value in cell["metadata"].items() if key in ("nbgrader", "tags")}
        if cell["cell_type"] == "code" and not is_graded(cell):
            shown = [_plain_output(output) for output in outputs.get(cell.get("id"), [])]
            cell["outputs"] = [output for output in shown if output]
    return copied


def page(student: dict[str, Any], results: dict[str, Any], title: str, notebook: str | None = None) -> str:
    """One student's page as HTML text.

    Args:
        student: an entry of ``results["students"]``.
        title: of the chapter, as students know it.
        notebook: name of the executed notebook beside the page.
    """
    return template("feedback.html.j2").render(
        student=student,
        results=results,
        title=title,
        notebook=notebook,
        status=STUDENT_STATUS[student["status"]],
        sentence=sentence,
        points=_points,
        percent=_percent,
    )


def _plain_output(output: dict[str, Any]) -> dict[str, Any] | None:
    """The text of an output as a stream, cut to a length that a person reads; HTML, scripts and images are dropped."""
    if output["output_type"] == "error":
        text = f"{output['ename']}: {output['evalue']}"
    elif output["output_type"] == "stream":
        text = _joined(output["text"])
    else:
        text = _joined(output.get("data", {}).get("text/plain", ""))
    if not text:
        return None
    cut = text if len(text) <= MAX_OUTPUT else f"{text[:MAX_OUTPUT]}\n… ({len(text) - MAX_OUTPUT} more)"
    return {"output_type": "stream", "name": "stdout", "text": cut}


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def sentence(behaviour: dict[str, Any]) -> tuple[str, str]:
    """What became of a behaviour, in Chinese and English."""
    if behaviour["by_hand"]:
        return ("老师评定了这一项的得分。", "Your teacher set the score of this part.")
    if behaviour["hidden"] and behaviour["status"] == "failed":
        return HIDDEN_FAILED
    return BEHAVIOUR_STATUS[behaviour["status"]]


def _points(score: float | None, max_score: float) -> str:
    return f"– / {max_score:g}" if score is None else f"{score:g} / {max_score:g}"


def _percent(score: float | None, max_score: float) -> int:
    return round(100 * min(1.0, max(0.0, (score or 0.0) / max_score))) if max_score else 0


def chapter_title(release: dict[str, Any] | None, assignment: str) -> str:
    """The first heading of the student's notebook."""
    for cell in (release or {}).get("cells", []):
        for line in _joined(cell["source"]).splitlines() if cell["cell_type"] == "markdown" else []:
            if line.startswith("# "):
                return line[2:].strip()
    return assignment
