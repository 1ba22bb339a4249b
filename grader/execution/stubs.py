"""Unfilled functions that raise at once, whatever they get: to tell what a call of one comes to takes no process."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from grader.execution.cells import StudentCell, imports


@dataclass(frozen=True)
class Stub:
    """A function whose first statement raises ``NotImplementedError(text)``.

    bind: takes the arguments as the function does, and raises TypeError where they don't fit.
    """

    name: str
    cell: str
    line: int
    text: str
    source_line: str
    bind: Callable[..., None]

    def error(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """What a call raises, told in the way in which the student's process tells of an exception."""
        try:
            self.bind(*args, **kwargs)
        except TypeError as e:
            return {"type": "TypeError", "base": "TypeError", "text": str(e), "cell": None, "line": None, "trace": []}
        frame = f"  cell {self.cell}, line {self.line}, in {self.name}: {self.source_line}"[:300]
        return {
            "type": "NotImplementedError",
            "base": "NotImplementedError",
            "text": self.text,
            "cell": self.cell,
            "line": self.line,
            "trace": [frame],
        }


def stubs_of(cell: StudentCell) -> dict[str, Stub]:
    """The functions of an unfilled solution cell for which the answer is known; none where in doubt."""
    return _stubs(cell.key, cell.source)


@lru_cache(maxsize=64)
def _stubs(key: str, source: str) -> dict[str, Stub]:
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return {}
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    others = [node for node in body if not isinstance(node, ast.FunctionDef)]
    if not all(isinstance(node, (ast.Import, ast.ImportFrom)) or _is_text(node) for node in others):
        return {}  # something else could bind a name again
    names = [*(node.name for node in functions), *imports(source)]
    found = {}
    for node in functions:
        raised = _raised_first(node)
        bind = _binder(node)
        if raised is not None and bind is not None and names.count(node.name) == 1:
            line = raised.lineno
            text = source.splitlines()[line - 1].strip()
            found[node.name] = Stub(node.name, key, line, raised.exc.args[0].value, text, bind)
    return found


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _raised_first(node: ast.FunctionDef) -> Any:
    """The statement with which the function begins, its docstring apart, if it raises NotImplementedError("…")."""
    body = node.body[1:] if _is_text(node.body[0]) else node.body
    first = body[0] if body else None
    if not isinstance(first, ast.Raise) or first.cause is not None or not isinstance(first.exc, ast.Call):
        return None
    call = first.exc
    named = isinstance(call.func, ast.Name) and call.func.id == "NotImplementedError"
    told = len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.Constant)
    plain = named and told and type(call.args[0].value) is str
    generator = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(node))
    return first if plain and not generator else None


def _binder(node: ast.FunctionDef) -> Callable[..., None] | None:
    """A function with the same parameters and an empty body; None where defaults or decorators would have to run."""
    given = node.args
    defaults = [d for d in (*given.defaults, *given.kw_defaults) if d is not None]
    if node.decorator_list or not all(isinstance(d, ast.Constant) for d in defaults):
        return None
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    for arg in every:
        arg.annotation = None
    empty = ast.FunctionDef(name=node.name, args=given, body=[ast.Pass()], decorator_list=[], lineno=1, col_offset=0)
    names: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([empty], [])), "<stub>", "exec"), {}, names)
    return names[node.name]
