"""A small class for the tests of grading: the cases' assignments, and folders of hand-ins."""

from __future__ import annotations

import copy
import json
import os
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbformat

from grader.authoring.release import load_source, release_notebook
from grader.model import Execution, Notebook, TestOutcome

CASES = Path(__file__).parent / "cases"
PS1 = CASES / "assignment" / "ps1" / "ps1.ipynb"
PS2 = CASES / "assignment" / "ps2" / "ps1.ipynb"
CORRECT = {
    "q1": "def relu_sum(xs):\n    return sum(x if x > 0 else 0 for x in xs)",
    "q2": "def mean_sq(xs):\n    return sum(x * x for x in xs) / len(xs) if len(xs) else 0.0",
}


@lru_cache(maxsize=2)
def _source(path: Path) -> str:
    return json.dumps(load_source(path))


def source(path: Path = PS1) -> Notebook:
    """A fresh copy of an assignment's instructor notebook."""
    return json.loads(_source(path))


def release(notebook: Notebook | None = None) -> Notebook:
    """The student's edition of it."""
    return json.loads(json.dumps(release_notebook(notebook or source(), "ps1")))


def filled(answers: dict[str, str], notebook: Notebook | None = None) -> Notebook:
    """The release with these sources in its solution cells."""
    nb = release(notebook)
    for cell in nb["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if grade_id in answers:
            cell["source"] = answers[grade_id]
    return nb


def hand_in(folder: Path, student: str, content: Notebook | bytes, *, at: datetime | None = None) -> Path:
    """Write one student's file into a folder of submissions."""
    path = folder / student / "ps1.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    if at is not None:
        os.utime(path, (at.timestamp(), at.timestamp()))
    return path


def executed(scores: dict[str, float | None], notebook: Notebook | None = None, **message: str) -> Execution:
    """An execution as the sandbox would return it, with these verdicts (None: could not be run)."""
    nb = copy.deepcopy(notebook or source())
    tests = []
    for cell in nb["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], 1
        block = cell["metadata"].get("nbgrader", {})
        if block.get("grade"):
            name, points = block["grade_id"], float(block["points"])
            score = scores.get(name, points)
            status = "not_run" if score is None else "passed" if score == points else "failed"
            tests.append(TestOutcome(name, status, score, points, message.get(name, "")))
            if status != "passed":
                error = nbformat.v4.new_output("error", ename="AssertionError", evalue="", traceback=[])
                cell["outputs"] = [dict(error)]
    return Execution(nb, tuple(tests), "graded", "bwrap")


def student(results: dict[str, Any], name: str) -> dict[str, Any]:
    """One student's entry in results."""
    return next(entry for entry in results["students"] if entry["student"] == name)
