"""Runs a chapter's test cells against its reference, its stubs and wrong versions of its solution, fast and in process.

Only for our own code: there is no sandbox here. What a graded cell sees is the same as in real grading: names of
solution cells and locked helper cells come from a student namespace that is built anew for each test, names that test
cells define persist and win.

A chapter's mutants lie in ``grader/tests/mutants/NN_name.py`` as ``MUTANTS`` (wrong, each must lose points in the
graded cell it names) and ``VARIANTS`` (right in another way, each must keep all points), and where the chapter's
messages or tests need it ``RULES``::

    MUTANTS = (
        Mutant("t1_shortest_first", "todo1_longest", "sorts ascending", patch=(("reverse=True", "reverse=False"),)),
        Mutant("t2_other_loop", "todo2_gate", "…", source="def evaluate(…):\\n    …", cell="todo2"),
    )
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import signal
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import jupytext

from grader.model import SKIP_TAGS

ROOT = Path(__file__).resolve().parents[3]
CPU_SECONDS = 5.0  # of one test cell with the cells before it; only endless loops need more

HIDDEN = ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")
SOLUTION = ("### BEGIN SOLUTION", "### END SOLUTION")


class OutOfTime(BaseException):
    """A test cell used up its CPU time (BaseException: no ``except Exception`` in a test may take it)."""


@dataclass(frozen=True)
class Cell:
    """One code cell of the master. ``kind`` is ``given``, ``helper``, ``solution`` or ``test``."""

    kind: str
    source: str
    grade_id: str = ""
    title: str = ""
    points: float = 0.0
    todo: int | None = None
    stub: str = ""


@dataclass(frozen=True)
class Mutant:
    """A wrong (or, as a variant, an equivalent) solution.

    Args:
        name: unique in its chapter.
        caught_by: grade_id of the test cell that names this mistake ("" for a variant).
        what: what is wrong, in words.
        patch: (old text, new text) pairs; each old text occurs exactly once in the chapter's solution cells.
        source, cell: or the whole source of the solution cell with this grade_id, where the algorithm differs.
    """

    name: str
    caught_by: str
    what: str
    patch: tuple[tuple[str, str], ...] = ()
    source: str = ""
    cell: str = ""


@dataclass(frozen=True)
class Rules:
    """What a chapter promises beyond what all chapters do.

    Args:
        only_assertions: a wrong solution never shows the student a bare exception.
        message_parts: the named cell's message has all of these (cells that end in ``_pure`` name the changed input).
        borrowed: by TODO, cells of later TODOs that go through the student's own solution of it.
        form_cells: cells that check nothing but type and shape.
    """

    only_assertions: bool = False
    message_parts: tuple[str, ...] = ()
    borrowed: Mapping[int, frozenset[str]] = field(default_factory=dict)
    form_cells: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Outcome:
    """What one graded cell came to. ``error`` is the class name of what it raised, "" if nothing."""

    grade_id: str
    score: float
    points: float
    error: str = ""
    message: str = ""


@dataclass(frozen=True)
class Report:
    outcomes: tuple[Outcome, ...]

    @property
    def score(self) -> float:
        return sum(outcome.score for outcome in self.outcomes)

    @property
    def lost(self) -> frozenset[str]:
        """grade_ids of the cells that gave less than their points."""
        return frozenset(outcome.grade_id for outcome in self.outcomes if outcome.score < outcome.points)

    def __getitem__(self, grade_id: str) -> Outcome:
        return next(outcome for outcome in self.outcomes if outcome.grade_id == grade_id)


@dataclass(frozen=True)
class Chapter:
    name: str
    cells: tuple[Cell, ...]
    _by_id: dict[str, Cell] = field(init=False, repr=False, compare=False, hash=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._by_id.update({cell.grade_id: cell for cell in self.cells if cell.grade_id})

    @property
    def tests(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.kind == "test")

    @property
    def solutions(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.kind == "solution")

    @property
    def visible_tests(self) -> tuple[Cell, ...]:
        """The test cells of which the student's edition keeps something to run."""
        return tuple(cell for cell in self.tests if _says_something(without(cell.source, HIDDEN, "")))

    def cell(self, grade_id: str) -> Cell:
        return self._by_id[grade_id]

    def answers(self, *names: str) -> dict[str, str]:
        """The sources of the solution cells as a student would write them, without markers.

        Args:
            names: of mutants or variants, each of another cell; the other cells hold the reference.
        """
        reference = {cell.grade_id: cell.source for cell in self.solutions}
        sources = dict(reference)
        for name in names:
            patched = _apply(mutant_of(self.name, name), reference, self.name)
            sources |= {grade_id: patched[grade_id] for grade_id in patched if patched[grade_id] != reference[grade_id]}
        lines = {grade_id: source.splitlines() for grade_id, source in sources.items()}
        return {
            grade_id: "\n".join(line for line in source if line.strip() not in SOLUTION)
            for grade_id, source in lines.items()
        }

    def namespace(self, mutant: Mutant | None = None, unfilled: Collection[int] = ()) -> dict[str, Any]:
        """The student's process after all student cells: what given, helper and solution cells define."""
        return _run_student_cells(self._sources(mutant, unfilled), quiet_errors=mutant is not None or bool(unfilled))

    def grade(
        self, mutant: Mutant | None = None, unfilled: Collection[int] = (), *, hidden_tests: bool = True
    ) -> Report:
        """Runs every graded cell; without ``hidden_tests`` as the student's edition has them.

        Args:
            mutant: what replaces the reference solution; None: the reference.
            unfilled: numbers of the TODOs left as the release hands them out.
        """
        sources = self._sources(mutant, unfilled)
        trusted: dict[str, Any] = {"__name__": "__main__"}
        of_tests: set[str] = set()
        outcomes = []
        for cell in self.tests:
            source = cell.source if hidden_tests else without(cell.source, HIDDEN, "")
            if not _says_something(source):
                continue  # a cell that is all hidden: the student's edition keeps only its comment
            with _limited():
                student = _run_student_cells(sources, quiet_errors=True)
            trusted.update({name: value for name, value in student.items() if name not in of_tests})
            before = dict(trusted)
            outcomes.append(_run_test(cell, source, trusted))
            of_tests |= {name for name in trusted if trusted[name] is not before.get(name, trusted)}
        return Report(tuple(outcomes))

    def _sources(self, mutant: Mutant | None, unfilled: Collection[int]) -> list[str]:
        sources = []
        patched = {cell.grade_id: cell.source for cell in self.solutions}
        if mutant is not None:
            patched = _apply(mutant, patched, self.name)
        for cell in self.cells:
            if cell.kind == "solution" and cell.todo in unfilled:
                sources.append(stubbed(cell))
            elif cell.kind != "test":
                sources.append(patched.get(cell.grade_id, cell.source) if cell.kind == "solution" else cell.source)
        return sources


