"""What every chapter has to show: ``ChapterTests``, and helpers for what is special to one chapter.

``run_notebook`` executes a chapter alone in an empty folder; mutants run its graded cells in process with the mutation
framework.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import torch

from grader.authoring.executor import execute_in
from grader.authoring.master import read_master
from grader.authoring.release import release_notebook
from grader.model import Notebook
from grader.tests.mutants import framework

ROOT = framework.ROOT
FORM = (
    "的类型应是",
    "的类型不对",
    "结果的样子不对",
    "的形状与 dtype",
)  # how a message says that only type or shape is off


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


@cache
def report_of(chapter: framework.Chapter, mutant: framework.Mutant) -> framework.Report:
    """The grading of one mutant; each is graded once, whatever is asked about it."""
    return chapter.grade(mutant)


def lost(report: framework.Report) -> list[framework.Outcome]:
    """The outcomes of the cells that gave less than their points."""
    return [outcome for outcome in report.outcomes if outcome.grade_id in report.lost]


class ChapterTests:
    """The tests that every chapter passes. A chapter's test file derives ``TestChapter`` from it::

    class TestChapter(chapter_checks.ChapterTests):
        name = "02_operator_fusion"
    """

    name: str

    @property
    def chapter(self) -> framework.Chapter:
        return framework.load(self.name)

    @property
    def module(self) -> ModuleType:
        return framework.mutants_of(self.name)

    @property
    def rules(self) -> framework.Rules:
        return getattr(self.module, "RULES", framework.Rules())

    @pytest.fixture(autouse=True)
    def one_thread(self) -> Iterator[None]:
        """As in the sandbox; with more, tiny tensors spend their time waiting for the other thread."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)

    def test_the_reference_earns_all_points(self) -> None:
        """100 of 100, and all that the student's edition has to run."""
        report = self.chapter.grade()
        assert not report.lost
        assert report.score == sum(cell.points for cell in self.chapter.tests) == 100
        assert not self.chapter.grade(hidden_tests=False).lost

    @pytest.mark.parametrize("unfilled", [{1}, {2}, {3}, {1, 2}, {2, 3}, {1, 2, 3}], ids=str)
    def test_an_unfilled_todo_earns_nothing_and_is_named(self, unfilled: set[int]) -> None:
        """And costs no other TODO, but for cells that go through the student's own earlier TODO."""
        report = self.chapter.grade(unfilled=unfilled)
        for cell in self.chapter.tests:
            outcome = report[cell.grade_id]
            sources = [todo for todo, cells in self.rules.borrowed.items() if cell.grade_id in cells]
            missing = unfilled & {cell.todo, *sources}
            if missing:
                assert (outcome.score, outcome.error) == (0, "NotImplementedError"), outcome
                assert outcome.message.startswith(f"请先完成 TODO {min(missing)}"), outcome
            else:
                assert outcome.score == cell.points, outcome

    def test_each_mistake_is_caught_by_the_test_that_names_it(self) -> None:
        """As a wrong answer, with what to reread; other TODOs keep their points."""
        names = [mutant.name for mutant in (*self.module.MUTANTS, *self.module.VARIANTS)]
        assert len(names) == len(set(names))
        found = [f"{mutant.name}: {flaw}" for mutant in self.module.MUTANTS for flaw in self._flaws(mutant)]
        assert not found, "\n".join(found)
        # In the same test, so that one process grades the mutants, once:
        self.check_most_are_seen()
        self.check_few_fall_by_form()
        self.check_mistakes()

    def check_most_are_seen(self) -> None:
        """At least 25 mutants, and at least 80 % of them lose points in a visible test."""
        unseen = [mutant.name for mutant in self.module.MUTANTS if not self._seen(mutant)]
        assert len(self.module.MUTANTS) >= 25
        assert len(unseen) <= 0.2 * len(self.module.MUTANTS), f"only hidden tests catch {unseen}"

    def check_few_fall_by_form(self) -> None:
        """At most five, by type and shape; names that start with ``own_`` add to a list that others made."""
        counted = [mutant for mutant in self.module.MUTANTS if not mutant.name.startswith("own_")]
        by_form = [mutant.name for mutant in counted if all(map(self._is_form, lost(report_of(self.chapter, mutant))))]
        assert len(by_form) <= 5, by_form

    def check_mistakes(self) -> None:
        """More that the gradings of the mutants have to show (``report_of``)."""

    def test_other_styles_keep_all_points(self) -> None:
        costs = {variant.name: report_of(self.chapter, variant).lost for variant in self.module.VARIANTS}
        assert costs and not any(costs.values()), costs

    def test_runs_alone_unfilled(self, tmp_path: Path) -> None:
        """The student's edition in an empty folder: its only errors are the reminders, and its figure is there."""
        done = run_notebook(tolerant(student(self.name)), tmp_path)
        found = errors(done)
        assert {kind for kind, _ in found} == {"NotImplementedError"}
        assert {message[:12] for _, message in found} == {f"请先完成 TODO {number}：" for number in (1, 2, 3)}
        assert has_figure(done)

    def test_runs_alone_filled_and_writes_nothing(self, tmp_path: Path) -> None:
        """In an empty folder: the summary's ✅, a figure, and no file, since nothing was measured."""
        done = run_notebook(master(self.name), tmp_path)
        assert "✅" in text(done, "summary")
        assert "dry_run" in text(done, "experiment")
        assert has_figure(done)
        assert not (tmp_path / "benchmarks").exists()
        self.check_filled(done)

    def check_filled(self, done: Notebook) -> None:
        """More that the outputs of the filled notebook have to show."""

    def _flaws(self, mutant: framework.Mutant) -> Iterator[str]:
        report, todo = report_of(self.chapter, mutant), self.chapter.cell(mutant.caught_by).todo
        if mutant.caught_by not in report.lost:
            yield f"keeps the points of {mutant.caught_by}, loses {sorted(report.lost)}"
            return
        for outcome in lost(report):
            if "请先完成" in outcome.message or outcome.error == "NotImplementedError":
                yield f"{outcome.grade_id}: a wrong answer is not an unfilled one"
            if outcome.error != "AssertionError" and self.rules.only_assertions:
                yield f"{outcome.grade_id}: the student would see a bare {outcome.error}"
            if outcome.error == "AssertionError" and "重读" not in outcome.message:
                yield f"{outcome.grade_id}: the message names no step to reread"
            elsewhere = self.chapter.cell(outcome.grade_id).todo != todo
            if elsewhere and outcome.grade_id not in self.rules.borrowed.get(todo or 0, ()):
                yield f"costs another TODO: {outcome.grade_id}"
        named = report[mutant.caught_by]
        if named.error == "AssertionError" and not mutant.caught_by.endswith("_pure"):
            for part in self.rules.message_parts:
                if part not in named.message:
                    yield f"no {part!r} in {named.message!r}"

    def _seen(self, mutant: framework.Mutant) -> bool:
        """Whether the student's edition shows the mistake. Where a cell without hidden lines does, no more is run."""
        plain = {cell.grade_id for cell in self.chapter.tests if framework.HIDDEN[0] not in cell.source}
        caught = report_of(self.chapter, mutant).lost & plain
        return bool(caught or self.chapter.grade(mutant, hidden_tests=False).lost)

    def _is_form(self, outcome: framework.Outcome) -> bool:
        first = outcome.message.partition("\n")[0]
        return outcome.grade_id in self.rules.form_cells or any(phrase in first for phrase in FORM)


