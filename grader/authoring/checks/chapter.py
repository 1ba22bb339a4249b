"""What the chapter format (solutions/README.md) asks beyond nbgrader; binds only the chapters of this course."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from grader.authoring.checks.finding import Cell, Finding, is_autograded, label, nbgrader_of, parse, python_source, tags
from grader.authoring.checks.markers import regions
from grader.authoring.release import INSTRUCTOR_ONLY
from grader.model import Notebook

POINTS = 100
TODOS = (1, 2, 3)
REQUIRED_TAGS = ("settings", "experiment", "reader", "plot")
OLDEST_PYTHON = (3, 10)
ALLOWED_PACKAGES = frozenset({"torch", "matplotlib", "mpl_toolkits"})


def check_chapter(source: Notebook, released: Notebook) -> list[Finding]:
    """All that the format asks of a chapter's cells, its sum of points and its code."""
    findings: list[Finding] = []
    for index, cell in enumerate(source["cells"]):
        findings += _check_cell(cell, label(source, index))
    findings += _check_whole(source)
    for index, cell in enumerate(released["cells"]):
        if cell["cell_type"] == "code":
            findings += check_code(cell["source"], label(released, index))
    return findings


def _check_cell(cell: Cell, name: str) -> Iterator[Finding]:
    metadata, block = cell["metadata"], nbgrader_of(cell)
    solution, graded = bool(block.get("solution")), is_autograded(cell)
    if cell.get("attachments"):
        yield Finding(
            name, "the cell has an attachment, which the master can't hold", "put the file into assets/figures"
        )
    if not (solution or graded):
        return
    if not str(metadata.get("title") or "").strip():
        yield Finding(name, "the cell has no title", "write it behind `# %%`: results and feedback show it")
    if metadata.get("todo") not in TODOS:
        yield Finding(name, "the cell does not say its TODO", "add todo=1, 2 or 3")
    if graded and not str(metadata.get("step") or "").strip():
        yield Finding(name, "the graded cell does not say which step to reread", 'add step="…"')
    if solution:
        stub = metadata.get("stub")
        if not isinstance(stub, str) or not stub.strip() or "\n" in stub:
            yield Finding(name, "the TODO has no stub message", 'add stub="请先完成 TODO n：…", one line')
        if not any(region.kind == "SOLUTION" for region in regions(cell["source"])):
            yield Finding(name, "the TODO has no BEGIN SOLUTION region", "mark what the release shall remove")


def _check_whole(source: Notebook) -> Iterator[Finding]:
    cells = source["cells"]
    points = sum(nbgrader_of(cell).get("points") or 0 for cell in cells if nbgrader_of(cell).get("grade"))
    if points != POINTS:
        yield Finding("", f"the points add up to {points:g}", f"make them {POINTS}")
    todos = [cell["metadata"].get("todo") for cell in cells if nbgrader_of(cell).get("solution")]
    if todos != list(TODOS):
        yield Finding("", f"its solution cells are TODO {todos}", "have exactly one for each of TODO 1, 2, 3, in order")
    explained = {cell["metadata"].get("todo") for cell in cells if INSTRUCTOR_ONLY in tags(cell)}
    for todo in TODOS:
        if todo not in explained:
            yield Finding("", f"TODO {todo} has no instructor-only explanation",
                          f'add a text cell with todo={todo} tags=["instructor-only"]')  # fmt: skip
    present = {tag for cell in cells for tag in tags(cell)}
    for tag in REQUIRED_TAGS:
        if tag not in present:
            yield Finding("", f"no cell is tagged {tag!r}", f'add tags=["{tag}"] to that cell')


def check_code(source: str, name: str) -> list[Finding]:
    """Code that must run alone on Colab and ModelScope: Python 3.10 syntax, standard library, torch, matplotlib."""
    tree = parse(source)
    if tree is None:
        return [Finding(name, "the cell is no valid Python", "correct its syntax")]
    findings = [Finding(name, cause, "use what Python 3.10 knows") for cause in newer_syntax(source, tree)]
    for package in sorted(_imports(tree)):
        if package not in sys.stdlib_module_names and package not in ALLOWED_PACKAGES:
            cause = f"it imports {package}, which hosted environments may lack"
            remedy = "use the standard library, torch and matplotlib, or guard it with try/except"
            findings.append(Finding(name, cause, remedy))
    return findings


def newer_syntax(source: str, tree: ast.Module) -> list[str]:
    """What in a cell Python 3.10 can't read, in words."""
    try:
        ast.parse(python_source(source), feature_version=OLDEST_PYTHON)
    except SyntaxError as error:
        return [f"line {error.lineno}: {error.msg}"]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            text = (ast.get_source_segment(python_source(source), node.slice) or "").strip()
            if any(isinstance(e, ast.Starred) for e in node.slice.elts) and not text.startswith("("):
                found.append(f"line {node.lineno}: a starred expression in an index needs Python 3.11")
        if (
            isinstance(node, ast.JoinedStr)
            and sys.version_info >= (3, 12)
            and _is_new_fstring(python_source(source), node)
        ):
            found.append(f"line {node.lineno}: this f-string needs Python 3.12")
    return found


def _is_new_fstring(source: str, node: ast.JoinedStr) -> bool:
    """Whether an f-string reuses its own quote, or has a backslash or #, in an expression (read on 3.12 or newer)."""
    text = (ast.get_source_segment(source, node) or "").lstrip("rRfF")
    quote = text[:3] if text[:3] in ('"""', "'''") else text[:1]
    parts = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
    segments = [ast.get_source_segment(source, part) or "" for part in parts]
    return any(mark in segment for segment in segments for mark in (quote, "\\", "#"))


def _imports(tree: ast.Module) -> set[str]:
    """Top-level packages that a cell imports, those inside a try left out."""
    guarded = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and node.handlers
        for statement in node.body
        for inner in ast.walk(statement)
    }
    packages: set[str] = set()
    for node in ast.walk(tree):
        if node in guarded:
            continue
        if isinstance(node, ast.Import):
            packages |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            packages.add(node.module.partition(".")[0])
    return packages
