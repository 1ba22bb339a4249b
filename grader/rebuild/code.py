"""What can be known of a cell's code without running it.

Everything here works on any text: where Python can't parse it, a tolerant reading by lines takes over.
Nothing is executed or compiled.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from functools import lru_cache

_MAX_PARSE = 100_000  # characters; longer cells are read by lines
_MAGIC_LINE = re.compile(r"^([ \t]*)(?:[%!][^\n]*|[^\s#'\"%!][^\n#'\"]*\?{1,2}[ \t]*)$", re.MULTILINE)
_ASSIGN_MAGIC = re.compile(r"^([ \t]*\w[\w, ]*=[ \t]*)[%!][^\n]*$", re.MULTILINE)
_CELL_MAGIC = re.compile(r"\A\s*%%(\w+)[^\n]*\n?")
_PYTHON_CELL_MAGICS = frozenset({"time", "timeit", "capture", "prun", "python", "python3"})
_DEFINITION = re.compile(
    r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)|^([A-Za-z_]\w*)[ \t]*(?::[^=\n]*)?=(?!=)", re.MULTILINE
)
_FENCED = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*\n(.*?)(?:^[ \t]*(?:```|~~~)[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_COMMENT_LINE = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
_CODE_START = re.compile(
    r"^(?:@\w|(?:async[ \t]+)?def[ \t]+\w+|class[ \t]+\w+|import[ \t]|from[ \t]+\S+[ \t]+import[ \t])", re.MULTILINE
)


def mask_magics(text: str) -> str:
    """``text`` with IPython's magics replaced by Python of the same number of lines."""
    match = _CELL_MAGIC.match(text)
    if match:
        if match.group(1) not in _PYTHON_CELL_MAGICS:
            return "\n" * text.count("\n")
        text = "\n" * match.group(0).count("\n") + text[match.end() :]
    return _MAGIC_LINE.sub(r"\1pass", _ASSIGN_MAGIC.sub(r"\1None", text))


@lru_cache(maxsize=64)
def parse(text: str) -> ast.Module | None:
    """The syntax tree of ``text``, or None.

    Line magics are masked, and the indentation of the whole cell removed, where they are in the way: IPython
    accepts both.
    """
    if len(text) > _MAX_PARSE:
        return None
    tree = parse_unindented(text)
    return tree if tree is not None else _parse(_dedent(mask_magics(text)))


def parse_unindented(text: str) -> ast.Module | None:
    """Like ``parse`` for a cell that must begin at the left margin."""
    if len(text) > _MAX_PARSE:
        return None
    tree = _parse(text)
    return tree if tree is not None else _parse(mask_magics(text))


