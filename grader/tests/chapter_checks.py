"""What every chapter has to show, for the test files of the chapters.

``run_notebook`` executes a chapter alone in an empty folder; ``fast`` checks run its graded cells in process with the
mutation framework.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

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


def check_reference(chapter: framework.Chapter) -> None:
    """The reference earns all 100 points."""
    report = chapter.grade()
    assert not report.lost
    assert report.score == sum(cell.points for cell in chapter.tests) == 100


def check_unfilled(chapter: framework.Chapter, todo: int) -> None:
    """A TODO as released earns nothing and is named, and costs nothing elsewhere."""
    report = chapter.grade(unfilled={todo})
    for cell in chapter.tests:
        outcome = report[cell.grade_id]
        if cell.todo == todo:
            assert (outcome.score, outcome.error) == (0, "NotImplementedError")
            assert f"TODO {todo}" in outcome.message
        else:
            assert outcome.score == cell.points, cell.grade_id


def check_caught(chapter: framework.Chapter, mutant: framework.Mutant) -> None:
    """The named cell catches the mistake, as a wrong answer, and says what to reread; other TODOs keep their points."""
    report = chapter.grade(mutant)
    assert mutant.caught_by in report.lost
    caught = report[mutant.caught_by]
    assert caught.error != "NotImplementedError", "a wrong answer is not an unfilled one"
    assert caught.error != "AssertionError" or "重读" in caught.message, "the message names the step to reread"
    todo = chapter.cell(mutant.caught_by).todo
    assert {chapter.cell(grade_id).todo for grade_id in report.lost} == {todo}


def check_mutants(chapter: framework.Chapter, mutants: tuple[framework.Mutant, ...]) -> None:
    """At least 25 mutants, and at least 80 % of them lose points in a visible test."""
    unseen = [mutant.name for mutant in mutants if not chapter.grade(mutant, hidden_tests=False).lost]
    assert len(mutants) >= 25
    assert len(unseen) <= 0.2 * len(mutants), f"only hidden tests catch {unseen}"


def check_runs_unfilled(name: str, folder: Path) -> None:
    """The student's edition in an empty folder: its only errors are the reminders, and its figure is there."""
    done = run_notebook(tolerant(student(name)), folder)
    found = errors(done)
    assert {kind for kind, _ in found} == {"NotImplementedError"}
    assert {message[:11] for _, message in found} == {f"请先完成 TODO {number}" for number in (1, 2, 3)}
    assert has_figure(done)


def check_runs_filled(name: str, folder: Path) -> None:
    """The filled notebook in an empty folder: the summary's ✅, a figure, and no file, since nothing was measured."""
    done = run_notebook(master(name), folder)
    assert "✅" in text(done, "summary")
    assert "dry_run" in text(done, "experiment")
    assert has_figure(done)
    assert not (folder / "benchmarks").exists()


def cell_source(name: str, cell_id: str) -> str:
    """The source of one cell of a chapter, includes filled in."""
    return next(cell["source"] for cell in master(name)["cells"] if cell["id"] == cell_id)


def validate(value: Any, schema: str) -> None:
    """Raise unless the value is valid against a schema of ``assets/schema``."""
    jsonschema.Draft202012Validator(load_json(f"assets/schema/{schema}.schema.json")).validate(value)


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
