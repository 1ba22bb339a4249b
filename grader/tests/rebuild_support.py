"""What the tests of intake and rebuild share: the two small assignments, their releases, and cell helpers."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearHiddenTests,
    ClearOutput,
    ClearSolutions,
    ComputeChecksums,
    LockCells,
)

from grader.intake import decode_notebook
from grader.rebuild import rebuild

CASES = Path(__file__).parent / "cases"
SUBMISSIONS = CASES / "submissions"
RELU = "def relu_sum(xs):\n    return sum(max(x, 0) for x in xs)\n"
MEAN = "def mean_sq(xs):\n    return sum(x * x for x in xs) / len(xs) if xs else 0.0\n"


def manifest() -> list[dict[str, Any]]:
    return json.loads((SUBMISSIONS / "manifest.json").read_text(encoding="utf-8"))


@cache
def _source(assignment: str) -> str:
    return (CASES / "assignment" / assignment / "ps1.ipynb").read_text(encoding="utf-8")


def source(assignment: str = "ps1"):
    return nbformat.reads(_source(assignment), as_version=4)


def release_of(notebook):
    """The student's edition, by nbgrader's own preprocessors."""
    released = copy.deepcopy(nbformat.from_dict(notebook))
    for step in (LockCells, ClearSolutions, ClearOutput, CheckCellMetadata, ClearHiddenTests, ComputeChecksums):
        released, _ = step().preprocess(released, {})
    return released


@cache
def _release(assignment: str) -> str:
    return nbformat.writes(release_of(source(assignment)))


def release(assignment: str = "ps1"):
    return nbformat.reads(_release(assignment), as_version=4)


def solved():
    """ps1's release with both questions answered."""
    notebook = release()
    cell(notebook, "q1")["source"] = RELU
    cell(notebook, "q2")["source"] = MEAN
    return notebook


def cell(notebook, grade_id: str):
    """The one cell with this grade_id."""
    found = [c for c in notebook["cells"] if (c["metadata"].get("nbgrader") or {}).get("grade_id") == grade_id]
    assert len(found) == 1, f"{grade_id}: {len(found)} cells"
    return found[0]


def code(text: str, **metadata):
    return nbformat.v4.new_code_cell(text, metadata=metadata)


def text(content: str):
    return nbformat.v4.new_markdown_cell(content)


def hand_in(notebook, assignment: str = "ps1"):
    """Through the bytes of a file and back, then rebuilt."""
    decoded = decode_notebook(json.dumps(notebook).encode(), "ps1.ipynb")
    assert decoded.problem is None, decoded.problem
    return rebuild(source(assignment), release(assignment), decoded.notebook)


def own_cells(rebuilt) -> list[str]:
    """Sources of the student's own extra cells, in order."""
    return [c["source"] for c in rebuilt.notebook["cells"] if (c["metadata"].get("grader") or {}).get("origin")]


def run_students_code(rebuilt) -> dict[str, Any]:
    """What the student's cells define, run in order, each cell on its own as a kernel does. Trusted tests only."""
    namespace: dict[str, Any] = {}
    for c in rebuilt.notebook["cells"]:
        meta = c["metadata"].get("nbgrader") or {}
        if c["cell_type"] == "code" and not meta.get("grade"):
            try:
                exec(compile(c["source"], c["id"], "exec"), namespace)
            except Exception:
                continue
    return namespace
