"""A folder or zip of hand-ins → one Submission per student."""

from __future__ import annotations

import csv
import io
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from grader.errors import GraderError
from grader.intake.archive import (
    Entry,
    UnreadableFile,
    file_entry,
    open_student_zip,
    readable_name,
    walk_folder,
    walk_zip,
)
from grader.intake.decode import Decoded, decode_notebook
from grader.intake.layout import assign_owners, is_notebook_name, is_zip_name, looks_like_notebook, may_hold_notebook
from grader.intake.names import (
    Owner,
    copy_number,
    flat_owner,
    fold,
    platform_owner,
    roster_match,
    safe_name,
    unique_names,
)
from grader.intake.recognise import Fingerprint
from grader.intake.textcodec import decode_text
from grader.model import Flag, Notebook, Submission
from grader.rebuild import rebuild

MAX_CANDIDATES = 20  # notebooks of one student that are looked into, newest first
MAX_STUDENT_BYTES = 400 << 20  # that are read for one student

NOT_SUBMITTED = "未提交"
_NO_NOTEBOOK = "没有找到 notebook（no .ipynb file）：请提交 .ipynb 文件"
_OTHER_NOTEBOOK = "这份 notebook 里没有本次作业的任何题目（another notebook）：请确认交的是本次作业的文件"
_ARCHIVES = (".rar", ".7z", ".tar", ".gz", ".tgz", ".bz2", ".xz")
_SAME_TIME = 2  # seconds: the resolution of times in zips
_CLOCK_TOLERANCE = timedelta(minutes=2)
# fmt: off
_THIRD_PARTY = frozenset({
    "numpy", "torch", "pandas", "matplotlib", "scipy", "sklearn", "nbgrader", "nbformat", "nbclient",
    "nbconvert", "IPython", "ipykernel", "jupyter", "pytest", "hypothesis", "traitlets", "sitecustomize",
    "usercustomize", "conftest", "grader", "nbgrader_config", "jupyter_config", "ipython_config",
})
# fmt: on
_COMMON_NAMES = frozenset({"test", "this"})  # also modules of Python, but no one means those
_HEADERS = frozenset(
    {"student", "students", "name", "id", "student_id", "username", "email", "学号", "姓名", "学生", "用户名"}
)


def collect(
    path: Path | str,
    assignment: str,
    release: Notebook,
    *,
    source_names: Iterable[str] = (),
    roster: Path | str | Iterable[str] | None = None,
) -> list[Submission]:
    """Find every student's hand-in of one assignment below ``path``.

    Args:
        path: a folder (one folder per student, or files named after students), a zip of either, the zip that
            a learning platform makes for a bulk download, or one notebook.
        release: the student's edition, by which a hand-in is recognised.
        source_names: further names of the notebook, which file names may hold.
        roster: names, or a text or csv file with one in the first column of each line.

    Raises:
        GraderError: the path is missing, can't be read or holds no hand-in.
    """
    path = Path(path)
    entries = _entries(path)
    names = _read_roster(roster)
    words = _words(assignment, source_names)
    if path.is_file() and not is_zip_name(path.name) and len(entries) == 1:
        owned = [(flat_owner(entries[0].name, words, names), entries[0])]
    else:
        owned, _ = assign_owners(entries, words, names)
    hand_ins = _group(owned)
    if not any(may_hold_notebook(entry) for hand_in in hand_ins for entry in hand_in.entries):
        raise GraderError(
            str(path),
            "it holds no submission (no .ipynb file)",
            "check the path: one folder for each student, or files named after the students",
        )
    fingerprint = Fingerprint.of(release)
    ids = unique_names([hand_in.owner for hand_in in hand_ins])
    submissions = [_guarded(hand_in, ids[hand_in.owner.key], release, fingerprint) for hand_in in hand_ins]
    if names:
        submissions = _with_roster(submissions, names)
    return sorted(submissions, key=lambda submission: submission.student)


def _entries(path: Path) -> list[Entry]:
    if not os.path.lexists(path):
        raise GraderError(str(path), "there is no such file or folder", "check the spelling")
    if path.is_dir():
        entries = list(walk_folder(path))
        return _of_sole_zip(path, entries) or entries
    if is_zip_name(path.name):
        return walk_zip(path)
    if path.is_file():
        return [file_entry(path.resolve(), (readable_name(os.fsencode(path.name)),))]
    raise GraderError(str(path), "it is neither a folder nor a file", "name the folder, zip or .ipynb")


