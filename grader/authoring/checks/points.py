"""Graded cells: do they test anything, and does nbgrader read their last value as the author means it?

nbgrader takes a cell without output for full marks, a value that prints as a number of 0 to the maximum for partial
credit, and everything else (np.float64(0.0), -1, False, 'FAILED', an array) for full marks. A value that depends on
the student's answer can't be judged by running the reference alone, so it is read from the syntax first: the last
line gives None, or provably a plain Python number that can't be negative.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

NONE, FLOAT, INT, BOOL, UNKNOWN = "None", "float", "int", "bool", "unknown"
PLAIN = frozenset({NONE, FLOAT, INT})
NUMBERS = frozenset({FLOAT, INT, BOOL})
USE_FLOAT = "end with assert, or with the points as a plain float, such as float(…) of 0 to the cell's points"
CLAMP = "keep it from going below 0, such as max(0.0, …)"

BOOL_CALLS = frozenset({"bool", "isinstance", "issubclass", "all", "any", "callable", "hasattr"})
INT_CALLS = frozenset({"int", "len", "ord"})
OTHER_CALLS = {
    "str": "a string", "repr": "a string", "format": "a string", "list": "a list", "tuple": "a tuple",
    "dict": "a dict", "set": "a set", "sorted": "a list", "complex": "a complex number",
}  # fmt: skip
NONE_CALLS = frozenset({"print", "display", "exec", "setattr", "delattr"})
MATH_INT = frozenset({"floor", "ceil", "trunc", "comb", "perm", "gcd", "lcm", "factorial", "isqrt"})
# Calls that test nothing by themselves.
HARMLESS = (
    BOOL_CALLS - {"all", "any"} | INT_CALLS | set(OTHER_CALLS) | NONE_CALLS
    | {"float", "range", "enumerate", "zip", "type", "input", "TestCase", "unittest.TestCase", "abs", "round", "super"}
)  # fmt: skip
# Runners that report failures as text or as a return value.
SILENT_RUNNERS = frozenset({
    "doctest.testmod", "testmod", "doctest.run_docstring_examples", "run_docstring_examples", "pytest.main",
    "ipytest.run",
})  # fmt: skip
CONTEXT_ASSERTS = frozenset({"assertRaises", "assertRaisesRegex", "assertWarns", "assertWarnsRegex", "assertLogs"})


@dataclass(frozen=True)
class Value:
    """What an expression can be: ``kinds`` of its type, and whether it can be seen to become negative."""

    kinds: frozenset[str]
    negative: bool = False

    def __or__(self, other: Value) -> Value:
        return Value(self.kinds | other.kinds, self.negative or other.negative)


NOTHING = Value(frozenset())
ANY = Value(frozenset({UNKNOWN}))


def kind(name: str, negative: bool = False) -> Value:
    """A value of one kind."""
    return Value(frozenset({name}), negative)


@dataclass
class Scope:
    """The names of a cell or function: the expressions they are bound to, and what is appended to lists."""

    bound: dict[str, list[ast.expr | Value]] = field(default_factory=dict)
    appended: dict[str, list[ast.expr]] = field(default_factory=dict)

    @classmethod
    def of(cls, body: list[ast.stmt]) -> Scope:
        """Collect the bindings of these statements, nested functions left out."""
        scope = cls()
        for node in executed(body):
            scope._add(node)
        return scope

    def _bind(self, target: ast.expr, value: ast.expr | Value) -> None:
        if isinstance(target, ast.Name):
            self.bound.setdefault(target.id, []).append(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            pairs = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            for index, element in enumerate(target.elts):
                self._bind(element, value.elts[index] if pairs else ANY)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, ANY)

    def _add(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            self._bind(node.target, node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            left = ast.Name(node.target.id, ast.Load())
            self._bind(node.target, ast.BinOp(left, node.op, node.value))
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._bind(node.target, _loop_value(node.iter))
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, ANY)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                self._bind(ast.Name((alias.asname or alias.name).partition(".")[0]), ANY)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for inner in ast.walk(node):
                if isinstance(inner, (ast.Global, ast.Nonlocal)):
                    for name in inner.names:
                        self.bound.setdefault(name, []).append(ANY)
        elif isinstance(node, ast.Call) and _appends(node):
            self.appended.setdefault(node.func.value.id, []).append(node.args[0])


def executed(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Every node that runs when the statements run: the insides of functions and classes left out."""
    for statement in body:
        yield from _executed(statement)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        return
    for child in ast.iter_child_nodes(node):
        yield from _executed(child)