def stubbed(cell: Cell) -> str:
    """The solution cell as the release hands it out: its own NotImplementedError in place of the solution."""
    return without(cell.source, SOLUTION, f"raise NotImplementedError({cell.stub!r})")


def without(source: str, markers: tuple[str, str], replacement: str) -> str:
    """``source`` with each region between the two markers replaced by one line at the marker's indentation."""
    kept, inside = [], False
    for line in source.splitlines():
        if line.strip() == markers[0]:
            inside = True
            if replacement:
                kept.append(line[: len(line) - len(line.lstrip())] + replacement)
        elif line.strip() == markers[1]:
            inside = False
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


@cache
def load(name: str) -> Chapter:
    """The chapter's code cells that run when a submission is graded, from ``solutions/NAME/NAME.py``."""
    notebook = jupytext.read(ROOT / "solutions" / name / f"{name}.py", fmt="py:percent")
    cells = []
    for cell in notebook.cells:
        if cell.cell_type != "code" or SKIP_TAGS & set(cell.metadata.get("tags", ())):
            continue
        meta, grading = cell.metadata, cell.metadata.get("nbgrader", {})
        source = cell.source
        if "include" in meta:
            source = (ROOT / meta["include"]).read_text(encoding="utf-8")
        if "sample" in meta:  # the build adds this line
            recorded = (ROOT / meta["sample"]).read_text(encoding="utf-8")
            source += f"\nRECORDED_SAMPLE = json.loads({recorded!r})"
        cells.append(
            Cell(
                kind=_kind(grading),
                source=source,
                grade_id=grading.get("grade_id", ""),
                title=meta.get("title", ""),
                points=float(grading.get("points", 0)),
                todo=meta.get("todo"),
                stub=meta.get("stub", ""),
            )
        )
    return Chapter(name, tuple(cells))


