"""Where the instructors' notebooks of this tree lie. Imports nothing heavy: workers are told before the rest loads."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def known_assignments() -> list[str]:
    """The chapters that this tree holds a source of."""
    paths = [*ROOT.glob("solutions/*/*.ipynb"), *ROOT.glob("solutions/*/*.py")]
    return sorted({path.stem for path in paths if path.stem == path.parent.name})


def chapter_source(assignment: str) -> Path | None:
    """The instructor's notebook of a chapter: the built one, else its master; None where there is neither."""
    folder = ROOT / "solutions" / assignment
    paths = (folder / f"{assignment}{suffix}" for suffix in (".ipynb", ".py"))
    return next(filter(Path.is_file, paths), None)