def _appends(node: ast.Call) -> bool:
    """Whether the call is ``name.append(value)``."""
    function = node.func
    is_append = isinstance(function, ast.Attribute) and function.attr == "append"
    return is_append and isinstance(function.value, ast.Name) and bool(node.args)


def _loop_value(iterable: ast.expr) -> Value:
    is_range = isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "range"
    return kind(INT) if is_range else ANY


class Evaluator:
    """Reads the kinds of an expression from the syntax.

    Args:
        scope: the names of the cell.
        functions: functions whose source is known and trusted: of this cell and of earlier test and helper cells.
    """

    def __init__(self, scope: Scope, functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]) -> None:
        self.scope = scope
        self.functions = functions
        self.pending: set[str] = set()

    def value(self, node: ast.expr) -> Value:
        """What the expression can be."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        return method(node) if method else ANY

    def _constant(self, node: ast.Constant) -> Value:
        if node.value is None:
            return kind(NONE)
        if isinstance(node.value, bool):
            return kind(BOOL)
        if isinstance(node.value, (int, float)):
            return kind(type(node.value).__name__, node.value < 0)
        return kind("the text " + repr(node.value)[:40] if isinstance(node.value, str) else repr(node.value)[:40])

    def _joinedstr(self, node: ast.JoinedStr) -> Value:
        return kind("a string")

    def _display(self, node: ast.expr) -> Value:
        return kind(f"a {type(node).__name__.lower()}")

    _list = _tuple = _dict = _set = _listcomp = _dictcomp = _setcomp = _generatorexp = _lambda = _display

    def _name(self, node: ast.Name) -> Value:
        if node.id in self.functions and node.id not in self.scope.bound:
            return kind(f"the function {node.id} itself, which is not called")
        if node.id not in self.scope.bound:
            return ANY
        if node.id in self.pending:
            return NOTHING
        self.pending.add(node.id)
        try:
            return self._join(self.scope.bound[node.id])
        finally:
            self.pending.discard(node.id)

    def _join(self, values: list[ast.expr | Value]) -> Value:
        joined = NOTHING
        for value in values:
            joined = joined | (value if isinstance(value, Value) else self.value(value))
        return joined

    def _namedexpr(self, node: ast.NamedExpr) -> Value:
        return self.value(node.value)

    def _ifexp(self, node: ast.IfExp) -> Value:
        return self.value(node.body) | self.value(node.orelse)

    def _boolop(self, node: ast.BoolOp) -> Value:
        return self._join(list(node.values))

    def _compare(self, node: ast.Compare) -> Value:
        identity = all(isinstance(op, (ast.In, ast.NotIn, ast.Is, ast.IsNot)) for op in node.ops)
        sides = self._join([node.left, *node.comparators])
        return kind(BOOL) if identity or sides.kinds <= NUMBERS else ANY

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return kind(BOOL)
        operand = self.value(node.operand)
        kinds = frozenset({INT if k == BOOL else k for k in operand.kinds})
        if isinstance(node.op, ast.UAdd):
            return Value(kinds, operand.negative)
        zero = isinstance(node.operand, ast.Constant) and node.operand.value == 0
        return Value(kinds, not zero)

    def _binop(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        negative = left.negative or right.negative or isinstance(node.op, ast.Sub)
        kinds = left.kinds | right.kinds
        if not kinds <= NUMBERS:
            return Value(kinds - NUMBERS, negative)
        if FLOAT in kinds or isinstance(node.op, ast.Div):
            return kind(FLOAT, negative)
        bits = isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor))
        return kind(BOOL if kinds == {BOOL} and bits else INT, negative)

    def _call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        if not isinstance(node.func, ast.Name):
            return ANY
        name = node.func.id
        if name in self.functions:
            return self._function(name)
        if name in self.scope.bound:
            return ANY
        return self._builtin(name, node)

    def _builtin(self, name: str, node: ast.Call) -> Value:
        argument = self.value(node.args[0]) if node.args else ANY
        if name in ("float", "int", "len", "ord"):
            return kind(FLOAT if name == "float" else INT, argument.negative and name not in ("len", "ord"))
        if name in BOOL_CALLS:
            return kind(BOOL)
        if name in NONE_CALLS:
            return kind(NONE)
        if name in OTHER_CALLS:
            return kind(OTHER_CALLS[name])
        if name == "abs":
            return Value(frozenset({INT if k == BOOL else k for k in argument.kinds}))
        if name == "round":
            return kind(INT, argument.negative) if len(node.args) == 1 and argument.kinds <= NUMBERS else argument
        if name in ("min", "max"):
            return self._extreme(name, node)
        if name == "sum":
            return self._sum(node)
        return ANY

    def _extreme(self, name: str, node: ast.Call) -> Value:
        values = [self.value(argument) for argument in node.args]
        if len(values) < 2:
            return self._elements(node.args[0]) if node.args else ANY
        if name == "max":
            return Value(self._join(list(values)).kinds, all(value.negative for value in values))
        return self._join(list(values))

    def _sum(self, node: ast.Call) -> Value:
        if not node.args:
            return ANY
        elements = self._elements(node.args[0])
        if not elements.kinds <= NUMBERS:
            return Value(frozenset({UNKNOWN}), elements.negative)
        return kind(FLOAT if FLOAT in elements.kinds else INT, elements.negative)

    def _elements(self, node: ast.expr) -> Value:
        """What the elements of a sequence can be."""
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            return self._comprehension(node)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return self._join(list(node.elts))
        if isinstance(node, ast.Name) and node.id in self.scope.bound and node.id not in self.pending:
            self.pending.add(node.id)
            try:
                joined = self._join(list(self.scope.appended.get(node.id, [])))
                for value in self.scope.bound[node.id]:
                    joined = joined | (value if isinstance(value, Value) else self._elements(value))
                return joined
            finally:
                self.pending.discard(node.id)
        return ANY

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        inner = Scope({name: list(values) for name, values in self.scope.bound.items()}, self.scope.appended)
        for generator in node.generators:
            for target in ast.walk(generator.target):
                if isinstance(target, ast.Name):
                    inner.bound[target.id] = [_loop_value(generator.iter)]
        evaluator = Evaluator(inner, self.functions)
        evaluator.pending = set(self.pending)
        return evaluator.value(node.elt)

    def _method(self, node: ast.Call, function: ast.Attribute) -> Value:
        if function.attr in CONTEXT_ASSERTS and len(node.args) < 2:
            return kind(f"the context manager of {function.attr}, which was never entered")
        if function.attr.lower().startswith("assert"):
            return kind(NONE)
        if isinstance(function.value, ast.Name) and function.value.id == "math":
            argument = self.value(node.args[0]) if node.args else ANY
            return kind(INT if function.attr in MATH_INT else FLOAT, argument.negative and function.attr != "fabs")
        return ANY

    def _function(self, name: str) -> Value:
        """What a known function can return."""
        function = self.functions[name]
        key = f"{name}()"
        if key in self.pending:
            return NOTHING
        if function.decorator_list:
            return ANY
        if isinstance(function, ast.AsyncFunctionDef):
            return kind("a coroutine that never runs")
        nodes = list(executed(function.body))
        if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes):
            return kind("a generator that never runs")
        returns = [node.value for node in nodes if isinstance(node, ast.Return)]
        inner = Scope.of(function.body)
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs,
                     function.args.vararg, function.args.kwarg]  # fmt: skip
        for argument in arguments:
            if argument is not None:
                inner.bound.setdefault(argument.arg, []).append(ANY)
        local = {n.name: n for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
        evaluator = Evaluator(inner, {**self.functions, **local})
        evaluator.pending = {*(p for p in self.pending if p.endswith("()")), key}
        joined = NOTHING if returns and _always_leaves(function.body[-1]) else kind(NONE)
        for value in returns:
            joined = joined | (kind(NONE) if value is None else evaluator.value(value))
        return joined


def _always_leaves(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Return, ast.Raise))


def functions_in(tree: ast.Module) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions that a cell defines at its top level."""
    return {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def names_in(tree: ast.Module) -> set[str]:
    """The names that a cell binds at its top level."""
    bound = set(Scope.of(tree.body).bound)
    return bound | {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}


def tests_something(tree: ast.Module, functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]) -> bool:
    """Whether running the cell asserts, raises or calls anything that could: not only definitions and printing."""
    return _tests(tree.body, functions, frozenset())