@cache
def mutants_of(name: str) -> ModuleType:
    """The module ``grader/tests/mutants/NAME.py`` (its name starts with a digit, so import can't name it)."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"mutants_{name}", path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _says_something(source: str) -> bool:
    """Whether a cell holds more than comments."""
    return bool(ast.parse(source).body)


def mutant_of(chapter: str, name: str) -> Mutant:
    """One mutant or variant of a chapter, by its name."""
    module = mutants_of(chapter)
    return next(mutant for mutant in (*module.MUTANTS, *module.VARIANTS) if mutant.name == name)


def _kind(grading: dict[str, Any]) -> str:
    if grading.get("grade"):
        return "test"
    if grading.get("solution"):
        return "solution"
    return "helper" if grading.get("locked") else "given"


def _apply(mutant: Mutant, sources: dict[str, str], chapter: str) -> dict[str, str]:
    patched = dict(sources)
    if mutant.source:
        if mutant.cell not in patched:
            raise ValueError(f"{chapter}, mutant {mutant.name}: no solution cell {mutant.cell!r}")
        patched[mutant.cell] = mutant.source
    for old, new in mutant.patch:
        holders = [grade_id for grade_id, source in patched.items() if old in source]
        if len(holders) != 1 or patched[holders[0]].count(old) != 1:
            raise ValueError(f"{chapter}, mutant {mutant.name}: {old!r} must occur exactly once in the solution cells")
        patched[holders[0]] = patched[holders[0]].replace(old, new)
    if patched == sources:
        raise ValueError(f"{chapter}, mutant {mutant.name}: changes nothing")
    return patched


@cache
def _student_code(source: str, number: int) -> CodeType:
    return compile(source, f"<student cell {number}>", "exec", dont_inherit=True)


@cache
def _test_code(source: str, grade_id: str) -> tuple[CodeType, CodeType | None]:
    """A test cell's code, and that of its last line where that is an expression, whose value may be points."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    value = compile(last, f"<{grade_id}>", "eval", dont_inherit=True) if last is not None else None
    return compile(tree, f"<{grade_id}>", "exec", dont_inherit=True), value


def _run_student_cells(sources: list[str], *, quiet_errors: bool = False) -> dict[str, Any]:
    """One namespace for all cells. A cell that raises does not stop the later ones when ``quiet_errors``."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(sources):
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                exec(_student_code(source, number), namespace)
            except Exception:
                if not quiet_errors:
                    raise
    return namespace


def _run_test(cell: Cell, source: str, namespace: dict[str, Any]) -> Outcome:
    """All points, none, or the plain number that the last line comes to, as nbgrader reads it."""
    body, last = _test_code(source, cell.grade_id)
    value: Any = None
    try:
        with _limited(), contextlib.redirect_stdout(io.StringIO()):
            exec(body, namespace)
            if last is not None:
                value = eval(last, namespace)
    except OutOfTime:
        return Outcome(cell.grade_id, 0.0, cell.points, "OutOfTime", f"more than {CPU_SECONDS} s")
    except Exception as error:
        return Outcome(cell.grade_id, 0.0, cell.points, type(error).__name__, str(error))
    if value is None:
        return Outcome(cell.grade_id, cell.points, cell.points)
    if type(value) not in (int, float) or not 0 <= value <= cell.points:
        raise ValueError(f"{cell.grade_id}: the last line comes to {value!r}, which nbgrader would misread as points")
    return Outcome(cell.grade_id, float(value), cell.points)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Stops an endless loop. Counts CPU time, so a busy machine changes nothing; pytest-timeout keeps its own timer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: object) -> None:
        raise OutOfTime

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