def _of_sole_zip(folder: Path, entries: list[Entry]) -> list[Entry] | None:
    """The members of the one zip that a folder holds, if that is a whole class."""
    if len(entries) != 1 or len(entries[0].parts) != 1 or not is_zip_name(entries[0].name) or entries[0].problem:
        return None
    with os.scandir(folder) as scan:
        path = next(Path(item.path) for item in scan if item.name.lower().endswith(".zip"))
    members = walk_zip(path)
    tops = {member.parts[0] for member in members}
    return members if len(tops) > 1 or any(platform_owner(top) for top in tops) else None


def _words(assignment: str, source_names: Iterable[str]) -> list[str]:
    """Names of the assignment that stand in file names: with and without extension and leading number."""
    words = {assignment}
    for name in source_names:
        words.add(re.sub(r"\.(ipynb|py)\Z", "", Path(name).name))
    words |= {re.sub(r"\A\d+[_-]", "", word) for word in words}
    return sorted(word for word in words if word)


@dataclass
class _HandIn:
    """All files of one student."""

    owner: Owner
    entries: list[Entry] = field(default_factory=list)
    late: bool = False


def _group(owned: list[tuple[Owner, Entry]]) -> list[_HandIn]:
    hand_ins: dict[str, _HandIn] = {}
    for owner, entry in owned:
        hand_in = hand_ins.setdefault(owner.key, _HandIn(owner))
        order = max(owner.order, copy_number(entry.name))
        hand_in.entries.append(replace(entry, time=owner.time or entry.time, order=order))
        hand_in.late = hand_in.late or owner.late
    for hand_in in hand_ins.values():
        hand_in.entries = [entry for entry in hand_in.entries if not entry.placeholder] or hand_in.entries[:1]
    return list(hand_ins.values())


@dataclass
class _Candidate:
    entry: Entry
    decoded: Decoded
    likeness: float

    @property
    def rank(self) -> tuple[int, int, float, str]:
        """Newest first; of files of the same moment the later copy, then the more alike."""
        seconds = int(self.entry.time.timestamp()) // _SAME_TIME if self.entry.time else 0
        return seconds, self.entry.order, self.likeness, self.entry.display


def _guarded(hand_in: _HandIn, student: str, release: Notebook, fingerprint: Fingerprint) -> Submission:
    """``_submission``; what nobody foresaw in one student's files must not stop the class."""
    try:
        return _submission(hand_in, student, release, fingerprint)
    except Exception as error:
        reason = f"读取时出错（{type(error).__name__}）：请在 Jupyter 里重新保存 notebook 后再提交"
        return Submission(student, _printable(hand_in.entries[0].display), None, reason)


def _submission(hand_in: _HandIn, student: str, release: Notebook, fingerprint: Fingerprint) -> Submission:
    notes = []
    if student != hand_in.owner.name:
        notes.append(f"原名“{_printable(hand_in.owner.name)}”，在成绩里记为“{student}”")
    if hand_in.late:
        notes.append("Canvas 标记为迟交（LATE）")
    entries, zip_problems = _open_zips(hand_in.entries)
    candidates, problems = _read_candidates(entries, fingerprint)
    chosen = _choose(candidates, release)
    shown = chosen.entry if chosen else _first_shown(entries, hand_in.entries)
    others = [entry for entry in entries if entry.display != shown.display]
    flags = _shadow_flags(others) + _timestamp_flags(others, shown)
    notes += _other_notes(others, chosen, candidates, flags)
    if chosen is None:
        problem = (problems + zip_problems or [_nothing_found(entries)])[0]
        notebook = None
    else:
        notes += chosen.decoded.notes
        problem = None if chosen.likeness else _OTHER_NOTEBOOK
        notebook = chosen.decoded.notebook if chosen.likeness else None
        notes += [text for text in (*problems, *zip_problems) if not problem]
    return Submission(
        student=student,
        path=_printable(shown.display),
        notebook=notebook,
        problem=problem,
        collected_at=shown.time,
        notes=tuple(dict.fromkeys(notes)),
        flags=tuple(flags),
        other_files=tuple(_printable(entry.display) for entry in others),
    )


