"""Who handed a file in: from the names that people, Canvas, Moodle and Blackboard give.

A name never decides what a file is, only whose it is.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime

MAX_NAME = 60  # characters
_MAX_NAME_BYTES = 150
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10))}
)
_SUFFIXES = re.compile(r"(?:\.(?:ipynb|json|txt|zip|nb|download))+\Z", re.IGNORECASE)
_COPY_NUMBER = re.compile(r"\s*[(（](\d{1,3})[)）]\s*\Z")
_COPY_WORD = re.compile(
    r"\A(?:copy[ _-]of[ _-]+|副本[ _-]*)|(?:[ _-]+copy(?:[ _-]?\d+)?|[ _-]*的?副本|[ _-]+副本)\s*\Z", re.IGNORECASE
)
# Canvas: lastnamefirst[_LATE]_USERID_ATTACHMENTID_file-1.ipynb; anonymous ones begin with anon_CODE
_CANVAS = re.compile(
    r"\A(?P<name>(?:anon_)?[^_]+(?:_[^_\d][^_]*)*?)(?P<late>_LATE)?_(?P<user>\d{3,})_(?P<file>\d{3,})_(?P<rest>.+)\Z",
    re.I,
)
# Moodle: folder "Full Name_1234567_assignsubmission_file[_]", or that in front of the file name
_MOODLE = re.compile(r"\A(?P<name>.+?)_(?P<user>\d+)_assignsubmission_(?P<kind>file|onlinetext)_?(?P<rest>.*)\Z", re.I)
# Blackboard: Assignment_username_attempt_2026-01-31-23-59-58_file.ipynb
_BLACKBOARD = re.compile(
    r"\A(?:.+_)?(?P<name>[^_]+)_(?:attempt|尝试)_(?P<time>\d{4}(?:-\d{2}){5})(?:_(?P<rest>.+))?\Z", re.IGNORECASE
)


@dataclass(frozen=True)
class Owner:
    """``key`` tells students apart; ``name`` is what they are called before cleaning."""

    key: str
    name: str
    number: str = ""  # the learning platform's own number: tells namesakes apart
    late: bool = False
    time: datetime | None = None
    order: int = 0
    platform: bool = False


def platform_owner(part: str) -> Owner | None:
    """The student in a name made by Canvas, Moodle or Blackboard; None for any other name."""
    match = _MOODLE.match(part)
    if match:
        return Owner(f"moodle:{match['name']}:{match['user']}", match["name"], match["user"], platform=True)
    stem = _SUFFIXES.sub("", part)
    match = _BLACKBOARD.match(stem)
    if match:
        time = _blackboard_time(match["time"])
        if time:
            return Owner(f"blackboard:{match['name']}", match["name"], time=time, platform=True)
    match = _CANVAS.match(stem)
    if match:
        number = re.search(r"-(\d{1,3})\Z", match["rest"])
        order = int(number.group(1)) if number else 0
        late = bool(match["late"])
        return Owner(f"canvas:{match['user']}", match["name"], match["user"], late, order=order, platform=True)
    return None


def _blackboard_time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%d-%H-%M-%S").astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def copy_number(name: str) -> int:
    """The n of ``… (n).ipynb``; 0 without."""
    match = _COPY_NUMBER.search(_SUFFIXES.sub("", name))
    return int(match.group(1)) if match else 0


def flat_owner(file_name: str, words: list[str], roster: list[str]) -> Owner:
    """The student in the name of a file that lies next to the others: what is left without the assignment's name.

    Args:
        words: names of the assignment and its notebooks.
        roster: names of the class; one that stands in the file name wins.
    """
    platform = platform_owner(file_name)
    if platform:
        return platform
    stem = unicodedata.normalize("NFC", _SUFFIXES.sub("", file_name)).strip() or file_name
    listed = roster_match(stem, roster)
    if listed:
        return Owner(f"name:{listed}", listed)
    rest = _COPY_WORD.sub("", _COPY_NUMBER.sub("", stem)).strip()
    for word in sorted(words, key=len, reverse=True):
        rest = _without_word(rest, word)
    rest = _COPY_NUMBER.sub("", rest).strip(" _-.—–")
    name = rest or stem  # only the assignment's name: every such file is a student of its own
    return Owner(f"name:{name}", name)


def _without_word(text: str, word: str) -> str:
    """``text`` without ``word`` at one of its ends, where a separator or a change of script parts them."""
    quoted = re.escape(word)
    text = re.sub(rf"\A{quoted}(?=[\s_\-.@+—–]|[^\x00-\x7f]|\Z)[\s_\-.@+—–]*", "", text, flags=re.IGNORECASE)
    return re.sub(rf"[\s_\-.@+—–]*(?<![A-Za-z0-9]){quoted}\Z", "", text, flags=re.IGNORECASE)


def roster_match(text: str, roster: list[str]) -> str | None:
    """The one name of the roster that ``text`` is, or holds as a whole word; None if none or several do."""
    folded = fold(text)
    exact = [name for name in roster if fold(name) == folded]
    if exact:
        return exact[0]
    holding = [name for name in roster if re.search(rf"(?<![^\W_]){re.escape(fold(name))}(?![^\W_])", folded)]
    longest = max(map(len, holding), default=0)
    holding = [name for name in holding if len(name) == longest]
    return holding[0] if len(holding) == 1 else None


def fold(text: str) -> str:
    """Text in the form in which names are compared."""
    return unicodedata.normalize("NFC", text).strip().casefold()


def safe_name(name: str) -> str:
    """``name`` as a folder name that every system and nbgrader accept."""
    text = unicodedata.normalize("NFC", name)
    text = "".join(char for char in text if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    text = re.sub(r"[^\w.@ -]+", "_", text)
    text = re.sub(r"\s+", " ", text).strip(" ._-@")
    while len(text) > MAX_NAME or len(text.encode()) > _MAX_NAME_BYTES:
        text = text[:-1]
    text = text.strip(" ._-@") or "student"
    return f"{text}_" if text.split(".")[0].lower() in _RESERVED else text


def unique_names(owners: list[Owner]) -> dict[str, str]:
    """A safe name for every key. Namesakes get their platform's number, else a running one."""
    by_name: dict[str, list[Owner]] = {}
    for owner in sorted(owners, key=lambda item: item.key):
        by_name.setdefault(safe_name(owner.name).casefold(), []).append(owner)
    result: dict[str, str] = {}
    used = set(by_name)
    for group in by_name.values():
        for position, owner in enumerate(group):
            name = safe_name(owner.name)
            if len(group) > 1 and owner.number:
                name = _free(f"{name}_{owner.number}", used)
            elif position:
                name = _free(f"{name}-{position + 1}", used)
            result[owner.key] = name
    return result


def _free(name: str, used: set[str]) -> str:
    candidate, number = name, 2
    while candidate.casefold() in used:
        candidate, number = f"{name}-{number}", number + 1
    used.add(candidate.casefold())
    return candidate
