"""The instructor's side of a rebuild: what each cell is, and which edition of its text counts."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from grader.model import SKIP_TAGS, Notebook
from grader.rebuild.code import squeeze, telling_names

INSTRUCTOR_ONLY = "instructor-only"

# Kinds of cells, by what becomes of the student's text:
#   solution  the student's text is used        given  the student's text, else the release's
#   test, locked, skip, text                    always the instructor's text
FROM_STUDENT = frozenset({"solution", "given"})


@dataclass
class Slot:
    """One cell of the rebuilt notebook.

    ``release`` is the text that the student was given; ``source`` the text that goes into the rebuilt
    notebook when the student has none or may not change it. It never holds a reference solution.
    """

    index: int
    kind: str
    cell: dict[str, Any]
    release: str
    source: str
    full: str  # the instructor's own text: tests with their hidden part
    names: frozenset[str] = frozenset()
    points: float | None = None
    taken: list[int] = field(default_factory=list)  # the student's cells that belong here, in their order

    @property
    def grade_id(self) -> str | None:
        return (self.cell["metadata"].get("nbgrader") or {}).get("grade_id")

    @property
    def label(self) -> str:
        """How notes name the cell: its title, its grade_id, or its id."""
        title = self.cell["metadata"].get("title")
        return str(title or self.grade_id or self.cell.get("id") or self.index + 1)

    @property
    def is_code(self) -> bool:
        return self.cell["cell_type"] == "code"


def build_slots(source: Notebook, release: Notebook) -> list[Slot]:
    """The cells that a rebuilt notebook holds, in the instructor's order."""
    finder = _ReleaseFinder(release)
    slots: list[Slot] = []
    for cell in source["cells"]:
        tags = set(cell["metadata"].get("tags") or [])
        if INSTRUCTOR_ONLY in tags:
            continue
        given_out = finder.find(cell)
        if given_out is None and not _nbgrader(cell).get("grade_id"):
            continue  # what was not released may hold a reference solution
        slots.append(_slot(len(slots), cell, given_out, tags))
    _keep_distinct_names(slots)
    return slots


def _slot(index: int, cell: dict[str, Any], given_out: dict[str, Any] | None, tags: set[str]) -> Slot:
    kind = _kind(cell, tags)
    release = given_out["source"] if given_out else ""
    if not given_out and kind not in FROM_STUDENT:
        release = cell["source"]
    text = cell["source"] if kind in ("test", "locked") else release
    new = copy.deepcopy({key: cell[key] for key in ("cell_type", "metadata")})
    new["id"] = cell.get("id") or (given_out or {}).get("id")
    if given_out:
        _merge_metadata(new["metadata"], given_out["metadata"])
    points = _nbgrader(cell).get("points")
    names: frozenset[str] = frozenset()
    if kind == "solution" and cell["cell_type"] == "code":
        names = telling_names(release) or telling_names(cell["source"])
    return Slot(index, kind, new, release, text, cell["source"], names, points)


def _kind(cell: dict[str, Any], tags: set[str]) -> str:
    meta = _nbgrader(cell)
    if meta.get("grade_id") and meta.get("solution"):
        return "solution"
    if meta.get("grade_id") and meta.get("grade"):
        return "test"
    if tags & SKIP_TAGS:
        return "skip"
    if meta.get("grade_id") and (meta.get("locked") or meta.get("task")):
        return "locked"
    return "given" if cell["cell_type"] == "code" else "text"


def _merge_metadata(metadata: dict[str, Any], given_out: dict[str, Any]) -> None:
    """Add what the release step wrote (checksum, cell_type, deletable), never over the instructor's values."""
    for key in ("deletable", "editable"):
        if key in given_out:
            metadata.setdefault(key, given_out[key])
    if "nbgrader" in metadata and isinstance(given_out.get("nbgrader"), dict):
        metadata["nbgrader"] = {**given_out["nbgrader"], **metadata["nbgrader"]}


def _keep_distinct_names(slots: list[Slot]) -> None:
    """A name that several solution cells define can't tell which of them a text belongs to."""
    counts: dict[str, int] = {}
    for slot in slots:
        for name in slot.names:
            counts[name] = counts.get(name, 0) + 1
    for slot in slots:
        slot.names = frozenset(name for name in slot.names if counts[name] == 1)


def _nbgrader(cell: dict[str, Any]) -> dict[str, Any]:
    return cell["metadata"].get("nbgrader") or {}


class _ReleaseFinder:
    """Finds the released edition of an instructor's cell: by grade_id, else id, else text."""

    def __init__(self, release: Notebook) -> None:
        self._by_grade_id: dict[str, dict[str, Any]] = {}
        self._by_id: dict[str, dict[str, Any]] = {}
        self._by_text: dict[str, dict[str, Any]] = {}
        for cell in release["cells"]:
            grade_id = _nbgrader(cell).get("grade_id")
            if grade_id:
                self._by_grade_id.setdefault(grade_id, cell)
                continue
            if cell.get("id"):
                self._by_id.setdefault(cell["id"], cell)
            self._by_text.setdefault(squeeze(cell["source"]), cell)

    def find(self, cell: dict[str, Any]) -> dict[str, Any] | None:
        grade_id = _nbgrader(cell).get("grade_id")
        if grade_id:
            return self._by_grade_id.get(grade_id)
        found = self._by_id.get(cell.get("id", ""))
        return found or self._by_text.get(squeeze(cell["source"]))
