"""What execution needs to know about the cells of a rebuilt notebook."""

from __future__ import annotations

import ast
import marshal
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from grader.model import SKIP_TAGS, Notebook

BEGIN_HIDDEN = re.compile(r"#+\s*BEGIN\s+HIDDEN\s+TESTS", re.IGNORECASE)
END_HIDDEN = re.compile(r"#+\s*END\s+HIDDEN\s+TESTS", re.IGNORECASE)


@dataclass(frozen=True)
class StudentCell:
    """A cell that runs in the sandbox. ``key`` is its index, as text; ``role``: solution, locked or given."""

    index: int
    role: str
    source: str
    title: str
    grade_id: str = ""
    todo: Any = None
    stub: str = ""

    @property
    def key(self) -> str:
        return str(self.index)


@dataclass(frozen=True)
class TestCell:
    """A graded test. ``question`` is the key of the solution cell it belongs to, if there is one.

    program: as `compiled` makes it; empty where the source is no Python.
    """

    __test__ = False  # not a pytest class

    index: int
    grade_id: str
    source: str
    title: str
    points: float
    question: str | None
    hidden_lines: frozenset[int]
    names: frozenset[str]
    program: bytes = b""

    @property
    def filename(self) -> str:
        return _filename(self.index)


@dataclass
class Cells:
    """The cells that run, by side; ``helpers`` are the names that locked cells bind, ``imports`` what these import."""

    student: list[StudentCell] = field(default_factory=list)
    tests: list[TestCell] = field(default_factory=list)
    helpers: frozenset[str] = frozenset()
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)

    def by_key(self, key: object) -> StudentCell | None:
        return next((c for c in self.student if c.key == key), None)


def classify(notebook: Notebook) -> Cells:
    """Sort the code cells of a rebuilt notebook into those of the student's process and the tests."""
    found = Cells()
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        meta = cell.get("metadata", {})
        if SKIP_TAGS & set(meta.get("tags") or ()):
            continue
        nbgrader = meta.get("nbgrader") or {}
        if nbgrader.get("grade") and not nbgrader.get("solution"):
            found.tests.append(_test(index, source_of(cell), meta, nbgrader, found))
        else:
            found.student.append(_student(index, source_of(cell), meta, nbgrader))
    for cell in found.student:
        if cell.role == "locked":
            found.helpers |= bound_names(cell.source)
            found.imports |= imports(cell.source)
    return found


def source_of(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def _student(index: int, source: str, meta: dict[str, Any], nbgrader: dict[str, Any]) -> StudentCell:
    by_student = (meta.get("grader") or {}).get("origin") == "student"
    grade_id = "" if by_student else str(nbgrader.get("grade_id", ""))
    role = "given"
    if grade_id and nbgrader.get("solution"):
        role = "solution"
    elif grade_id and nbgrader.get("locked"):
        role = "locked"
    title = str(meta.get("title") or grade_id or f"第 {index + 1} 个单元格")
    return StudentCell(index, role, source, title, grade_id, meta.get("todo"), str(meta.get("stub") or "").strip())


def _test(index: int, source: str, meta: dict[str, Any], nbgrader: dict[str, Any], found: Cells) -> TestCell:
    solutions = [c for c in found.student if c.role == "solution"]
    own = [c for c in solutions if meta.get("todo") is not None and c.todo == meta.get("todo")]
    question = (own or solutions[-1:] or [None])[-1]
    grade_id = str(nbgrader["grade_id"])
    return TestCell(
        index=index,
        grade_id=grade_id,
        source=source,
        title=str(meta.get("title") or grade_id),
        points=float(nbgrader.get("points") or 0),
        question=question.key if question else None,
        hidden_lines=hidden_lines(source),
        names=bound_names(source),
        program=_program(source, _filename(index)),
    )


def _filename(index: int) -> str:
    return f"<test {index}>"


@lru_cache(maxsize=512)
def _program(source: str, filename: str) -> bytes:
    try:
        return marshal.dumps(compiled(source, filename))
    except (SyntaxError, ValueError):
        return b""


def compiled(source: str, filename: str) -> tuple[Any, Any]:
    """The code of a cell, and that of its last line where a notebook would show its value, else None.

    Raises:
        SyntaxError: it is no Python.
    """
    body = ast.parse(source, filename).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    shown = None if last is None else ast.Expression(last.value)
    if last is not None and source.rstrip().endswith(";"):
        body, shown = [*body, last], None
    codes = [
        None if tree is None else compile(tree, filename, mode, dont_inherit=True)
        for tree, mode in ((ast.Module(body, []), "exec"), (shown, "eval"))
    ]
    return codes[0], codes[1]


@lru_cache(maxsize=512)
def hidden_lines(source: str) -> frozenset[int]:
    """Numbers (from 1) of the lines between the markers of hidden tests, markers included."""
    hidden: set[int] = set()
    inside = False
    for number, line in enumerate(source.splitlines(), 1):
        inside = inside or bool(BEGIN_HIDDEN.search(line))
        if inside:
            hidden.add(number)
        if END_HIDDEN.search(line):
            inside = False
    return frozenset(hidden)


@lru_cache(maxsize=512)
def bound_names(source: str) -> frozenset[str]:
    """Names that an instructor's cell binds at its top level; none when it is no plain Python."""
    import symtable

    try:
        table = symtable.symtable(source, "cell", "exec")
    except (SyntaxError, ValueError):
        return frozenset()
    symbols = table.get_symbols()
    return frozenset(s.get_name() for s in symbols if s.is_assigned() or s.is_imported() or s.is_namespace())


@lru_cache(maxsize=512)
def imports(source: str) -> dict[str, tuple[str, str | None]]:
    """For each name that a cell's imports bind: the module, and the name in it (None for a module itself)."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}
    found: dict[str, tuple[str, str | None]] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0],
                    None,
                )
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                found[alias.asname or alias.name] = (node.module, alias.name)
    return found
