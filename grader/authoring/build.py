"""One master, two editions: `python -m grader build`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat.notebooknode import NotebookNode

from grader.authoring.checks import Finding, check_all, check_folder, refuse
from grader.authoring.executor import code_digest, digest, execute, outputs_digest, reuse_outputs
from grader.authoring.master import parse_master, to_notebook, write_canonical
from grader.authoring.release import load_source, release_notebook
from grader.authoring.settings import ROOT, CourseSettings, course
from grader.authoring.tables import tables
from grader.errors import GraderError
from grader.files import write_atomic
from grader.model import Notebook

CHAPTER = re.compile(r"\d\d_\w+")
# What of a cell's metadata people edit; Jupyter's own (collapsed, scrolled, trusted) is no edit.
EDITED_KEYS = ("nbgrader", "tags", "title", "todo", "step", "stub")
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


@dataclass(frozen=True)
class Chapter:
    """The files of one chapter."""

    name: str
    root: Path

    @property
    def master(self) -> Path:
        return self.root / "solutions" / self.name / f"{self.name}.py"

    @property
    def instructor(self) -> Path:
        return self.root / "solutions" / self.name / f"{self.name}.ipynb"

    @property
    def student(self) -> Path:
        return self.root / "notebooks" / self.name / f"{self.name}.ipynb"


def chapters(root: Path = ROOT) -> list[Chapter]:
    """All chapters that have a master, in their order."""
    folders = sorted(path for path in (root / "solutions").glob("*") if CHAPTER.fullmatch(path.name))
    found = [Chapter(folder.name, root) for folder in folders]
    return [chapter for chapter in found if chapter.master.is_file()]


def choose(names: list[str] | None, root: Path = ROOT) -> list[Chapter]:
    """The chapters of these names (``04_execution_dispatch``, ``04`` or ``4``); all without names.

    Raises:
        GraderError: there is no such chapter.
    """
    known = chapters(root)
    if not names:
        return known
    chosen = []
    for name in names:
        number = name.zfill(2) if name.isdigit() else None
        match = [c for c in known if c.name == name.rstrip("/") or (number and c.name.startswith(number + "_"))]
        if not match:
            listed = ", ".join(chapter.name for chapter in known) or "none has a master yet"
            raise GraderError(name, "no such chapter", f"choose one of: {listed}")
        chosen += match
    return chosen


def build(
    names: list[str] | None = None,
    check_only: bool = False,
    *,
    root: Path = ROOT,
    progress: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Make both editions of the chapters, and the tables of chapters in the READMEs.

    Args:
        names: chapters; all if empty.
        check_only: write nothing and execute nothing.
        progress: is told what is being done.

    Returns:
        The files that were written or, with ``check_only``, that building would change.

    Raises:
        GraderError: a chapter is wrong, a cell fails, or a notebook in solutions/ was edited by hand.
    """
    settings = course(root)
    changed: list[Path] = []
    for chapter in choose(names, root):
        progress(chapter.name)
        changed += _write(_editions(chapter, settings, check_only, progress), check_only)
    return changed + _write(tables(settings), check_only)


def _write(texts: list[tuple[Path, str | None]], check_only: bool) -> list[Path]:
    """Write what differs; returns its paths."""
    changed = [
        (path, text)
        for path, text in texts
        if text is None or not path.is_file() or path.read_bytes() != text.encode("utf-8")
    ]
    if not check_only:
        for path, text in changed:
            write_atomic(path, text)
    return [path for path, _ in changed]


def cell_record(cell: dict[str, Any]) -> str:
    """Hash of what people edit in a cell: its type, source and course metadata."""
    metadata = {key: cell["metadata"][key] for key in EDITED_KEYS if key in cell["metadata"]}
    return digest([cell["cell_type"], cell["source"], metadata])[:12]


