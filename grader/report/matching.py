"""Whose row is whose in a table from a learning platform."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from grader.intake.names import Owner, fold, platform_owner, safe_name

NO_ROW = "no row of the table is theirs"
SEVERAL_ROWS = "several rows could be theirs"
SAME_ROW = "another student's submission fits the same row"


@dataclass(frozen=True)
class Row:
    """What the platform knows of a student. ``number``: its own number, as it stands in the names of downloads."""

    number: str
    name: str
    logins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Person:
    """A student of the class, with what the submission's name says. ``number`` is empty where it has none."""

    student: str
    number: str
    names: tuple[str, ...]


@dataclass
class Matches:
    """Row numbers by student; and why the others have none."""

    rows: dict[str, int] = field(default_factory=dict)
    unmatched: dict[str, str] = field(default_factory=dict)


def person(entry: dict[str, Any], platform: str) -> Person:
    """A student of results.json, for a platform: "canvas" or "moodle"."""
    owner = owner_of(entry)
    if owner is None:
        return Person(entry["student"], "", (entry["student"],))
    number = owner.number if owner.key.startswith(f"{platform}:") else ""
    return Person(entry["student"], number, (owner.name, entry["student"]))


def owner_of(entry: dict[str, Any]) -> Owner | None:
    """What Canvas or Moodle wrote into the path of the submission that was graded.

    Only a part that gave the student's name counts: names inside a student's own folder are the student's to choose.
    """
    for part in re.split(r"[/\\!]", entry["submission"]):
        owner = platform_owner(part)
        if owner is not None:
            return owner if entry["student"].startswith(safe_name(owner.name)) else None
    return None


def match(people: Sequence[Person], rows: Sequence[Row]) -> Matches:
    """Find everybody's row: by the platform's number, else by login, else by name. A doubt leaves both out."""
    matches = Matches()
    waiting = list(people)
    for of_person, of_row in _WAYS:
        free = [index for index in range(len(rows)) if index not in set(matches.rows.values())]
        index_of: dict[str, set[int]] = {}
        for index in free:
            for key in of_row(rows[index]):
                index_of.setdefault(key, set()).add(index)
        found = {p.student: set().union(*(index_of.get(key, set()) for key in of_person(p))) for p in waiting}
        wanted = Counter(next(iter(indices)) for indices in found.values() if len(indices) == 1)
        for student, indices in found.items():
            if len(indices) > 1:
                matches.unmatched[student] = SEVERAL_ROWS
            elif indices and wanted[min(indices)] > 1:
                matches.unmatched[student] = SAME_ROW
            elif indices:
                matches.rows[student] = min(indices)
                matches.unmatched.pop(student, None)
        waiting = [p for p in waiting if p.student not in matches.rows]
    for p in waiting:
        matches.unmatched.setdefault(p.student, NO_ROW)
    return matches


def name_keys(name: str) -> set[str]:
    """Forms in which a name is compared: letters and digits alone, family name first and last."""
    family, comma, given = name.partition(",")
    words = name.split()
    forms = {name}
    if comma:
        forms |= {given + family, family + given}
    elif len(words) > 1:
        forms |= {"".join([words[-1], *words[:-1]]), "".join([*words[1:], words[0]])}
    return {key for form in forms if (key := _letters(form))}


def _letters(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(char for char in plain if char.isalnum())


def _login_keys(row: Row) -> set[str]:
    whole = {fold(login) for login in (*row.logins, row.number) if login}
    return whole | {login.split("@")[0] for login in whole}


_WAYS: tuple[tuple[Callable[[Person], set[str]], Callable[[Row], set[str]]], ...] = (
    (lambda p: {p.number} - {""}, lambda row: {row.number} - {""}),
    (lambda p: {fold(name) for name in p.names}, _login_keys),
    (lambda p: set().union(*map(name_keys, p.names)), lambda row: name_keys(row.name)),
)
