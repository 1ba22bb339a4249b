"""How much a notebook looks like the assignment: by content, never by file name."""

from __future__ import annotations

from dataclasses import dataclass

from grader.model import Notebook
from grader.rebuild.code import is_blank, own_names, squeeze, telling_names

_ENOUGH_TEXT = 0.25  # share of the release's cells that stand in the notebook as they are
_SHORT = 15  # characters; shorter cells are found anywhere


@dataclass(frozen=True)
class Fingerprint:
    """What the release is known by."""

    names: frozenset[str]  # that its solution cells define
    grade_ids: frozenset[str]
    texts: frozenset[str]
    chapter: str | None

    @classmethod
    def of(cls, release: Notebook) -> Fingerprint:
        names: set[str] = set()
        grade_ids: set[str] = set()
        texts: set[str] = set()
        for cell in release["cells"]:
            meta = cell["metadata"].get("nbgrader") or {}
            if meta.get("grade_id"):
                grade_ids.add(meta["grade_id"])
            if meta.get("solution") and cell["cell_type"] == "code":
                names |= telling_names(cell["source"])
            if len(squeeze(cell["source"])) >= _SHORT:
                texts.add(squeeze(cell["source"]))
        return cls(frozenset(names), frozenset(grade_ids), frozenset(texts), _chapter(release))

    def likeness(self, notebook: Notebook) -> float:
        """0 for another notebook, else how much of the assignment is there (up to 3)."""
        names: set[str] = set()
        grade_ids: set[str] = set()
        texts: set[str] = set()
        for cell in notebook["cells"]:
            grade_ids.add((cell["metadata"].get("nbgrader") or {}).get("grade_id"))
            texts.add(squeeze(cell["source"]))
            if self.names and not is_blank(cell["source"]) and any(name in cell["source"] for name in self.names):
                names |= own_names(cell["source"]) if cell["cell_type"] == "code" else self.names
        named = _share(self.names, names)
        marked = _share(self.grade_ids, grade_ids)
        same = _share(self.texts, texts)
        chapter = _chapter(notebook)
        if self.chapter and chapter and chapter != self.chapter and same < 0.5:
            return 0.0
        if named or same >= _ENOUGH_TEXT or (marked >= 0.5 and (same > 0 or not self.texts)):
            return named + marked + same + 0.01
        return 0.0


def _share(wanted: frozenset[str], found: set[str]) -> float:
    return len(wanted & found) / len(wanted) if wanted else 0.0


def _chapter(notebook: Notebook) -> str | None:
    course = notebook["metadata"].get("course")
    chapter = course.get("chapter") if isinstance(course, dict) else None
    return str(chapter) if chapter is not None else None
