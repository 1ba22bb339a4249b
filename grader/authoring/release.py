"""nbgrader's own release step: the student's edition of an instructor's notebook.

The preprocessors are nbgrader's default list with one entry replaced (the stub of a TODO says its number), one put
first (instructor-only cells) and one last (which release it is). They are called directly: the same bytes as
``nbgrader generate_assignment`` in a fraction of its time, since no application starts and no database is written.
"""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbformat.notebooknode import NotebookNode
from nbgrader.converters import GenerateAssignment
from nbgrader.preprocessors import ClearSolutions, InstantiateTests, NbGraderPreprocessor, SaveCells

from grader.authoring.executor import digest
from grader.authoring.master import read_master, write_canonical
from grader.errors import GraderError
from grader.files import write_atomic
from grader.model import Notebook

INSTRUCTOR_ONLY = "instructor-only"


class RemoveInstructorCells(NbGraderPreprocessor):
    """Removes cells tagged ``instructor-only`` and the build's own record."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        nb.cells = [cell for cell in nb.cells if INSTRUCTOR_ONLY not in cell.metadata.get("tags", [])]
        nb.metadata.get("course", {}).pop("build", None)
        return nb, resources


class ClearSolutionsPerTodo(ClearSolutions):
    """nbgrader's ClearSolutions; a cell with ``stub`` in its metadata raises that message, others the stock stub."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, cell_index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        stub = cell.metadata.pop("stub", None)
        if cell.cell_type != "code" or not isinstance(stub, str):
            return super().preprocess_cell(cell, resources, cell_index)
        stock = self.code_stub
        self.code_stub = {**stock, "python": f"# YOUR CODE HERE\nraise NotImplementedError({stub!r})"}
        try:
            return super().preprocess_cell(cell, resources, cell_index)
        finally:
            self.code_stub = stock


class StampRelease(NbGraderPreprocessor):
    """Writes into a chapter's notebook which release it is: a digest of its cells, beside the course's version."""

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        if "course" in nb.metadata:
            nb.metadata.course["release"] = digest([[c.id, c.source, c.metadata.get("nbgrader")] for c in nb.cells])
        return nb, resources


def release_preprocessors() -> list[type[NbGraderPreprocessor]]:
    """nbgrader's default list for ``c.GenerateAssignment.preprocessors``, with our three classes.

    Made from the default, never written out: a list by hand that omits ClearHiddenTests leaks every hidden test.
    """
    default = GenerateAssignment.class_traits()["preprocessors"].default()
    replaced = [ClearSolutionsPerTodo if entry is ClearSolutions else entry for entry in default]
    return [RemoveInstructorCells, *replaced, StampRelease]


def release_notebook(source_nb: Notebook, name: str) -> NotebookNode:
    """What nbgrader's release step makes of an instructor's notebook. The argument is not changed.

    Args:
        source_nb: an instructor's notebook with nbgrader metadata.
        name: the notebook's name without .ipynb, for messages.

    Raises:
        GraderError: nbgrader refuses the notebook.
    """
    notebook = nbformat.from_dict(copy.deepcopy(dict(source_nb)))
    if any("AUTOTEST" in cell.source for cell in notebook.cells if cell.cell_type == "code"):
        raise GraderError(f"{name}.ipynb", "it uses nbgrader's AUTOTEST, which draws its tests anew at each release",
                          "write the tests out with assert")  # fmt: skip
    resources: dict[str, Any] = {"unique_key": name, "nbgrader": {"notebook": name}}
    for preprocessor in release_preprocessors():
        # SaveCells only copies cells into a gradebook; InstantiateTests only acts on AUTOTEST.
        if preprocessor in (SaveCells, InstantiateTests):
            continue
        instance = preprocessor()
        instance.log = _silent_log()
        try:
            notebook, resources = instance.preprocess(notebook, resources)
        except Exception as error:  # nbgrader and jsonschema raise many kinds, all about the notebook
            raise GraderError(f"{name}.ipynb", f"nbgrader's release step refuses it: {_first_line(error)}",
                              "correct the cell's nbgrader metadata or markers") from error  # fmt: skip
    return notebook


def load_source(path: Path) -> NotebookNode:
    """An instructor's notebook from an .ipynb file or from a master (.py).

    Cells without an id (nbformat below 4.5 has none) keep it so; where 4.5 demands one it is made from the content,
    so that two runs give the same.

    Raises:
        GraderError: no such file, or it is no notebook.
    """
    path = Path(path)
    if path.suffix == ".py":
        return read_master(path)
    subject = str(path)
    try:
        content = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise GraderError(subject, f"cannot be read ({error.strerror})", "give the path of a notebook") from error
    except ValueError as error:
        raise GraderError(subject, "is no notebook (no JSON)", "save it from Jupyter as .ipynb") from error
    if not isinstance(content, dict) or "nbformat" not in content:
        raise GraderError(subject, "is no notebook (JSON, but without nbformat)", "save it from Jupyter as .ipynb")
    try:
        if content["nbformat"] == 4 and content.get("nbformat_minor", 0) >= 5:
            _repair_ids(content["cells"])
        return nbformat.reads(json.dumps(content), as_version=4)
    except Exception as error:  # nbformat raises many kinds
        raise GraderError(subject, f"is no valid notebook: {_first_line(error)}",
                          "open it in Jupyter and save it again") from error  # fmt: skip


def release(source: Path, out: Path, *, allow_findings: bool = False, force: bool = False) -> Path:
    """Release one instructor's notebook: write ``out/<stem>.ipynb``, the notebook only.

    Args:
        source: the instructor's .ipynb or a master .py.
        out: a folder, made if missing.
        allow_findings: skip the release checks (for tests of damaged sources).
        force: replace a different notebook that lies there.

    Raises:
        GraderError: a release check refuses the source, or a different file is there.
    """
    from grader.authoring.checks import check_all, refuse

    source, out = Path(source), Path(out)
    notebook = load_source(source)
    name = source.stem
    target = out / f"{name}.ipynb"
    if target.exists() and target.resolve() == source.resolve():
        raise GraderError(str(target), "the release would overwrite its own source", "choose another folder with --out")
    if not allow_findings:
        refuse(source.name, check_all(notebook, name))
    text = write_canonical(release_notebook(notebook, name))
    try:
        if target.exists() and target.read_text("utf-8") != text and not force:
            raise GraderError(str(target), "a different notebook is there", "move it away or add --force")
        write_atomic(target, text)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text file"
        raise GraderError(str(target), f"cannot be written ({reason})", "choose another folder with --out") from error
    return target


def _repair_ids(cells: list[dict[str, Any]]) -> None:
    used: set[str] = set()
    for index, cell in enumerate(cells):
        if not isinstance(cell.get("id"), str) or cell["id"] in used:
            cell["id"] = "cell-" + digest([index, cell.get("source")])
        used.add(cell["id"])


def _silent_log() -> logging.Logger:
    log = logging.getLogger("grader.release")
    log.setLevel(logging.CRITICAL + 1)
    return log


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
