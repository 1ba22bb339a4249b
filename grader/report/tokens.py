"""Python code as tokens that stay the same when names, comments and layout change.

A lexer of our own: students' code may be no Python at all, and the standard one gives other tokens in each version.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection
from dataclasses import dataclass

MAX_CODE = 20_000  # characters of an answer that are looked at
_REMEMBERED = 50  # names; one that was used before so many others counts as new

# A string without an end goes to the end of its line or the file, so that no text takes more than one pass.
_TOKEN = re.compile(
    r"""
    (?P<comment>\#[^\n]*)
    |(?P<string>[rbfuRBFU]{0,2}(?:\"\"\"(?:\\.?|[^\\])*?(?:\"\"\"|\Z)|\'\'\'(?:\\.?|[^\\])*?(?:\'\'\'|\Z)
        |"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))
    |(?P<line>\n)
    |(?P<name>[^\W\d]\w*)
    |(?P<number>\d[\w.]*)
    |(?P<sign>\*\*=?|//=?|<<=?|>>=?|->|[-+*/%&|^=<>!:@]=|[^\s\w])
    """,
    re.VERBOSE | re.DOTALL,
)
_KEPT = frozenset(keyword.kwlist) | frozenset(dir(builtins))


@dataclass(frozen=True)
class Token:
    """``text`` as written; ``line`` counts from 0; ``kind`` is comment, string, name, number or sign."""

    kind: str
    text: str
    line: int


def lex(code: str) -> list[Token]:
    """Every token of ``code``; never fails. Docstrings count as comments."""
    tokens: list[Token] = []
    line, at_line_start, code = 0, True, code[:MAX_CODE]
    for match in _TOKEN.finditer(code):
        kind, text = match.lastgroup or "", match.group()
        if kind == "line":
            line, at_line_start = line + 1, True
            continue
        if kind == "string" and at_line_start and not code[match.end() : match.end() + 80].split("\n")[0].strip():
            kind = "comment"
        tokens.append(Token(kind, text, line))
        line, at_line_start = line + text.count("\n"), False
    return tokens


def own_tokens(code: str, given: Collection[str]) -> list[str]:
    """The student's own tokens, with names replaced by how recently they were used.

    A name becomes ``n+`` where it is new, else ``n`` and the number of other names used since its last use. So
    renaming changes nothing, and a line put in between changes only its surroundings. Keywords, builtins, attributes
    (``.append``) and literals stay.

    Args:
        given: lines of the release, stripped; tokens on such a line are left out.
    """
    lines = [line.strip() in given for line in code.split("\n")]
    recent: list[str] = []
    kept: list[str] = []
    before = ""
    for token in lex(code):
        if token.kind == "comment":
            continue
        text = token.text
        if token.kind == "name" and text not in _KEPT and before != ".":
            text = _recency(text, recent)
        before = token.text
        if not lines[token.line]:
            kept.append(text)
    return kept


def line_keys(code: str) -> list[str]:
    """For every line what it does whatever its names are; empty for a blank line or a comment."""
    keys = [""] * (code.count("\n") + 1)
    before = ""
    for token in lex(code):
        if token.kind != "comment":
            renamed = token.kind == "name" and token.text not in _KEPT and before != "."
            keys[token.line] += "_ " if renamed else token.text + " "
            before = token.text
    return keys


def own_words(code: str, given: Collection[str]) -> set[str]:
    """Names that the student chose and comments that the student wrote, as they stand."""
    lines = [line.strip() in given for line in code.split("\n")]
    words = set()
    for token in lex(code):
        if lines[token.line]:
            continue
        if token.kind == "name" and len(token.text) >= 3 and token.text not in _KEPT:
            words.add(token.text)
        elif token.kind == "comment" and token.text.startswith("#") and len(token.text) >= 6:
            words.add(" ".join(token.text.split()))
    return words


def _recency(name: str, recent: list[str]) -> str:
    if name not in recent:
        recent.insert(0, name)
        del recent[_REMEMBERED:]
        return "n+"
    position = recent.index(name)
    recent.insert(0, recent.pop(position))
    return f"n{position}"