def run_for_real(name: str, folder: Path, file: str, schema: str, **settings: Any) -> tuple[dict[str, Any], Notebook]:
    """Run a filled notebook with real_cpu: its file is valid, and the plot draws it in place of the sample.

    Args:
        file: name of the result that it must write.
        settings: what makes the run smaller.

    Returns:
        the file's content and the executed notebook.
    """
    done = run_notebook(master(name), folder, RUN_MODE="real_cpu", **settings)
    report = load_json(folder / "benchmarks/results" / file)
    validate(report, schema)
    assert "样例" not in text(done, "plot")
    assert has_figure(done)
    return report, done


def imports(chapter: framework.Chapter) -> set[str]:
    """The modules that the graded part of a chapter imports, parsed as Python 3.10."""
    nodes = [node for cell in chapter.cells for node in ast.walk(ast.parse(cell.source, feature_version=(3, 10)))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def plot_names(name: str, *cells: str) -> dict[str, Any]:
    """What the plot cells of a chapter define, without the lines that read a file and draw.

    Args:
        cells: ids of the cells, in their order.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names: dict[str, Any] = {"plt": plt, "math": math}
    for cell in cells:
        exec(cell_source(name, cell).partition("\npath, report = ")[0], names)
    return names


def check_words_are_english(figure: Any) -> None:
    """Titles and labels are ASCII: no font of the machine has to have Chinese."""
    words = [axis.get_title() + axis.get_xlabel() + axis.get_ylabel() for axis in figure.axes]
    assert "".join(words).isascii()


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
