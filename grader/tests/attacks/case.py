"""What a case is, and the notebooks that cases are made from."""

from __future__ import annotations

import json
import os
import textwrap
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from grader.model import Notebook
from grader.tests.classroom import CORRECT, filled

RELU, MEAN = CORRECT["q1"], CORRECT["q2"]
WRONG_RELU = "def relu_sum(xs):\n    return -1\n"
# What a hostile notebook prints or raises when it got what it must not get. Its own source never holds the word whole.
MARK = "PWNED"
LITTER = "attack_litter"  # begins the name of every file that a hostile notebook tries to leave
SURVIVOR = "atk_survivor"  # name of every process that a hostile notebook tries to leave
SETTING = "COURSE_SECRET_SETTING"  # a variable in the grader's own environment

PRELUDE = f"""\
import os, sys, ctypes
WON = "".join(["PW", "NED"])
def won(what):
    print(WON, what)
    raise RuntimeError(WON + " " + str(what)[:200])
def attempt(what, action):
    try:
        got = action()
    except BaseException:
        return
    if got:
        print(WON, what, got)
        raise RuntimeError(WON + " " + what)
def named():
    ctypes.CDLL(None).prctl(15, b"{SURVIVOR}", 0, 0, 0)
libc = ctypes.CDLL(None, use_errno=True)
"""


@dataclass(frozen=True)
class Link:
    """A symbolic link in a hand-in."""

    target: str


class Files(dict[str, bytes | Notebook | Link | None]):
    """Several files of one hand-in by relative path; None makes a folder."""


Made = Union[Notebook, bytes, Files]  # noqa: UP007 (evaluated by Python 3.10)


@dataclass(frozen=True)
class Case:
    """One hand-in.

    Args:
        name: its folder, unless ``at`` names another place in the class.
        score: what it earns of 10; None where no number is due (then there must be a reason).
        notes: each must stand in some note or reason that the student reads.
        flags: kinds of flags that must be raised; ``quiet`` cases must raise none at all.
        status: of the student in the results.
    """

    name: str
    kind: str
    mechanism: str
    score: float | None
    make: Callable[[], Made]
    status: str = "graded"
    notes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    quiet: bool = False
    at: str = ""
    tags: frozenset[str] = field(default=frozenset())

    @property
    def place(self) -> str:
        return self.at or self.name

    def write(self, root: Path) -> None:
        """Put the hand-in into the folder of a class."""
        made = self.make()
        target = root / os.fsdecode(self.place)
        if isinstance(made, Files):
            files = made
        elif target.suffix.lower() in (".ipynb", ".zip", ".txt", ".json"):
            target, files = target.parent, Files({target.name: made})
        else:
            files = Files({"ps1.ipynb": made})
        for name, content in files.items():
            path = target / name
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Link):
                path.symlink_to(content.target)
            else:
                path.write_bytes(content if isinstance(content, bytes) else dump(content))


class Registry:
    """Collects the cases of one module."""

    def __init__(self, kind: str, **defaults: Any) -> None:
        self.kind = kind
        self.defaults = defaults
        self.cases: list[Case] = []

    def __call__(self, name: str, mechanism: str, score: float | None, **more: Any) -> Callable[[Any], Any]:
        """Register the decorated function, which makes the hand-in."""

        def add(make: Callable[[], Made]) -> Callable[[], Made]:
            self.add(name, mechanism, score, make, **more)
            return make

        return add

    def add(self, name: str, mechanism: str, score: float | None, make: Callable[[], Made], **more: Any) -> None:
        self.cases.append(Case(name, self.kind, mechanism, score, make, **{**self.defaults, **more}))


def dump(notebook: Notebook) -> bytes:
    return json.dumps(notebook, ensure_ascii=False).encode("utf-8", "surrogatepass")


def good() -> Notebook:
    """A correct hand-in."""
    return filled(CORRECT)


def cell_of(notebook: Notebook, grade_id: str) -> dict[str, Any]:
    return next(c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id)


def code(source: str, **more: Any) -> dict[str, Any]:
    """A code cell of the student's own."""
    return {
        "cell_type": "code",
        "metadata": {},
        "source": textwrap.dedent(source).strip("\n"),
        "outputs": [],
        "execution_count": None,
        **more,
    }


def text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def notebook_of(*cells: dict[str, Any]) -> Notebook:
    """A notebook without anything of the course's in it but the code."""
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 4}


def answers(
    q1: str = RELU, q2: str = MEAN, *, before: tuple[str, ...] = (), between: tuple[str, ...] = (), after=()
) -> Notebook:
    """The release with these answers, and cells of the student's own before, between and after them."""
    notebook = filled({"q1": textwrap.dedent(q1).strip("\n"), "q2": textwrap.dedent(q2).strip("\n")})
    cells = notebook["cells"]
    place = cells.index(cell_of(notebook, "q2"))
    notebook["cells"] = [
        *map(code, before),
        *cells[:place],
        *map(code, between),
        *cells[place:],
        *map(code, after),
    ]
    return notebook


def hostile(q1: str | None = None, q2: str = MEAN, *, cell: str = "", after: str = "") -> Notebook:
    """A notebook of an attacker: hostile code runs in its first cell, in a call of a test, or in its last cell."""
    body = textwrap.dedent(q1).strip("\n") if q1 is not None else WRONG_RELU
    return answers(
        PRELUDE + body,
        q2 if q2 is MEAN else PRELUDE + textwrap.dedent(q2).strip("\n"),
        before=(PRELUDE + textwrap.dedent(cell),) if cell else (),
        after=(PRELUDE + textwrap.dedent(after),) if after else (),
    )


def shown(name: str) -> str:
    """A file name as results show it."""
    name = unicodedata.normalize("NFC", name)
    return "".join(c if c.isprintable() else "?" for c in name)
