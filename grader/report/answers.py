"""Students' answers of a graded class, compared question by question and laid side by side."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from grader.files import read_json
from grader.gradebook.tree import CourseTree
from grader.model import Notebook
from grader.report.similarity import Answer, Similarities, similar_answers
from grader.report.summary import shortened
from grader.report.tokens import line_keys
from grader.structure import nbgrader_metadata, questions_of

MAX_LINES = 200  # of an answer that are shown
MAX_LINE = 300  # characters
MAX_WORDS = 80  # of a line that is compared word by word

Piece = tuple[str, bool]  # text, and whether the other side has something else there


@dataclass(frozen=True)
class Line:
    """One row of two answers side by side; a side is None where it has no such line."""

    left: list[Piece] | None
    right: list[Piece] | None
    same: bool  # the two do the same, whatever their names are


def compare_class(tree: CourseTree, results: dict[str, Any]) -> list[tuple[str, Similarities]]:
    """For each question its title and the pairs of answers that stand out.

    Raises nothing: a notebook that is missing from the tree has no answers.
    """
    source, release = read_json(tree.source), read_json(tree.release)
    if source is None or release is None:
        return []
    questions = questions_of(source)
    wanted = {name for question in questions for name in question.solutions}
    given = "\n".join(cell["source"] for cell in release["cells"] if cell["cell_type"] == "code")
    reference = _solutions(source, wanted)
    codes = {
        student["student"]: _solutions(read_json(tree.submitted(student["student"])), wanted)
        for student in results["students"]
    }
    compared = []
    for number, question in enumerate(questions):
        if not any(name in reference for name in question.solutions):
            continue
        answers = []
        for student in results["students"]:
            code = _joined(codes[student["student"]], question.solutions)
            if code.strip():
                answers.append(Answer(student["student"], code, _mistakes(student["questions"][number])))
        compared.append((question.title, similar_answers(answers, given, _joined(reference, question.solutions))))
    return compared


def side_by_side(left: str, right: str) -> list[Line]:
    """Two answers, line by line; blank lines are left out."""
    lefts, rights = _lines(left), _lines(right)
    matcher = SequenceMatcher(None, [key for key, _ in lefts], [key for key, _ in rights], autojunk=False)
    rows: list[Line] = []
    for what, a, b, c, d in matcher.get_opcodes():
        if what == "equal":
            rows += [_pair(lefts[a + n][1], rights[c + n][1]) for n in range(b - a)]
            continue
        for n in range(max(b - a, d - c)):
            one = [(lefts[a + n][1], False)] if a + n < b else None
            other = [(rights[c + n][1], False)] if c + n < d else None
            rows.append(Line(one, other, same=False))
    return rows


def _pair(left: str, right: str) -> Line:
    """Two lines that do the same, with the words marked in which they differ."""
    lefts, rights = _words(left), _words(right)
    if max(len(lefts), len(rights)) > MAX_WORDS:  # comparing takes the square of their number
        return Line([(left, left != right)], [(right, left != right)], same=True)
    one: list[Piece] = []
    other: list[Piece] = []
    for what, a, b, c, d in SequenceMatcher(None, lefts, rights, autojunk=False).get_opcodes():
        changed = what != "equal"
        one += [("".join(lefts[a:b]), changed)] if b > a else []
        other += [("".join(rights[c:d]), changed)] if d > c else []
    return Line(one, other, same=True)


def _lines(code: str) -> list[tuple[str, str]]:
    """What each line does, and the line. A comment stands for itself."""
    texts = code.expandtabs(4).split("\n")
    keyed = [(key or text.strip(), text[:MAX_LINE]) for key, text in zip(line_keys(code), texts, strict=True)]
    return [(key, text) for key, text in keyed if text.strip()][:MAX_LINES]


def _words(line: str) -> list[str]:
    return re.findall(r"\w+|\s+|[^\w\s]", line)


def _solutions(notebook: Notebook | None, wanted: Collection[str]) -> dict[str, str]:
    """Code of the solution cells by grade_id."""
    found = {}
    for cell in (notebook or {}).get("cells", []):
        name = nbgrader_metadata(cell).get("grade_id")
        if name in wanted and cell["cell_type"] == "code":
            text = cell["source"]
            found[name] = text if isinstance(text, str) else "".join(text)
    return found


def _joined(codes: dict[str, str], names: list[str]) -> str:
    return "\n".join(codes[name] for name in names if name in codes)


def _mistakes(question: dict[str, Any]) -> frozenset[str]:
    """What the visible tests said, which tells the wrong value; a hidden test says the same to everybody."""
    return frozenset(
        shortened(f"{behaviour['title']}: {' '.join(behaviour['message'].split())}")
        for behaviour in question["behaviours"]
        if behaviour["status"] in ("failed", "error") and behaviour["message"] and not behaviour["hidden"]
    )
