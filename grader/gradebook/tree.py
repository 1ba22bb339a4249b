"""nbgrader's course tree: where each file of an out folder lies, and the assignment's entry in the gradebook."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.preprocessors import ComputeChecksums, SaveCells

from grader.files import write_atomic
from grader.gradebook.engine import transaction
from grader.gradebook.overrides import Overrides
from grader.model import Notebook
from grader.structure import nbgrader_metadata

CONFIG = '''\
"""Formgrader and `nbgrader autograde` on this folder (written by `python -m grader grade`).

    python -m grader lab HERE       # in the environment in which the class was graded
    python -m grader results HERE   # after changing a score: writes the tables and pages again
"""
import sys
from pathlib import Path

sys.path.insert(0, {code!r})

from grader.gradebook.config import configure

configure(get_config(), Path(__file__).resolve().parent)
'''


@dataclass(frozen=True)
class CourseTree:
    """Paths of one assignment's nbgrader course tree. The notebook in it is named like the assignment."""

    root: Path
    assignment: str

    @property
    def db_url(self) -> str:
        return f"sqlite:///{self.root / 'gradebook.db'}"

    @property
    def source(self) -> Path:
        return self.root / "source" / self.assignment / f"{self.assignment}.ipynb"

    @property
    def release(self) -> Path:
        return self.root / "release" / self.assignment / f"{self.assignment}.ipynb"

    def submitted(self, student: str) -> Path:
        return self.root / "submitted" / student / self.assignment / f"{self.assignment}.ipynb"

    def autograded(self, student: str) -> Path:
        return self.root / "autograded" / student / self.assignment / f"{self.assignment}.ipynb"

    def gradebook(self) -> Gradebook:
        """An open gradebook; use it as a context manager."""
        return Gradebook(self.db_url)


def register(tree: CourseTree, source: Notebook, release: Notebook, due: datetime | None) -> None:
    """Write source, release and configuration, and make the gradebook hold this edition of the assignment.

    Where cells were added or removed since, nbgrader refuses to change an assignment with submissions. Then the
    instructor's overrides are put aside (:class:`Overrides`), and the assignment is entered anew; every
    submission is booked again after a change of the source anyway.
    """
    code = str(Path(__file__).resolve().parents[2])
    write_atomic(tree.root / "nbgrader_config.py", CONFIG.format(code=code))
    write_notebook(tree.source, source)
    write_notebook(tree.release, release)
    with tree.gradebook() as gradebook:
        if not _same_cells(gradebook, tree, source):
            Overrides(tree.root).put_aside(gradebook, tree.assignment)
            _remove_assignment(gradebook, tree.assignment)
        deadline = due.astimezone(timezone.utc).replace(tzinfo=None) if due else None
        gradebook.update_or_create_assignment(tree.assignment, duedate=deadline)
    resources = {"nbgrader": {"notebook": tree.assignment, "assignment": tree.assignment, "db_url": tree.db_url}}
    notebook = nbformat.from_dict(_stored_edition(source, release))
    notebook, _ = ComputeChecksums().preprocess(notebook, resources)
    with tree.gradebook() as gradebook, transaction(gradebook):
        SaveCells().preprocess(notebook, resources)


def write_notebook(path: Path, notebook: Notebook, *, compact: bool = False) -> None:
    """Write a notebook as nbformat does: sorted keys, one space, readable characters.

    ``compact``: a line for each cell instead, which Python writes ten times as fast.
    """
    if compact:
        others = [f"{json.dumps(key)}: {_line(value)}" for key, value in sorted(notebook.items()) if key != "cells"]
        cells = ",\n".join(map(_line, notebook["cells"]))
        text = '{"cells": [\n' + cells + "\n],\n" + ",\n".join(others) + "}"
    else:
        text = json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True)
    write_atomic(path, text + "\n")


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _stored_edition(source: Notebook, release: Notebook) -> Notebook:
    """What nbgrader's release step saves in the gradebook: stubs, and the tests with their hidden part."""
    sources = {nbgrader_metadata(c).get("grade_id"): c["source"] for c in source["cells"] if nbgrader_metadata(c)}
    stored = copy.deepcopy(release)
    for cell in stored["cells"]:
        block = nbgrader_metadata(cell)
        if block and not block.get("solution"):
            cell["source"] = sources[block["grade_id"]]
    return stored


def _same_cells(gradebook: Gradebook, tree: CourseTree, source: Notebook) -> bool:
    """Whether the gradebook has no submissions, or holds just the cells of ``source`` with their points."""
    try:
        entered = gradebook.find_notebook(tree.assignment, tree.assignment)
    except MissingEntry:
        return True
    if not entered.submissions:
        return True
    blocks = [nbgrader_metadata(cell) for cell in source["cells"] if nbgrader_metadata(cell)]
    return (
        {cell.name for cell in entered.grade_cells} == {b["grade_id"] for b in blocks if b.get("grade")}
        and {cell.name for cell in entered.solution_cells} == {b["grade_id"] for b in blocks if b.get("solution")}
        and {cell.name for cell in entered.task_cells} == {b["grade_id"] for b in blocks if b.get("task")}
        and {cell.name for cell in entered.source_cells} == {b["grade_id"] for b in blocks}
    )


def _remove_assignment(gradebook: Gradebook, name: str) -> None:
    try:
        gradebook.remove_assignment(name)
    except MissingEntry:
        return