def _tests(body: list[ast.stmt], functions: dict, seen: frozenset[str]) -> bool:
    for node in executed([statement for statement in body if not _never_runs(statement)]):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant)):
            return True
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in functions:
            if name not in seen and _tests(functions[name].body, functions, seen | {name}):
                return True
        elif name not in HARMLESS:
            return True
    return False


def _never_runs(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.If)
        and isinstance(statement.test, ast.Constant)
        and not statement.test.value
        and not statement.orelse
    )


def shows_answer(tree: ast.Module, student: set[str]) -> bool:
    """Whether the cell's last value is made from a name that a solution cell defines, such as ``float(x == 3)``."""
    last = tree.body[-1] if tree.body else None
    return isinstance(last, ast.Expr) and _mentions(last.value, student, Scope.of(tree.body))


def judges_by_value(tree: ast.Module, functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]) -> bool:
    """Whether the cell's last line may give partial credit, so that a caught assert can still cost points."""
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        return False
    return Evaluator(Scope.of(tree.body), functions).value(last.value).kinds != {NONE}


def swallowed_runner(tree: ast.Module) -> str | None:
    """The name of a test runner that reports failures without raising, in a cell that never looks at its result."""
    nodes = list(executed(tree.body))
    if any(isinstance(node, (ast.Assert, ast.Raise)) for node in nodes):
        return None
    for node in nodes:
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            stays = any(k.arg == "exit" and isinstance(k.value, ast.Constant) and not k.value.value
                        for k in node.keywords)  # fmt: skip
            if name == "unittest.main" and stays:
                return "unittest.main(exit=False)"
            if name.endswith(".run") and "TestRunner" in name or name in SILENT_RUNNERS:
                return name
    return None