def edited_cells(built: Notebook) -> list[str]:
    """Ids of cells that were changed, added, moved or removed by hand since the build wrote the notebook."""
    record = built["metadata"].get("course", {}).get("build", {}).get("cells", {})
    now = {cell.get("id", f"cell number {i + 1}"): cell_record(cell) for i, cell in enumerate(built["cells"])}
    changed = [cell for cell in now if record.get(cell) != now[cell]]
    changed += [cell for cell in record if cell not in now]
    kept = [cell for cell in now if cell in record]
    # JSON objects are sorted when written, so the order is recorded for itself.
    order = built["metadata"].get("course", {}).get("build", {}).get("order")
    if not changed and order != digest(kept):
        changed = ["order"]
    return changed


def _editions(
    chapter: Chapter, settings: CourseSettings, check_only: bool, progress: Callable[[str], None]
) -> list[tuple[Path, str | None]]:
    """(path, text) of the two editions; None where only executing could tell the text."""
    master = parse_master(chapter.master)
    notebook = to_notebook(master, settings)
    reused = _reuse(chapter, notebook)
    if check_only and not reused:
        refuse(chapter.master.name, check_all(notebook, chapter.name, settings=settings, run=False))
        return [(chapter.instructor, None), (chapter.student, _student(chapter, notebook))]
    refuse(chapter.master.name, check_all(notebook, chapter.name, settings=settings, run=not reused))
    if not reused:
        progress(f"{chapter.name}: executing the instructor's edition")
        execute(notebook, chapter.master.name)
        refuse(chapter.master.name, _unstable_outputs(notebook))
    text = _student(chapter, notebook)
    notebook.metadata["course"]["build"] = _record(notebook)
    return [(chapter.instructor, write_canonical(notebook)), (chapter.student, text)]


def _student(chapter: Chapter, notebook: NotebookNode) -> str:
    refuse(str(chapter.student.parent), check_folder(chapter.student.parent, chapter.name))
    return write_canonical(release_notebook(notebook, chapter.name))


def _record(notebook: NotebookNode) -> dict[str, Any]:
    """What a later build needs to know: which code made these outputs, and what each cell was."""
    return {
        "cells": {cell.id: cell_record(cell) for cell in notebook.cells},
        "code": code_digest(notebook),
        "order": digest([cell.id for cell in notebook.cells]),
        "outputs": outputs_digest(notebook),
    }


def _reuse(chapter: Chapter, notebook: NotebookNode) -> bool:
    """Take over the outputs of the last build where they still belong to the code.

    Raises:
        GraderError: the notebook in solutions/ was edited by hand; building would lose that.
    """
    if not chapter.instructor.is_file():
        return False
    built = load_source(chapter.instructor)
    relative = chapter.instructor.relative_to(chapter.root)
    if "build" not in built.metadata.get("course", {}):
        raise GraderError(str(relative), "it was not written by the build", "move it away, then build again")
    edited = edited_cells(built)
    fresh = {cell.id: cell_record(cell) for cell in notebook.cells}
    # What the master says too was imported; the notebook only waits to be written again.
    now = {cell.id: cell_record(cell) for cell in built.cells if "id" in cell}
    same = now == fresh and list(now) == list(fresh)
    if edited and not same:
        raise GraderError(str(relative), f"it was edited by hand ({', '.join(edited[:5])})",
                          f"take the edits into the master: python -m grader import {relative}")  # fmt: skip
    return reuse_outputs(notebook, built)


def _unstable_outputs(notebook: NotebookNode) -> list[Finding]:
    """Outputs that show a memory address: they differ at every run, and nbval compares strictly."""
    findings = []
    for cell in notebook.cells:
        if cell.cell_type != "code" or {"nbval-ignore-output", "nbval-skip"} & set(cell.metadata.get("tags", [])):
            continue
        for output in cell.outputs:
            text = str(output.get("text") or output.get("data", {}).get("text/plain", ""))
            if ADDRESS.search(text):
                cause = f"its output shows a memory address: {text.strip()[:60]!r}"
                findings.append(Finding(cell.id, cause, "assign the value, or end the line with a semicolon"))
                break
    return findings