def _dedent(text: str) -> str:
    """``text`` without its first line's indentation, as IPython runs it."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip(" \t"))]
    return "\n".join(line.removeprefix(indent) for line in text.split("\n"))


def _parse(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def defined_names(text: str) -> frozenset[str]:
    """Names that the top level of ``text`` binds, imports included."""
    tree = parse(text)
    if tree is None:
        return frozenset(name for pair in _DEFINITION.findall(mask_magics(text)) for name in pair if name)
    return frozenset(name for statement in tree.body for name in _bound(statement))


@lru_cache(maxsize=256)
def own_names(text: str) -> frozenset[str]:
    """What ``defined_names`` gives, without imported modules."""
    tree = parse(text)
    if tree is None:
        return defined_names(text)
    kept = (node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom)))
    return frozenset(name for statement in kept for name in _bound(statement))


def telling_names(text: str) -> frozenset[str]:
    """Names by which ``text`` can be known again: its functions and classes, else its variables."""
    tree = parse(text)
    if tree is None:
        return own_names(text)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds)) or own_names(text)


def _bound(statement: ast.stmt) -> set[str]:
    """Names that one statement binds in its own scope (bodies of functions and classes excluded)."""
    names: set[str] = set()
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            stack.extend(ast.iter_child_nodes(node))
    return names


def used_names(text: str) -> frozenset[str]:
    """Every name that ``text`` reads anywhere (a superset of what it needs from other cells)."""
    tree = parse(text)
    if tree is None:
        return frozenset(re.findall(r"[A-Za-z_]\w*", text))
    return frozenset(_loaded(tree))


def eager_names(text: str) -> frozenset[str]:
    """Names that running ``text`` reads at once. What only a function's body reads can be defined later,
    unless the cell itself calls something."""
    tree = parse(text)
    if tree is None:
        return used_names(text)
    names: set[str] = set()
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return used_names(text)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.add(node.id)
        skipped = set()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            skipped = {id(item) for item in node.body}
        elif isinstance(node, ast.Lambda):
            skipped = {id(node.body)}
        stack.extend(child for child in ast.iter_child_nodes(node) if id(child) not in skipped)
    return frozenset(names)


def extract(text: str, names: frozenset[str]) -> str | None:
    """The top-level statements of ``text`` that bind ``names``, what they use of it, and its imports.

    None if nothing binds one of ``names``.
    """
    tree = parse(text)
    if tree is None:
        return _extract_by_lines(text, names)
    bound = [_bound(node) for node in tree.body]
    picked = {index for index, found in enumerate(bound) if found & names}
    if not picked:
        return None
    queue = list(picked)
    while queue:
        needed = _loaded(tree.body[queue.pop()])
        more = {index for index, found in enumerate(bound) if found & needed} - picked
        picked |= more
        queue.extend(more)
    picked |= {index for index, node in enumerate(tree.body) if isinstance(node, (ast.Import, ast.ImportFrom))}
    lines = text.split("\n")
    return "\n".join(_lines_of(tree.body[index], lines) for index in sorted(picked)) + "\n"


def _lines_of(node: ast.stmt, lines: list[str]) -> str:
    first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
    return "\n".join(lines[first - 1 : node.end_lineno])


def _loaded(node: ast.AST) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)}


def _extract_by_lines(text: str, names: frozenset[str]) -> str | None:
    """Blocks of a broken text: from the line that binds one of ``names`` to the next unindented line."""
    blocks: list[str] = []
    taking = False
    for line in text.split("\n"):
        if line[:1] not in ("", " ", "\t", ")", "]", "}"):
            match = _DEFINITION.match(line)
            taking = bool(match) and bool({match.group(1), match.group(2)} & names)
        if taking:
            blocks.append(line)
    return "\n".join(blocks) + "\n" if blocks else None


def code_in_text(text: str) -> str | None:
    """The code inside a text cell: fenced blocks, else all of it, else from the first line that looks like code."""
    fenced = [block for block in _FENCED.findall(text) if block.strip()]
    if fenced:
        return "\n".join(block.rstrip("\n") for block in fenced) + "\n"
    tree = parse(text)
    if tree is not None and own_names(text):
        return text
    start = _CODE_START.search(text)
    return text[start.start() :] if start else None


def without_late_stub(text: str, stub: str) -> str:
    """``text`` with the stub's functions blanked where the student's own stand above them in the same cell."""
    tree, stub_tree = parse(text), parse(stub)
    if tree is None or stub_tree is None:
        return text
    given = {node.name: node for node in stub_tree.body if isinstance(node, _FUNCTION)}
    own = [node for node in tree.body if isinstance(node, _FUNCTION) and node.name in given]
    if len(own) == len({node.name for node in own}):
        return text
    stubs = {name: _dump(node) for name, node in given.items()}
    lines, answered = text.split("\n"), set()
    for node in own:
        if _dump(node) != stubs[node.name]:
            answered.add(node.name)
        elif node.name in answered:
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(lines)


def _dump(node: ast.AST) -> str:
    """``ast.dump``, or nothing for a tree that is too deep for it."""
    try:
        return ast.dump(node)
    except (RecursionError, MemoryError):
        return ""


_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@lru_cache(maxsize=64)
def tokens(text: str) -> tuple[str, ...]:
    """The code of ``text`` without comments, layout and line ends: equal for two texts that do the same."""
    tree = parse(text)
    if tree is not None and not _CELL_MAGIC.match(text):
        try:
            return ("ast", ast.dump(tree), *_magics(text))
        except (RecursionError, MemoryError):
            pass
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in _LAYOUT and token.string.strip():
                found.append(token.string)
    except (tokenize.TokenError, SyntaxError, ValueError):
        return ("text", *_COMMENT_LINE.sub("", text).split())
    return ("tokens", *found)


_LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


def _magics(text: str) -> list[str]:
    """Lines that parse only when masked: part of the code, though no Python."""
    if _parse(text) is not None:
        return []
    return [line.strip() for line in text.split("\n") if line.strip()[:1] in ("%", "!")]


def same_code(first: str, second: str) -> bool:
    """True where the two texts differ in comments, blank space and formatting at most."""
    return first == second or tokens(first) == tokens(second)


def is_blank(text: str) -> bool:
    """True for a text without any code: empty, or nothing but comments."""
    return not _COMMENT_LINE.sub("", text).strip()


def squeeze(text: str) -> str:
    """``text`` without blank space, for comparing prose and code by content."""
    return "".join(text.split())