@dataclass(frozen=True)
class Verdict:
    """What the syntax says about a cell's last value.

    ``cause`` and ``remedy`` are set where it must be refused. ``undecided``: the reference must be run to know, and
    only None is then accepted.
    """

    cause: str = ""
    remedy: str = USE_FLOAT
    undecided: bool = False


def judge_last_value(
    source: str,
    tree: ast.Module,
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef],
    student: set[str],
) -> Verdict:
    """Judge the value of a graded cell's last line.

    Args:
        source: the cell, to see a semicolon at its end (IPython then shows no value).
        tree: its syntax.
        functions: known functions, see ``Evaluator``.
        student: names that solution cells define.
    """
    if not tree.body or not isinstance(tree.body[-1], ast.Expr):
        return Verdict()
    last = tree.body[-1].value
    scope = Scope.of(tree.body)
    value = Evaluator(scope, functions).value(last)
    text = ast.unparse(last)[:60]
    if _ends_with_semicolon(source):
        if value.kinds & {FLOAT, INT}:
            return Verdict(f"the semicolon hides the points {text!r}: nbgrader reads full marks", "drop the semicolon")
        return Verdict()
    wrong = value.kinds - PLAIN - {UNKNOWN}
    if wrong:
        shown = sorted(wrong)[0]
        return Verdict(f"its last value can be {shown} ({text!r}): nbgrader reads that as full marks")
    if value.negative and value.kinds - {NONE}:
        cause = f"its last value {text!r} can become negative: nbgrader reads that as full marks"
        return Verdict(cause, CLAMP)
    if UNKNOWN not in value.kinds:
        return Verdict()
    if not isinstance(last, ast.Call) or _mentions(last.func, student, scope):
        return Verdict(
            f"its last value {text!r} depends on the answer and is not surely a plain float: nbgrader reads "
            "anything else, such as np.float64(0.0), as full marks"
        )
    return Verdict(undecided=True)


def _mentions(node: ast.expr, student: set[str], scope: Scope, depth: int = 4) -> bool:
    """Whether an expression is made from a student's name, directly or through the cell's variables."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            if inner.id in student:
                return True
            bound = [value for value in scope.bound.get(inner.id, []) if isinstance(value, ast.expr)]
            if depth and any(_mentions(value, student, scope, depth - 1) for value in bound):
                return True
    return False


def _ends_with_semicolon(source: str) -> bool:
    import io
    import tokenize

    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT)
    try:
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in skipped]
    except (tokenize.TokenError, SyntaxError):
        return source.rstrip().endswith(";")
    return bool(tokens) and tokens[-1].string == ";"
