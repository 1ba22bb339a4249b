"""BEGIN/END markers: a mistyped one ships the solution or the hidden tests."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from difflib import SequenceMatcher

from grader.authoring.checks.finding import Cell, Finding, label, nbgrader_of, tags
from grader.authoring.release import INSTRUCTOR_ONLY
from grader.model import Notebook

REGIONS = ("SOLUTION", "HIDDEN TESTS", "MARK SCHEME")
# Any number of #: nbgrader looks only for the words, and whoever writes `# BEGIN SOLUTION` has always been served.
EXACT = re.compile(r"\s*#+ *(BEGIN|END) (SOLUTION|HIDDEN TESTS|MARK SCHEME)\s*")
# What nbgrader looks for, anywhere in a line.
SEEN_BY_NBGRADER = re.compile(r"(BEGIN|END) (SOLUTION|HIDDEN TESTS|MARK SCHEME)")
LONGEST_MARKER = 40


@dataclass(frozen=True)
class Region:
    """Lines between two markers; ``kind`` is one of REGIONS."""

    kind: str
    lines: tuple[str, ...]


def check_markers(notebook: Notebook) -> list[Finding]:
    """Mistyped, unbalanced, nested or misplaced markers in any cell that students get."""
    findings: list[Finding] = []
    for index, cell in enumerate(notebook["cells"]):
        if INSTRUCTOR_ONLY not in tags(cell):
            findings += _check_cell(cell, label(notebook, index))
    return findings


def regions(source: str) -> list[Region]:
    """The marked regions of a cell whose markers are in order."""
    found: list[Region] = []
    kind, lines = None, []
    for line in source.split("\n"):
        match = EXACT.fullmatch(line)
        if match and match[1] == "BEGIN":
            kind, lines = match[2], []
        elif match and kind:
            found.append(Region(kind, tuple(lines)))
            kind = None
        elif kind:
            lines.append(line)
    return found


def _check_cell(cell: Cell, name: str) -> list[Finding]:
    findings = []
    open_kind: str | None = None
    for line in cell["source"].split("\n"):
        match = EXACT.fullmatch(line)
        if match is None:
            meant = mistyped(line, code=cell["cell_type"] == "code")
            if meant:
                findings.append(Finding(name, f"mistyped marker {line.strip()!r}", f"write exactly `### {meant}`"))
            continue
        begins, kind = match[1] == "BEGIN", match[2]
        if begins:
            if open_kind is not None:
                findings.append(Finding(name, f"BEGIN {kind} inside a {open_kind} region",
                                        f"close it first with `### END {open_kind}`"))  # fmt: skip
            open_kind = kind
            findings += _check_place(cell, kind, name)
        elif open_kind != kind:
            findings.append(Finding(name, f"END {kind} without BEGIN {kind}", f"put `### BEGIN {kind}` above it"))
        else:
            open_kind = None
    if open_kind is not None:
        findings.append(Finding(name, f"BEGIN {open_kind} without END {open_kind}",
                                f"put `### END {open_kind}` below it"))  # fmt: skip
    return findings


def _check_place(cell: Cell, kind: str, name: str) -> list[Finding]:
    block = nbgrader_of(cell)
    key, wanted = {
        "SOLUTION": ("solution", "a solution cell"),
        "HIDDEN TESTS": ("grade", "a graded cell"),
        "MARK SCHEME": ("task", "a task cell"),
    }[kind]
    if block.get(key):
        return []
    return [Finding(name, f"BEGIN {kind} in a cell that is not {wanted}", f"make it {wanted} or move the region there")]


def mistyped(line: str, *, code: bool) -> str | None:
    """The marker that a line was meant to be, where it is not written exactly so; else None.

    In a code cell only comments and what nbgrader itself would take for a marker count; in text only a line that
    consists of nothing else.
    """
    seen = SEEN_BY_NBGRADER.search(line)
    if seen:
        return seen.group(0)
    # Letters without width, such as a pasted U+200B, can't be seen in an editor.
    text = "".join(" " if c.isspace() else c for c in line if unicodedata.category(c) != "Cf").strip()
    if len(text) > LONGEST_MARKER or (code and not text.startswith("#")):
        return None
    if re.search(r"[^\x00-\x7f]", text):
        return None
    letters = "".join(re.findall("[A-Za-z]", text)).upper()
    hashes = len(text) - len(text.lstrip("#"))
    targets = {"SOLUTION": "SOLUTION", "HIDDENTESTS": "HIDDEN TESTS", "MARKSCHEME": "MARK SCHEME"}
    if hashes == 3 and code:
        targets |= {"TESTS": "HIDDEN TESTS", "HIDDEN": "HIDDEN TESTS"}
    for word, meaning in (("BEGIN", "BEGIN"), ("START", "BEGIN"), ("END", "END"), ("STOP", "END"), ("FINISH", "END")):
        for target, kind in targets.items():
            if _like(letters, word, target):
                return f"{meaning} {kind}"
    return None


def _like(letters: str, word: str, target: str) -> bool:
    """Whether the letters are the word and the target, give or take a typing error in each."""
    return any(
        _similar(letters[:cut], word, 0.75) and _similar(letters[cut:], target, 0.8)
        for cut in range(max(1, len(word) - 2), len(word) + 3)
    )


def _similar(first: str, second: str, at_least: float) -> bool:
    if 2 * min(len(first), len(second)) < at_least * (len(first) + len(second)):
        return False  # even if all of the shorter one were in the longer one
    return SequenceMatcher(None, first, second, autojunk=False).ratio() >= at_least
