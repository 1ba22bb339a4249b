"""The classes that are graded: chapter 4 as in the sample class, chapter 3 (torch, numpy) with TODOs left out."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path

from grader.grade.pipeline import load_edition
from grader.grade.sources import ROOT
from grader.gradebook.tree import write_notebook
from grader.model import SKIP_TAGS, Notebook
from grader.structure import nbgrader_metadata

SAMPLE = ROOT / "assets" / "sample_class"
# Of the sample class, those that stock nbgrader can grade and fairly: no endless loop, no file that it can't read,
# no notebook whose tests or metadata were lost or edited (stock runs what the student handed in).
FAIR_TO_STOCK = {"04_execution_dispatch": ("陈静", "dai_yu", "fan_li", "hu_bo", "li_na", "lin_yue", "luo_yi")}
CHAPTERS = {"04_execution_dispatch": "no torch", "03_flash_attention": "torch and numpy"}


@dataclass(frozen=True)
class Class:
    """One chapter's notebooks. Cells that neither side needs for a grade (experiments, plots) are left out of all."""

    assignment: str
    source: Notebook
    release: Notebook
    answers: list[Notebook]

    def notebook_of(self, number: int) -> Notebook:
        return self.answers[number % len(self.answers)]

    def write(self, folder: Path, size: int) -> Path:
        """Write ``size`` submissions as nbgrader lays them out; returns their folder."""
        for number in range(size):
            path = folder / f"student{number:03}" / self.assignment / f"{self.assignment}.ipynb"
            write_notebook(path, self.notebook_of(number))
        return folder


def make_class(assignment: str) -> Class:
    """The class of a chapter of :data:`CHAPTERS`."""
    edition = load_edition(assignment, None)
    source, release = _graded_part(edition.source), _graded_part(edition.release)
    if assignment in FAIR_TO_STOCK:
        folders = [SAMPLE / assignment / name for name in FAIR_TO_STOCK[assignment]]
        answers = [_graded_part(_read(next(folder.glob("*.ipynb")))) for folder in folders]
    else:
        ids = [block["grade_id"] for block in map(nbgrader_metadata, source["cells"]) if block.get("solution")]
        answers = [_answered(release, source, set(ids))] + [_answered(release, source, set(ids) - {i}) for i in ids]
    return Class(assignment, source, release, answers)


def _read(path: Path) -> Notebook:
    return json.loads(path.read_text("utf-8"))


def _graded_part(notebook: Notebook) -> Notebook:
    cells = [c for c in notebook["cells"] if not SKIP_TAGS & set(c.get("metadata", {}).get("tags") or ())]
    return {**notebook, "cells": cells}


def _answered(release: Notebook, source: Notebook, solved: set[str]) -> Notebook:
    """The release with some of its solution cells filled in."""
    sources = {block["grade_id"]: c["source"] for c in source["cells"] if (block := nbgrader_metadata(c))}
    filled = copy.deepcopy(release)
    for cell in filled["cells"]:
        grade_id = nbgrader_metadata(cell).get("grade_id")
        if grade_id in solved:
            cell["source"] = sources[grade_id]
    return filled
