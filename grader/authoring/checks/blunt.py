"""Tests that can't fail, though they look as if they could: read from the syntax of a graded cell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.authoring.checks.points import HARMLESS, executed, judges_by_value

CATCH_ALL = frozenset({"AssertionError", "Exception", "BaseException"})
TRUTH_ASSERTS = frozenset({"assertTrue", "assertFalse"})
SILENT_CALLS = frozenset({"print", "display", "warnings.warn", "traceback.print_exc", "sys.stderr.write"})
# With one of these a function may be called by its name as text, or be found by a test runner.
REACHES_BY_NAME = frozenset({"globals", "locals", "vars", "eval", "exec", "dir", "main", "run", "testmod", "getattr"})

Function = ast.FunctionDef | ast.AsyncFunctionDef
Problem = tuple[str, str]


def blunt_tests(
    tree: ast.Module, functions: dict[str, Function], student: set[str], used_elsewhere: set[str]
) -> Iterator[Problem]:
    """(cause, remedy) of everything in a graded cell that looks like a test and never fails.

    Args:
        tree: the cell.
        functions: known functions, of this cell and of earlier test and helper cells.
        student: names that solution cells define.
        used_elsewhere: names that other cells use; a check which is defined here may be called there.
    """
    yield from _asserts(tree, student)
    yield from _lost_comparisons(tree)
    if not judges_by_value(tree, functions):
        yield from _swallowed(tree)
    yield from _never_called(tree, used_elsewhere)


def compares_nothing(tree: ast.Module, functions: dict[str, Function], student: set[str]) -> bool:
    """Whether all that a cell does is to call the student's functions and print: any answer that runs passes."""
    pending, seen, calls_student = [tree.body], set(), False
    while pending:
        for node in executed(pending.pop()):
            if isinstance(node, (ast.Assert, ast.Raise)):
                return False
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if name in student:
                calls_student = True
            elif name in functions and name not in seen:
                seen.add(name)
                pending.append(functions[name].body)
            elif name not in HARMLESS and name not in functions:
                return False
    return calls_student


def _asserts(tree: ast.Module, student: set[str]) -> Iterator[Problem]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            if isinstance(node.test, ast.Tuple) and node.test.elts:
                yield "assert (…, …) tests a pair in parentheses, which is always true", "remove the parentheses"
            elif _calls(node.test, student) and _is_value(node.msg):
                yield f"`{ast.unparse(node)[:60]}` takes the expected value for its message", "compare with =="
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            second = node.args[1] if len(node.args) > 1 else None
            if node.func.attr in TRUTH_ASSERTS and _is_value(second):
                yield f"{node.func.attr} takes {ast.unparse(second)[:30]} for its message", "use assertEqual"


def _calls(test: ast.expr, student: set[str]) -> bool:
    return isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id in student


def _is_value(node: ast.expr | None) -> bool:
    """A number, None, True or False: nobody's message."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and not isinstance(node.value, str)


def _lost_comparisons(tree: ast.Module) -> Iterator[Problem]:
    """``f(1) == 2`` as a line of its own. A last line is the cell's value; in try or with it may have to raise."""
    last = tree.body[-1] if tree.body else None
    for statement in _statements(tree, skip=(ast.Try, ast.With, ast.AsyncWith)):
        if statement is not last and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Compare):
            yield f"`{ast.unparse(statement)[:60]}` compares, and nothing looks at the result", "write assert before it"


def _statements(node: ast.AST, skip: tuple[type, ...]) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, skip):
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from _statements(child, skip)


def _swallowed(tree: ast.Module) -> Iterator[Problem]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            catching = [handler for handler in node.handlers if _catches(handler.type)]
            silent = bool(catching) and all(map(_is_silent, catching[0].body))
            if silent and not node.orelse and _ends_in_assert(node.body):
                yield ("a failed assert is caught here, and the cell goes on to full marks",
                       "let it raise, or raise again in the except")  # fmt: skip
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for call in (item.context_expr for item in node.items):
                is_suppress = isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "suppress"
                if is_suppress and any(map(_catches, call.args)) and _ends_in_assert(node.body):
                    yield "suppress hides a failed assert, and the cell goes on to full marks", "let it raise"


def _catches(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(map(_catches, kind.elts))
    return kind is None or ast.unparse(kind).split(".")[-1] in CATCH_ALL


def _is_silent(statement: ast.stmt) -> bool:
    """Whether a line of an except clause leaves no trace that a later line could judge."""
    if isinstance(statement, (ast.Pass, ast.Continue)):
        return True
    if not isinstance(statement, ast.Expr):
        return False
    call = statement.value
    return isinstance(call, ast.Constant) or (isinstance(call, ast.Call) and ast.unparse(call.func) in SILENT_CALLS)


def _ends_in_assert(body: list[ast.stmt]) -> bool:
    """Whether an assert is in the body and only silent lines come after it (``passed = True`` would be a trace)."""
    places = [i for i, s in enumerate(body) if any(isinstance(node, ast.Assert) for node in executed([s]))]
    return bool(places) and all(_is_silent(statement) for statement in body[places[-1] + 1 :])


def _never_called(tree: ast.Module, used_elsewhere: set[str]) -> Iterator[Problem]:
    reaching = {ast.unparse(node.func).split(".")[-1] for node in ast.walk(tree) if isinstance(node, ast.Call)}
    if reaching & REACHES_BY_NAME:
        return
    for index, function in enumerate(tree.body):
        if not isinstance(function, Function) or function.decorator_list:
            continue
        if not any(isinstance(node, ast.Assert) for node in ast.walk(function)):
            continue
        rest = tree.body[index + 1 :]
        again = next((i for i, s in enumerate(rest) if isinstance(s, Function) and s.name == function.name), None)
        users = [s for s in (tree.body if again is None else rest[:again]) if s is not function]
        used = {name for statement in users for name in names_used(statement)}
        if again is not None and function.name not in used:
            yield f"{function.name} is defined twice, and the first one never runs", "give each its own name, call both"
        elif again is None and function.name not in used | used_elsewhere:
            yield f"{function.name} holds asserts and is never called", "call it at the end of the cell"


def names_used(node: ast.AST) -> set[str]:
    """The names that a piece of code reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
