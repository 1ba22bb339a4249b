"""What the release step leaves behind that can't run: broken syntax, and names whose definition was removed."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from grader.authoring.checks.blunt import names_used
from grader.authoring.checks.finding import Cell, Finding, is_autograded, is_python, label, nbgrader_of, parse, tags
from grader.authoring.checks.points import names_in
from grader.authoring.release import INSTRUCTOR_ONLY
from grader.model import Notebook

OWN_LINES = "put the markers where the removed lines begin, and leave a statement outside the region"


def check_stranded(source: Notebook, released: Notebook) -> list[Finding]:
    """Cells of the student's edition that can't run as they stand, for reasons that no answer mends."""
    if not is_python(source):
        return []
    return [*_broken_syntax(source, released), *_removed_names(source, released), *_removed_imports(source, released)]


def _broken_syntax(source: Notebook, released: Notebook) -> Iterator[Finding]:
    valid = {label(source, i) for i, cell in enumerate(source["cells"]) if _tree(cell) is not None}
    for index, cell in enumerate(released["cells"]):
        name = label(released, index)
        if cell["cell_type"] == "code" and name in valid and parse(cell["source"]) is None:
            yield Finding(name, "without the removed lines the cell is no valid Python", OWN_LINES)


def _removed_names(source: Notebook, released: Notebook) -> Iterator[Finding]:
    """Names that only hidden tests or instructor-only cells define, and that students' cells use."""
    public = _bound(released["cells"])
    solutions = _bound(cell for cell in source["cells"] if nbgrader_of(cell).get("solution"))
    removed = _bound(source["cells"]) - public - solutions - set(dir(builtins))
    for index, cell in enumerate(released["cells"]):
        tree = _tree(cell)
        for name in sorted(removed & names_used(tree) - _stored(tree)) if tree else ():
            yield Finding(label(released, index), f"it uses {name}, which the release removes from where it is defined",
                          "define it where students see it")  # fmt: skip


def _removed_imports(source: Notebook, released: Notebook) -> Iterator[Finding]:
    """Modules that only a solution imports, and that tests or given cells use: right answers without it would fail."""
    solutions = [cell for cell in source["cells"] if nbgrader_of(cell).get("solution")]
    kept = _imported(cell for cell in source["cells"] if not nbgrader_of(cell).get("solution"))
    imported = _imported(solutions) - kept - _imported(released["cells"])
    for index, cell in enumerate(source["cells"]):
        given = not nbgrader_of(cell).get("solution") and INSTRUCTOR_ONLY not in tags(cell)
        tree = _tree(cell)
        if tree is None or not (given or is_autograded(cell)):
            continue
        for name in sorted(imported & names_used(tree) - _stored(tree)):
            yield Finding(label(source, index), f"it uses {name}, which only a solution imports",
                          f"import {name} here too")  # fmt: skip


def _tree(cell: Cell) -> ast.Module | None:
    return parse(cell["source"]) if cell["cell_type"] == "code" else None


def _bound(cells) -> set[str]:
    return {name for cell in cells if (tree := _tree(cell)) is not None for name in names_in(tree)}


def _imported(cells) -> set[str]:
    return {
        (alias.asname or alias.name).partition(".")[0]
        for cell in cells
        if (tree := _tree(cell)) is not None
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


def _stored(tree: ast.Module) -> set[str]:
    """Every name that a cell binds anywhere, arguments included."""
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    stored |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    return stored | names_in(tree)
