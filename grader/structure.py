"""What an instructor's notebook asks: questions, each with its graded behaviours.

One question per TODO where the cells carry ``metadata.todo``; in any other course one per solution
cell, to which the graded cells behind it belong. Titles come from ``metadata.title``, else the grade_id.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from grader.model import Notebook

# Cells with this tag are removed at release.
INSTRUCTOR_ONLY = "instructor-only"


@dataclass(frozen=True)
class Behaviour:
    """One graded cell. ``manual``: a person gives the points (answers in words, nbgrader's tasks)."""

    grade_id: str
    title: str
    max_score: float
    step: str = ""
    manual: bool = False


@dataclass
class Question:
    """Graded cells that belong to one TODO or solution cell; ``solutions`` are its solution grade_ids."""

    title: str
    solutions: list[str] = field(default_factory=list)
    behaviours: list[Behaviour] = field(default_factory=list)

    @property
    def max_score(self) -> float:
        return sum(behaviour.max_score for behaviour in self.behaviours)


def nbgrader_metadata(cell: dict[str, Any]) -> dict[str, Any]:
    """The cell's nbgrader block; empty where it has none."""
    block = cell.get("metadata", {}).get("nbgrader")
    return block if isinstance(block, dict) and block.get("grade_id") else {}


def is_graded(cell: dict[str, Any]) -> bool:
    """Whether the cell carries points."""
    block = nbgrader_metadata(cell)
    return bool(block.get("grade") or block.get("task"))


def questions_of(notebook: Notebook) -> list[Question]:
    """The questions of an instructor's notebook in its order; those without points are left out."""
    questions: dict[Any, Question] = {}
    current: Any = None
    for cell in notebook["cells"]:
        block = nbgrader_metadata(cell)
        solution = bool(block.get("solution") or block.get("task"))
        if not (solution or block.get("grade")):
            continue
        todo = cell["metadata"].get("todo")
        if todo is not None:
            key = ("todo", todo)
        elif solution or current is None:
            key = ("cell", block["grade_id"])
        else:
            key = current
        question = questions.setdefault(key, Question(_title(cell, key)))
        if solution:
            if not question.solutions:
                question.title = _title(cell, key)
            question.solutions.append(block["grade_id"])
            current = key
        if is_graded(cell):
            question.behaviours.append(_behaviour(cell, manual=solution or cell["cell_type"] != "code"))
    return [question for question in questions.values() if question.behaviours]


def max_score_of(notebook: Notebook) -> float:
    """All points of an instructor's notebook."""
    return sum(question.max_score for question in questions_of(notebook))


def _title(cell: dict[str, Any], key: tuple[str, Any]) -> str:
    title = cell["metadata"].get("title")
    if isinstance(title, str) and title.strip():
        return title.strip()
    return f"TODO {key[1]}" if key[0] == "todo" else nbgrader_metadata(cell)["grade_id"]


def _behaviour(cell: dict[str, Any], *, manual: bool) -> Behaviour:
    metadata, block = cell["metadata"], nbgrader_metadata(cell)
    title = metadata.get("title")
    return Behaviour(
        grade_id=block["grade_id"],
        title=title.strip() if isinstance(title, str) and title.strip() else block["grade_id"],
        max_score=float(block.get("points") or 0),
        step=str(metadata.get("step") or ""),
        manual=manual,
    )


def checksum(cell: dict[str, Any]) -> str:
    """nbgrader's checksum of a cell (``nbgrader.utils.compute_checksum``), without importing nbgrader, which is slow.

    In a release it stands in the metadata: a solution cell that still has it is untouched, a test cell that no
    longer has it was edited.
    """
    block = nbgrader_metadata(cell)
    parts = [cell["source"], cell["cell_type"]]
    parts += [str(bool(block.get(name, False))) for name in ("grade", "solution", "locked")]
    parts.append(block["grade_id"])
    if block.get("grade"):
        parts.append(str(float(block["points"])))
    return hashlib.md5("".join(parts).encode(), usedforsecurity=False).hexdigest()
