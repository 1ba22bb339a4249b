"""Text of solutions and hidden tests that is still in the student's notebook."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass

from grader.authoring.checks.finding import Cell, Finding, label, nbgrader_of, tags
from grader.authoring.checks.markers import regions
from grader.authoring.release import INSTRUCTOR_ONLY
from grader.model import Notebook

# Lines with fewer characters (without spaces) or fewer different names and values are found in any program.
SHORTEST = 20
FEWEST_TOKENS = 4
SHORTEST_TEXT = 12
WORD = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|\"[^\"]*\"|'[^']*'|[一-鿿]")
OPENING = re.compile(r"(import|from|for|while|with|def|class|try|else|finally|except|async|@)\b|@")


@dataclass(frozen=True)
class Secret:
    """A line that students must not see. ``kind``: solution, hidden test or instructor-only text."""

    kind: str
    cell: str
    line: str


def check_leaks(source: Notebook, released: Notebook) -> list[Finding]:
    """Search the whole released notebook for distinctive lines of what the release removed."""
    places = list(_places(released))
    public = _visible_code(released)
    findings: dict[tuple[str, str, str], Finding] = {}
    for secret in _secrets(source):
        needle = squeeze(secret.line)
        if secret.kind == "hidden test" and "assert" not in needle.lower() and needle in public:
            continue  # set-up that a visible test shares
        for place, text in places:
            if needle not in text:
                continue
            key = (place, secret.kind, secret.cell)
            cause = f"it shows {secret.kind} text of cell {secret.cell}: {secret.line.strip()[:60]!r}"
            remedy = "remove that line, or write it differently where students may see it"
            findings.setdefault(key, Finding(place, cause, remedy))
    return list(findings.values())


def squeeze(text: str) -> str:
    """Text without white space, so that indentation and line breaks hide nothing."""
    return re.sub(r"\s+", "", text)


def is_distinctive(line: str) -> bool:
    """Whether a line of code is so much its own that finding it elsewhere is no chance."""
    code = line.split(" #")[0].strip()
    if code.startswith("#"):
        return len(squeeze(code.strip("# "))) >= SHORTEST_TEXT
    if OPENING.match(code) or len(squeeze(code)) < SHORTEST:
        return False
    words = {word for word in WORD.findall(code) if not keyword.iskeyword(word)}
    return len(words) >= FEWEST_TOKENS or ("assert" in code.lower() and len(words) >= 2)


def _secrets(source: Notebook) -> Iterator[Secret]:
    for index, cell in enumerate(source["cells"]):
        name = label(source, index)
        if INSTRUCTOR_ONLY in tags(cell):
            for line in cell["source"].split("\n"):
                if len(squeeze(line.strip("#>*-| "))) >= SHORTEST:
                    yield Secret("instructor-only", name, line)
            continue
        for kind, line in _removed_lines(cell):
            if is_distinctive(line) if cell["cell_type"] == "code" else len(squeeze(line)) >= SHORTEST:
                yield Secret(kind, name, line.split(" #")[0] if not line.strip().startswith("#") else line)


def _removed_lines(cell: Cell) -> Iterator[tuple[str, str]]:
    found = regions(cell["source"])
    for region in found:
        kind = "hidden test" if region.kind == "HIDDEN TESTS" else "solution"
        for line in region.lines:
            yield kind, line
    if nbgrader_of(cell).get("solution") and not any(region.kind == "SOLUTION" for region in found):
        for line in cell["source"].split("\n"):
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
