"""Text of solutions and hidden tests that is still in the student's notebook."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass

from grader.authoring.checks.finding import Cell, Finding, label, nbgrader_of, tags
from grader.authoring.checks.literals import check_literals
from grader.authoring.checks.markers import regions
from grader.authoring.release import INSTRUCTOR_ONLY
from grader.model import Notebook

# Lines with fewer characters (without spaces) or fewer different names and values are found in any program.
SHORTEST = 20
FEWEST_TOKENS = 4
SHORTEST_COMMENT = 20
SHORTEST_CHINESE = 10
SHORTEST_ANSWER = 40
WORD = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|\"[^\"]*\"|'[^']*'|[一-鿿]")
OPENING = re.compile(r"(import|from|for|while|with|def|class|try|else|finally|except|async|@)\b|@")


@dataclass(frozen=True)
class Secret:
    """A line that students must not see. ``kind``: solution, hidden test or instructor-only text."""

    kind: str
    cell: str
    line: str


def check_leaks(source: Notebook, released: Notebook) -> list[Finding]:
    """Search the whole released notebook for distinctive lines and values of what the release removed."""
    places = list(_places(released))
    public = _visible_code(released)
    findings: dict[tuple[str, str, str], Finding] = {}
    for secret in _secrets(source):
        needle = squeeze(secret.line)
        if secret.kind != "solution" and "assert" not in needle.lower() and needle in public:
            continue  # set-up that a visible cell shares
        for place, text in places:
            if needle not in text:
                continue
            key = (place, secret.kind, secret.cell)
            cause = f"it shows {secret.kind} text of cell {secret.cell}: {secret.line.strip()[:60]!r}"
            remedy = "remove that line, or write it differently where students may see it"
            findings.setdefault(key, Finding(place, cause, remedy))
    return [*findings.values(), *check_literals(source, released, places)]


def squeeze(text: str) -> str:
    """Text without white space, so that indentation and line breaks hide nothing."""
    return re.sub(r"\s+", "", text)


def is_distinctive(line: str) -> bool:
    """Whether a line of code is so much its own that finding it elsewhere is no chance."""
    code = line.split(" #")[0].strip()
    if code.startswith("#"):
        words = squeeze(code.strip("# "))
        return len(words) >= (SHORTEST_CHINESE if re.search("[一-鿿]", words) else SHORTEST_COMMENT)
    if OPENING.match(code) or len(squeeze(code)) < SHORTEST:
        return False
    words = {word for word in WORD.findall(code) if not keyword.iskeyword(word)}
    return len(words) >= FEWEST_TOKENS or ("assert" in code.lower() and len(words) >= 2)


def _secrets(source: Notebook) -> Iterator[Secret]:
    for index, cell in enumerate(source["cells"]):
        for kind, line in _removed_lines(cell):
            comment = line.strip().startswith("#")
            yield Secret(kind, label(source, index), line if comment else line.split(" #")[0])


def _removed_lines(cell: Cell) -> Iterator[tuple[str, str]]:
    """(kind, line) of every distinctive line of a cell that the release removes."""
    lines = cell["source"].split("\n")
    is_code = cell["cell_type"] == "code"
    if INSTRUCTOR_ONLY in tags(cell):
        for line in lines:
            if is_distinctive(line) if is_code else len(squeeze(line.strip("#>*-| "))) >= SHORTEST:
                yield "instructor-only", line
        return
    found = regions(cell["source"])
    for region in found:
        kind = "hidden test" if region.kind == "HIDDEN TESTS" else "solution"
        for line in region.lines:
            if is_distinctive(line) if is_code else len(squeeze(line)) >= SHORTEST:
                yield kind, line
    if nbgrader_of(cell).get("solution") and not any(region.kind == "SOLUTION" for region in found):
        # The whole cell is the solution; it may well repeat the question in comments or in words.
        for line in lines:
            is_comment = line.strip().startswith("#")
            if (is_distinctive(line) and not is_comment) if is_code else len(squeeze(line)) >= SHORTEST_ANSWER:
                yield "solution", line


def _visible_code(released: Notebook) -> str:
    return "\n".join(squeeze(cell["source"]) for cell in released["cells"] if cell["cell_type"] == "code")


def _places(released: Notebook) -> Iterator[tuple[str, str]]:
    """(where, squeezed text) of everything in a notebook that can carry text."""
    for index, cell in enumerate(released["cells"]):
        name = label(released, index)
        yield name, squeeze(cell["source"])
        extras = {key: cell[key] for key in ("metadata", "attachments", "outputs") if cell.get(key)}
        for key, value in extras.items():
            yield f"{name} ({key})", squeeze("\n".join(_strings(value)))
    yield "", squeeze("\n".join(_strings(released["metadata"])))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        yield from _decoded(value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _strings(inner)


def _decoded(value: str) -> Iterator[str]:
    """A text attachment in base64, decoded."""
    import base64
    import binascii

    if len(value) < SHORTEST or not re.fullmatch(r"[A-Za-z0-9+/\s]+=*\s*", value):
        return
    try:
        yield base64.b64decode(value, validate=False).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return