def _open_zips(entries: list[Entry]) -> tuple[list[Entry], list[str]]:
    """The student's files, with the content of zips in place of the zips (one level deep)."""
    files, problems = [], []
    for entry in entries:
        if not is_zip_name(entry.name) or entry.problem:
            files.append(entry)
            continue
        inner, problem = open_student_zip(entry)
        if problem:
            problems.append(f"{_printable(entry.name)}：{problem}")
            files.append(entry)
        else:
            files += [replace(member, order=max(entry.order, copy_number(member.name))) for member in inner]
            if not inner:
                files.append(entry)
    return files, problems


def _read_candidates(entries: list[Entry], fingerprint: Fingerprint) -> tuple[list[_Candidate], list[str]]:
    """Every notebook of a student that can be read, and the reasons for those that can't."""
    named = [entry for entry in entries if is_notebook_name(entry.name)]
    named = named or [entry for entry in entries if looks_like_notebook(entry)]
    named.sort(key=lambda entry: entry.time.timestamp() if entry.time else 0.0, reverse=True)
    candidates, problems, budget = [], [], MAX_STUDENT_BYTES
    for entry in named[:MAX_CANDIDATES]:
        budget -= 0 if entry.problem else entry.size
        if budget < 0:
            problems.append("提交的 notebook 合起来太大（too large in total）：请清除输出，只提交一份")
            break
        try:
            data = entry.read()
        except UnreadableFile as error:
            problems.append(f"{_printable(entry.name)}：{error}")
            continue
        decoded = decode_notebook(data, entry.name)
        if decoded.notebook is None:
            problems.append(f"{_printable(entry.name)}：{decoded.problem}")
        else:
            candidates.append(_Candidate(entry, decoded, fingerprint.likeness(decoded.notebook)))
    return candidates, problems


def _choose(candidates: list[_Candidate], release: Notebook) -> _Candidate | None:
    """The newest hand-in of this assignment; an untouched copy only if there is nothing else."""
    if not candidates:
        return None
    best = max(candidate.likeness for candidate in candidates)
    ranked = sorted(candidates, key=lambda candidate: candidate.rank, reverse=True)
    ranked = [candidate for candidate in ranked if candidate.likeness * 2 >= best]
    if len(ranked) > 1:
        for candidate in ranked:
            if any(rebuild(release, release, candidate.decoded.notebook).attempted.values()):
                return candidate
    return ranked[0]


def _first_shown(entries: list[Entry], original: list[Entry]) -> Entry:
    """The file that stands for a hand-in without a readable notebook: the newest that claims to be one."""
    pool = [entry for entry in entries if is_notebook_name(entry.name)] or entries or original
    return max(pool, key=lambda entry: (entry.time.timestamp() if entry.time else 0.0, entry.display))


def _nothing_found(entries: list[Entry]) -> str:
    for entry in entries:
        if entry.problem:
            return entry.problem if entry.placeholder else f"{_printable(entry.name)}：{entry.problem}"
        if entry.name.lower().endswith(_ARCHIVES):
            return f"只有压缩包 {_printable(entry.name)}（不支持的格式，archive）：请解压后提交里面的 .ipynb"
        if is_zip_name(entry.name):
            return f"压缩包 {_printable(entry.name)} 里没有 notebook（no .ipynb in zip）：请提交 .ipynb 文件"
    listed = "、".join(_printable(entry.name) for entry in entries[:3])
    return f"{_NO_NOTEBOOK}（只有 {listed}）" if listed else _NO_NOTEBOOK


def _other_notes(
    others: list[Entry], chosen: _Candidate | None, candidates: list[_Candidate], flags: list[Flag]
) -> list[str]:
    notes = []
    if chosen and len(candidates) > 1:
        name = _printable(chosen.entry.name)
        notes.append(f"交了 {len(candidates)} 份 notebook，采用本次作业里最新的一份：{name}")
    shadows = [flag.detail for flag in flags if flag.kind == "shadow_file"]
    if shadows:
        notes.append("提交里有与标准库或常用库同名的文件，评分时不使用：" + "、".join(shadows))
    taken = {candidate.entry.display for candidate in candidates}
    extra = [_printable(entry.name) for entry in others if entry.display not in taken]
    if extra:
        more = f" 等 {len(extra)} 个" if len(extra) > 5 else ""
        notes.append("其他文件不参与评分：" + "、".join(extra[:5]) + more)
    return notes


