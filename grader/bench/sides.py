"""The two sides of the comparison, and the floor under them: each is a command that is measured from outside."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from grader.bench.classes import Class
from grader.bench.meter import Figures, measure
from grader.grade.sources import ROOT
from grader.gradebook.engine import shared_session
from grader.gradebook.scores import read_grades
from grader.gradebook.tree import CourseTree, register, write_notebook

Scores = dict[str, float | None]


@dataclass(frozen=True)
class Run:
    """One measured run over a class; scores by student."""

    figures: Figures
    scores: Scores


def stock(course: Class, size: int, folder: Path, *, execute: bool = True) -> Run:
    """Stock ``nbgrader autograde``; without ``execute`` its bookkeeping alone."""
    shutil.rmtree(folder, ignore_errors=True)
    tree = CourseTree(folder, course.assignment)
    with shared_session():
        register(tree, course.source, course.release, None)
    (folder / "nbgrader_config.py").unlink()  # the grader's own: this side is stock
    course.write(folder / "submitted", size)
    command = [sys.executable, "-m", "nbgrader", "autograde", course.assignment]
    command += [f"--CourseDirectory.root={folder}", f"--CourseDirectory.db_url={tree.db_url}"]
    figures = measure(
        command if execute else [*command, "--no-execute"], cwd=folder, env=environment(folder), log=folder / "log.txt"
    )
    with shared_session():
        grades = read_grades(tree)
    return Run(figures, {name: sum(cell.score or 0.0 for cell in g.cells.values()) for name, g in grades.items()})


def ours(course: Class, size: int, folder: Path, *, workers: int) -> Run:
    """`python -m grader grade`, as a teacher calls it.

    Raises:
        RuntimeError: a submission wasn't executed in the sandbox.
    """
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / f"{course.assignment}.ipynb"
    write_notebook(source, course.source)
    submissions = course.write(folder / "class", size)
    out = folder / "out"
    command = [sys.executable, "-m", "grader", "grade", str(submissions), "--assignment", course.assignment]
    command += ["--source", str(source), "--out", str(out), "--workers", str(workers)]
    figures = measure(command, cwd=ROOT, env=environment(folder), log=folder / "log.txt")
    results = json.loads((out / "results.json").read_text("utf-8"))
    if results["sandbox"] != "bwrap":
        raise RuntimeError("the class was not graded in the sandbox")
    return Run(figures, {s["student"]: s["score"] for s in results["students"]})


def cells_alone(course: Class, size: int, folder: Path) -> Figures:
    """All cells and tests of a class in one Python that imports the libraries once: no sandbox, no notebook."""
    shutil.rmtree(folder, ignore_errors=True)
    submissions = course.write(folder / "class", size)
    command = [sys.executable, "-m", "grader.bench.cells", str(submissions)]
    return measure(command, cwd=ROOT, env=environment(folder), log=folder / "log.txt")


def environment(home: Path) -> dict[str, str]:
    """A user without settings of his own, and this Python's programs (nbgrader calls alembic by name)."""
    return {
        **{name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ},
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
    }
