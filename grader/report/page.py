"""report.html: the class at a glance, in one file that loads nothing. Only for the instructor."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from grader.feedback import BEHAVIOUR_STATUS, STUDENT_STATUS, chapter_title
from grader.files import read_json, write_atomic
from grader.gradebook.tree import CourseTree
from grader.pages import template
from grader.report import summary
from grader.report.answers import compare_class, side_by_side
from grader.report.export import Export
from grader.report.similarity import MIN_TOKENS, Similarities

OPENED = 3  # pairs of similar answers whose code is unfolded from the start

Results = dict[str, Any]


def write_report(out: Path, results: Results, exports: Sequence[Export] = ()) -> Path:
    """Write ``report.html`` into the out folder of ``grade``."""
    tree = CourseTree(out, results["assignment"])
    title = chapter_title(read_json(tree.release), results["assignment"])
    links = {student["student"]: _links(tree, student["student"]) for student in results["students"]}
    path = out / "report.html"
    write_atomic(path, page(results, title, compare_class(tree, results), links, exports))
    return path


def page(
    results: Results,
    title: str,
    similar: Sequence[tuple[str, Similarities]] = (),
    links: dict[str, list[tuple[str, str, str]]] | None = None,
    exports: Sequence[Export] = (),
) -> str:
    """The report as HTML text.

    Args:
        title: of the chapter.
        similar: for each question its title and the answers that are alike.
        links: for each student (address, Chinese, English) of pages about them.
    """
    script = template("sort.js.j2").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return template("report.html.j2").render(
        results=results,
        title=title,
        script=Markup(script),
        script_digest=digest,
        averages=summary.averages(results),
        bins=summary.distribution(results),
        questions=summary.question_summaries(results),
        behaviours=summary.behaviour_summaries(results),
        statuses=summary.by_status(results),
        late=[student["student"] for student in results["students"] if student["late"]],
        flagged=[student for student in results["students"] if student["flags"]],
        similar=similar,
        pairs=sum(len(found.pairs) for _, found in similar),
        min_tokens=MIN_TOKENS,
        opened=OPENED,
        links=links or {},
        exports=exports,
        student_status=STUDENT_STATUS,
        behaviour_status=BEHAVIOUR_STATUS,
        side_by_side=side_by_side,
        number=_number,
    )


def _links(tree: CourseTree, student: str) -> list[tuple[str, str, str]]:
    feedback = tree.root / "feedback" / student / f"{tree.assignment}.html"
    pages = ((feedback, "反馈", "feedback"), (tree.autograded(student), "笔记本", "notebook"))
    return [
        (quote(path.relative_to(tree.root).as_posix()), chinese, english)
        for path, chinese, english in pages
        if path.is_file()
    ]


def _number(value: float | None) -> str:
    """A score with at most one decimal; a dash for none."""
    return "–" if value is None else f"{round(value, 1):g}"
