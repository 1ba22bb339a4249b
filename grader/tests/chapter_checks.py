"""What every chapter has to show, for the test files of the chapters.

``run_notebook`` executes a chapter alone in an empty folder; ``fast`` checks run its graded cells in process with the
mutation framework.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grader.authoring.executor import execute_in
from grader.authoring.master import read_master
from grader.authoring.release import release_notebook
from grader.model import Notebook
from grader.tests.mutants import framework

ROOT = framework.ROOT


def master(name: str) -> Notebook:
    """The instructor's notebook of a chapter, without outputs."""
    return read_master(ROOT / "solutions" / name / f"{name}.py")


def student(name: str) -> Notebook:
    """The notebook that the release step hands to students."""
    return release_notebook(master(name), name)


def run_notebook(notebook: Notebook, folder: Path, **settings: Any) -> Notebook:
    """Execute all cells in ``folder``, which must be empty.

    Args:
        settings: new values for assignments of the settings cell, e.g. ``RUN_MODE="real_cpu"``.

    Raises:
        ValueError: the settings cell has no such assignment.
    """
    assert not list(folder.iterdir()), "the notebook must run alone"
    for name, value in settings.items():
        _set(notebook, name, value)
    return execute_in(notebook, folder, timeout=240)


def outputs(notebook: Notebook, tag: str) -> list[dict[str, Any]]:
    """The outputs of all cells with a tag."""
    cells = [cell for cell in notebook["cells"] if tag in cell["metadata"].get("tags", [])]
    return [output for cell in cells for output in cell.get("outputs", [])]


def text(notebook: Notebook, tag: str) -> str:
    """What all cells with a tag printed."""
    return "".join(output["text"] for output in outputs(notebook, tag) if output["output_type"] == "stream")


def has_figure(notebook: Notebook) -> bool:
    """Whether a cell tagged ``plot`` shows a picture."""
    return any("image/png" in output.get("data", {}) for output in outputs(notebook, "plot"))


def tolerant(notebook: Notebook) -> Notebook:
    """Let a cell raise without stopping the run, as in an unfilled notebook that is read to its end."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["metadata"]["tags"] = sorted({*cell["metadata"].get("tags", []), "raises-exception"})
    return notebook


def errors(notebook: Notebook) -> list[tuple[str, str]]:
    """(class, message) of every error that a cell of an executed notebook raised."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    found = [output for cell in code for output in cell["outputs"] if output["output_type"] == "error"]
    return [(output["ename"], output["evalue"]) for output in found]


def check_mutants(name: str, mutants: tuple[framework.Mutant, ...]) -> None:
    """At least 25 mutants, and at least 80 % of them lose points in a visible test.

    Whether the named cell catches each is for one parametrised test per mutant.
    """
    chapter = framework.load(name)
    visible = [mutant.name for mutant in mutants if chapter.grade(mutant, hidden_tests=False).lost]
    unseen = sorted({mutant.name for mutant in mutants} - set(visible))
    assert len(mutants) >= 25
    assert len(visible) >= 0.8 * len(mutants), f"only hidden tests catch {unseen}"


def load_json(path: str | Path) -> Any:
    """A JSON file, by its path from the root of the repo."""
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def _set(notebook: Notebook, name: str, value: Any) -> None:
    for cell in notebook["cells"]:
        if "settings" in cell["metadata"].get("tags", []):
            lines = cell["source"].split("\n")
            hits = [number for number, line in enumerate(lines) if line.startswith(f"{name} = ")]
            if hits:
                lines[hits[0]] = f"{name} = {value!r}"
                cell["source"] = "\n".join(lines)
                return
    raise ValueError(f"no settings cell assigns {name}")
