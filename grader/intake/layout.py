"""Whose file is whose: reads a tree of files as a class."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable

from grader.intake.archive import Entry, UnreadableFile
from grader.intake.names import Owner, flat_owner, platform_owner, roster_match
from grader.intake.textcodec import decode_text

_NOTEBOOK = re.compile(r"\.ipynb(?:\.(?:txt|json|download|ipynb))*\Z", re.IGNORECASE)
_WRAPPERS = frozenset({"submitted", "submissions", "submission", "提交", "作业"})
_VERSION = re.compile(
    r"\A(?:v(?:er(?:sion)?)?[ _.-]?\d+|old|new|backup|draft|final|attempt[ _-]?\d*|part[ _-]?\d+|src|code|notebooks?|"
    r"旧|新|备份|草稿|最终.*|第.次.*|hw.*|homework.*|assignment.*|作业.*)\Z",
    re.IGNORECASE,
)


def is_notebook_name(name: str) -> bool:
    """True for a name that says it is a notebook, also as browsers mangle it."""
    return bool(_NOTEBOOK.search(name))


def is_zip_name(name: str) -> bool:
    return name.lower().endswith(".zip")


def looks_like_notebook(entry: Entry) -> bool:
    """A file whose name doesn't say that it is a notebook, but whose beginning does."""
    if os.path.splitext(entry.name)[1].lower() not in (".json", ".txt", ".nb", ".ipy", "") or entry.problem:
        return False
    try:
        head = decode_text(entry.read(65_536))[0]
    except UnreadableFile:
        return False
    return head.lstrip("\ufeff \t\r\n").startswith("{") and ('"cells"' in head or '"nbformat"' in head)


def may_hold_notebook(entry: Entry) -> bool:
    """True for a notebook, a zip, or a file of any name that reads like a notebook."""
    return is_notebook_name(entry.name) or is_zip_name(entry.name) or looks_like_notebook(entry)


def assign_owners(
    entries: Iterable[Entry], words: list[str], roster: list[str]
) -> tuple[list[tuple[Owner, Entry]], list[Entry]]:
    """Each file with its student; and the files beside the students that belong to nobody."""
    entries = list(entries)
    depth = _student_depth(entries, words, roster)
    owned, loose = [], []
    for entry in entries:
        owner = _owner(entry, depth, words, roster)
        if owner is None:
            loose.append(entry)
        else:
            owned.append((owner, entry))
    return owned, loose


def _owner(entry: Entry, depth: int, words: list[str], roster: list[str]) -> Owner | None:
    # Below a student's folder names are the student's own: they can't make a file someone else's.
    for part in entry.parts[: depth + 1]:
        found = platform_owner(part)
        if found:
            return found
    if len(entry.parts) > depth + 1:
        return _folder_owner(entry.parts[depth], roster)
    if may_hold_notebook(entry) or (entry.problem and "." not in entry.name):  # the latter: a link to a folder
        return flat_owner(entry.name, words, roster)
    listed = roster_match(entry.name.rsplit(".", 1)[0], roster)
    return flat_owner(listed, words, roster) if listed else None


def _folder_owner(folder: str, roster: list[str]) -> Owner:
    name = unicodedata.normalize("NFC", folder)
    listed = roster_match(name, roster)
    # The folder as it is tells students apart: "a+b" and "a b" are two.
    return Owner(f"name:{listed}", listed) if listed else Owner(f"name:{name}", name)


def _student_depth(entries: list[Entry], words: list[str], roster: list[str]) -> int:
    """How many folders lie above those that are named after students."""
    depth = 0
    paths = [entry.parts for entry in entries if is_notebook_name(entry.name) or is_zip_name(entry.name)]
    known = {word.casefold() for word in words} | _WRAPPERS
    while paths and all(len(path) > depth + 1 for path in paths):
        tops = {path[depth] for path in paths}
        if any(platform_owner(top) for top in tops):
            break
        below = [path[depth + 1 : -1] for path in paths]
        sole_wrapper = len(tops) == 1 and _wraps(next(iter(tops)), below, paths, depth, known)
        all_platform = all(any(map(platform_owner, path[depth + 1 :])) for path in paths)
        if not sole_wrapper and not all_platform and not _are_groups(paths, depth, known, roster):
            break
        depth += 1
    return depth


def _wraps(top: str, below: list[tuple[str, ...]], paths: list[tuple[str, ...]], depth: int, known: set[str]) -> bool:
    """True where the one folder that holds everything stands for the class, not for a student."""
    if top.casefold() in known:
        return True
    files = [path[-1] for path in paths if len(path) == depth + 2]
    if any(platform_owner(name) for name in files) or any(rest and platform_owner(rest[0]) for rest in below):
        return True
    children = {rest[0] for rest in below if rest}
    students = {child for child in children if child.casefold() not in known and not _VERSION.match(child)}
    return not files and len(students) > 1


def _are_groups(paths: list[tuple[str, ...]], depth: int, known: set[str], roster: list[str]) -> bool:
    """True where the folders at this depth are groups of students (sections), so that students lie one deeper."""
    children: dict[str, set[str]] = {}
    for path in paths:
        children.setdefault(path[depth], set()).add(path[depth + 1] if len(path) > depth + 2 else "")
    if any("" in found for found in children.values()):
        return False
    names = [name for found in children.values() for name in found]
    if roster and any(roster_match(top, roster) for top in children):
        return False
    if any(name.casefold() in known or _VERSION.match(name) for name in names):
        return False
    distinct = len(set(names)) == len(names)
    return distinct and any(len(found) > 1 for found in children.values())
