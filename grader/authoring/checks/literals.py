"""Inputs and expected values of hidden tests that stand in text, comments, docstrings or messages that students see."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from grader.authoring.checks.finding import Finding, is_autograded, is_python, label, parse, python_source
from grader.authoring.checks.markers import regions
from grader.model import Notebook

# Shorter ones are found in any text.
SHORTEST = 10
FEWEST_VALUES = 3
FEWEST_DIGITS = 5
REMEDY = "take another example there, or another one in the hidden test"


def check_literals(source: Notebook, released: Notebook, places: list[tuple[str, str]]) -> list[Finding]:
    """Search a released notebook for the literals of hidden tests that its visible code doesn't use as values.

    Args:
        source: the instructor's notebook.
        released: the student's edition.
        places: (where, text without white space) of everything in it that can carry text.
    """
    if not is_python(source):
        return []
    public = set()
    for cell in released["cells"]:
        tree = parse(cell["source"]) if cell["cell_type"] == "code" else None
        public |= set(_literals(_without_texts(tree))) if tree is not None else set()
    texts = [(place, _normal(text)) for place, text in places]
    findings: dict[tuple[str, str], Finding] = {}
    for index, cell in enumerate(source["cells"]):
        if not is_autograded(cell):
            continue
        for literal in _hidden(cell["source"]):
            if literal in public:
                continue
            # A number must stand alone; without white space a letter may touch it.
            shown = re.compile(rf"(?<![\d.]){re.escape(literal)}(?!\.?\d)")
            for place, text in texts:
                if shown.search(text):
                    name = label(source, index)
                    cause = f"it shows {literal[:60]}, a value of the hidden test in cell {name}"
                    findings.setdefault((place, name), Finding(place, cause, REMEDY))
    return list(findings.values())


def _hidden(source: str) -> Iterator[str]:
    """The distinctive literals of a cell's hidden lines."""
    lines = [line for region in regions(source) if region.kind == "HIDDEN TESTS" for line in region.lines]
    if not lines:
        return
    tree, wanted = parse(source), {line.strip() for line in lines}
    code = python_source(source).split("\n")
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.expr) and code[node.lineno - 1].strip() in wanted:
            yield from _literal(node)


def _literals(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            yield from _literal(node)


def _literal(node: ast.expr) -> Iterator[str]:
    """The node as text without white space, where it is a distinctive literal, or a call with nothing but literals."""
    if isinstance(node, ast.Call):
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        distinctive = bool(values) and all(map(_is_plain, values)) and any(map(_has_number, values))
    elif isinstance(node, (ast.List, ast.Tuple, ast.Dict, ast.Set)):
        leaves = [n for n in ast.walk(node) if isinstance(n, ast.Constant)]
        distinctive = _is_plain(node) and len(leaves) >= FEWEST_VALUES and _has_number(node)
    else:
        yield from _number(node)
        return
    text = _normal(ast.unparse(node))
    if distinctive and len(text) >= SHORTEST:
        yield text


def _number(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        digits = re.sub(r"\D", "", repr(node.value).split("e")[0]).strip("0")
        power = isinstance(node.value, int) and node.value & (node.value - 1) == 0
        if len(digits) >= FEWEST_DIGITS and not power:
            yield repr(node.value)


def _is_plain(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _has_number(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Constant) and type(n.value) in (int, float) for n in ast.walk(node))


def _normal(text: str) -> str:
    """Without white space, with one kind of quotes, and no comma before a closing bracket."""
    return re.sub(r",(?=[\])}])", "", re.sub(r"\s+", "", text).replace('"', "'"))


def _without_texts(tree: ast.Module) -> ast.Module:
    """The tree without its assert messages; docstrings and comments hold no literal but a string anyway."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            node.msg = None
    return tree
