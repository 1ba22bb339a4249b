"""What a release check found, and helpers that all checks share."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from grader.errors import GraderError
from grader.model import Notebook

Cell = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """One reason to refuse a release.

    Attributes:
        cell: grade_id, else cell id, else the cell's number; empty where it concerns the whole notebook.
        cause: what is wrong, in plain words.
        remedy: what the author can do.
    """

    cell: str
    cause: str
    remedy: str

    def __str__(self) -> str:
        place = f"cell {self.cell}: " if self.cell else ""
        return f"{place}{self.cause} → {self.remedy}"


def refuse(name: str, findings: list[Finding]) -> None:
    """Raise one GraderError that lists every finding; return if there is none."""
    if not findings:
        return
    if len(findings) == 1:
        finding = findings[0]
        subject = f"{name}, cell {finding.cell}" if finding.cell else name
        raise GraderError(subject, finding.cause, finding.remedy)
    listed = "".join(f"\n  - {finding}" for finding in findings)
    raise GraderError(name, f"the release checks found {len(findings)} problems:{listed}\n", "correct these cells")


def nbgrader_of(cell: Cell) -> dict[str, Any]:
    """The cell's nbgrader block, or an empty one."""
    block = cell["metadata"].get("nbgrader")
    return block if isinstance(block, dict) else {}


def label(notebook: Notebook, index: int) -> str:
    """How a finding names a cell."""
    cell = notebook["cells"][index]
    return str(nbgrader_of(cell).get("grade_id") or cell.get("id") or f"number {index + 1}")


def tags(cell: Cell) -> list[str]:
    """The cell's tags."""
    return list(cell["metadata"].get("tags", []))


def is_autograded(cell: Cell) -> bool:
    """A code cell whose points come from running it (a solution cell with points is graded by hand)."""
    block = nbgrader_of(cell)
    return cell["cell_type"] == "code" and bool(block.get("grade")) and not block.get("solution")


def is_python(notebook: Notebook) -> bool:
    """Whether the notebook's language is Python (also where it doesn't say)."""
    return notebook["metadata"].get("kernelspec", {}).get("language", "python") == "python"


def is_chapter(notebook: Notebook) -> bool:
    """Whether this is a chapter of the course, for which the chapter format binds too."""
    return bool(notebook["metadata"].get("course", {}).get("chapter"))


def python_source(source: str) -> str:
    """The cell's source with IPython's magics and shell lines turned into calls."""
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell(source)


def parse(source: str) -> ast.Module | None:
    """The syntax tree of a cell, or None where it is no valid Python."""
    try:
        return ast.parse(python_source(source))
    except (SyntaxError, ValueError):
        return None