def _shadow_flags(entries: list[Entry]) -> list[Flag]:
    """Files and packages that would be imported instead of a library if they lay on the path."""
    flags = {}
    for entry in entries:
        stem, extension = os.path.splitext(entry.name)
        module = stem.split(".")[0]
        if extension.lower() in (".py", ".so", ".pyd", ".pyc") and _is_library(module):
            flags[entry.display] = Flag("shadow_file", _printable(entry.name))
        elif entry.name == "__init__.py" and len(entry.parts) > 1 and _is_library(entry.parts[-2]):
            flags[entry.display] = Flag("shadow_file", _printable(f"{entry.parts[-2]}/{entry.name}"))
    return list(flags.values())


def _is_library(module: str) -> bool:
    return module not in _COMMON_NAMES and (module in sys.stdlib_module_names or module in _THIRD_PARTY)


def _timestamp_flags(entries: list[Entry], chosen: Entry) -> list[Flag]:
    """A timestamp.txt among the student's files that claims another time than the collector's."""
    flags = []
    for entry in entries:
        if entry.name.lower() != "timestamp.txt" or entry.problem:
            continue
        try:
            claimed = _read_time(decode_text(entry.read(200))[0])
        except UnreadableFile:
            continue
        if claimed is None:
            continue
        if chosen.time is None or abs(claimed - chosen.time) > _CLOCK_TOLERANCE:
            shown = chosen.time.strftime("%Y-%m-%d %H:%M:%S %z") if chosen.time else "未知"
            text = claimed.strftime("%Y-%m-%d %H:%M:%S %z")
            flags.append(
                Flag("forged_timestamp", f"timestamp.txt 写的是 {text}，收到的时间是 {shown}；以收到的时间为准")
            )
    return flags


def _read_time(text: str) -> datetime | None:
    """The time in nbgrader's own form (``2026-01-31 23:59:58.000000 UTC``) or in ISO form."""
    text = text.strip()
    match = re.match(r"(\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(?::\d{2})?)(?:\.\d+)?\s*(Z|UTC|GMT|[+-]\d{2}:?\d{2})?", text)
    if not match:
        return None
    zone = match.group(2) or "UTC"
    offset = "+00:00" if zone in ("Z", "UTC", "GMT") else zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    try:
        return datetime.fromisoformat(match.group(1).replace("T", " ") + offset).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def _printable(text: str) -> str:
    """Text without characters that break a table or can't be stored."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(char if char.isprintable() else "?" for char in text)


def _read_roster(roster: Path | str | Iterable[str] | None) -> list[str]:
    if roster is None:
        return []
    if isinstance(roster, (str, os.PathLike)):
        try:
            text = decode_text(Path(roster).read_bytes())[0]
        except OSError as error:
            raise GraderError(
                str(roster), "the roster can't be read", "name a text or CSV file with one student a line"
            ) from error
        dialect = "excel-tab" if "\t" in text.split("\n", 1)[0] else "excel"
        rows = csv.reader(io.StringIO(text.replace("\0", ""), newline=""), dialect)
        lines = [row[0] for row in rows if row]
    else:
        lines = [str(name) for name in roster]
    names = [line.strip() for line in lines if line.strip()]
    if names and names[0].casefold() in _HEADERS:
        names = names[1:]
    return list(dict.fromkeys(names))


def _with_roster(submissions: list[Submission], roster: list[str]) -> list[Submission]:
    """Add those who are on the roster and handed nothing in; note those who are not on it."""
    by_name = {fold(safe_name(name)): name for name in roster}
    found, result = set(), []
    for submission in submissions:
        key = fold(submission.student)
        if key not in by_name:
            listed = roster_match(submission.student, [safe_name(name) for name in roster])
            key = fold(listed) if listed else key
        if key in by_name:
            found.add(key)
            result.append(submission)
        else:
            result.append(replace(submission, notes=(*submission.notes, "不在名单里")))
    used = {submission.student.casefold() for submission in submissions}
    for key, name in by_name.items():
        if key not in found and safe_name(name).casefold() not in used:
            result.append(Submission(safe_name(name), "", None, NOT_SUBMITTED))
    return result
