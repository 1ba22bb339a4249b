"""Files to look at: from a folder or a zip, never following a link, never unpacking to disk.

Every file comes as an ``Entry`` that is read on demand and capped. What can't be read says so in
plain words and keeps nothing else from being read.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from grader.errors import GraderError
from grader.intake.decode import MAX_BYTES, too_large

MAX_ENTRIES = 200_000  # files in one class
MAX_MEMBERS = 2_000  # files in one student's zip
MAX_DEPTH = 30
_IGNORED_NAMES = frozenset({"thumbs.db", "desktop.ini", ".ds_store"})
_IGNORED_FOLDERS = frozenset({".ipynb_checkpoints", "__macosx", "__pycache__", ".git", ".svn", ".vscode", ".idea"})


@dataclass(frozen=True)
class Entry:
    """One file. ``parts`` is its path below the collected folder or zip, ``display`` what the instructor sees.

    ``load(n)`` returns at most the first n bytes or raises UnreadableFile with the reason in plain words.
    """

    parts: tuple[str, ...]
    display: str
    size: int
    time: datetime | None
    load: Callable[[int], bytes]
    problem: str | None = None
    placeholder: bool = False  # stands for a folder without files
    order: int = 0  # resubmission or copy number: a tie-break between files of the same time

    @property
    def name(self) -> str:
        return self.parts[-1]

    def read(self, limit: int = MAX_BYTES + 1) -> bytes:
        """The content, up to ``limit`` bytes. Raises UnreadableFile."""
        return self.load(limit)


class UnreadableFile(OSError):
    """A file that can't be read; the message is the reason in plain words."""


def is_ignored(parts: tuple[str, ...]) -> bool:
    """True for what operating systems, editors and version control leave behind."""
    if any(part.lower() in _IGNORED_FOLDERS for part in parts[:-1]):
        return True
    name = parts[-1].lower()
    return name in _IGNORED_NAMES or name.startswith(("._", "~$")) or name.endswith("-checkpoint.ipynb")


def walk_folder(root: Path) -> Iterator[Entry]:
    """All files below ``root``, sorted by path. Links and special files come with a problem."""
    pending: list[tuple[Path, tuple[str, ...]]] = [(root, ())]
    count = 0
    while pending:
        folder, parts = pending.pop()
        try:
            with os.scandir(folder) as scan:
                found = sorted(scan, key=lambda item: item.name, reverse=True)
        except OSError as error:
            if parts:
                reason = f"文件夹无法打开（{_os_reason(error)}）：请检查权限"
                yield Entry((*parts, "?"), _shown(folder), 0, None, _refuse(reason), reason, placeholder=True)
                continue
            raise GraderError(
                str(root), f"the folder can't be opened ({_os_reason(error)})", "check its permissions"
            ) from error
        if parts and not found:
            reason = "文件夹是空的（empty folder）：请提交 .ipynb 文件"
            yield Entry((*parts, "?"), _shown(folder), 0, None, _refuse(reason), reason, placeholder=True)
        for item in reversed(found):
            below = (*parts, readable_name(os.fsencode(item.name)))
            if item.is_dir(follow_symlinks=False):
                if below[-1].lower() not in _IGNORED_FOLDERS and len(below) < MAX_DEPTH:
                    pending.append((Path(item.path), below))
            elif not is_ignored(below):
                count += 1
                if count > MAX_ENTRIES:
                    raise GraderError(
                        str(root), f"it holds more than {MAX_ENTRIES} files", "name a folder with this assignment only"
                    )
                yield file_entry(Path(item.path), below)


def file_entry(path: Path, parts: tuple[str, ...]) -> Entry:
    """One file on disk, looked at without following links."""
    shown = _shown(path)
    try:
        status = path.lstat()
    except OSError as error:
        reason = f"文件无法读取（{_os_reason(error)}）：请检查权限"
        return Entry(parts, shown, 0, None, _refuse(reason), reason)
    time = datetime.fromtimestamp(status.st_mtime, timezone.utc)
    reason = None
    if stat.S_ISLNK(status.st_mode):
        reason = "这是指向别处的链接（symbolic link），不读取：请提交文件本身"
    elif not stat.S_ISREG(status.st_mode):
        reason = "这是特殊文件（special file），不读取：请提交普通的 .ipynb 文件"
    elif status.st_size > MAX_BYTES:
        reason = too_large(status.st_size)
    load = _refuse(reason) if reason else (lambda limit: _read_regular(path, limit))
    return Entry(parts, shown, status.st_size, time, load, reason)


def _read_regular(path: Path, limit: int) -> bytes:
    """Read a file that may have been swapped for a link or a pipe since it was listed."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableFile("这是特殊文件（special file），不读取：请提交普通的 .ipynb 文件")
            return file.read(limit)
    except UnreadableFile:
        raise
    except OSError as error:
        raise UnreadableFile(f"文件无法读取（{_os_reason(error)}）：请检查权限") from error


def walk_zip(path: Path) -> list[Entry]:
    """The members of the instructor's zip. Raises GraderError if it can't be opened."""
    try:
        archive = zipfile.ZipFile(path)
        members = archive.infolist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        raise GraderError(
            str(path), "the zip can't be opened: damaged, or not all of it was downloaded", "download it again"
        ) from error
    if len(members) > MAX_ENTRIES:
        raise GraderError(str(path), f"the zip holds more than {MAX_ENTRIES} files", "zip this assignment only")
    return [entry for info in members for entry in _member(archive, info, str(path), None)]


def open_student_zip(entry: Entry) -> tuple[list[Entry], str | None]:
    """The members of a zip that a student handed in, all with the time at which the zip was collected.

    Returns the members and the reason why there are none.
    """
    try:
        data = entry.read()
    except UnreadableFile as error:
        return [], str(error)
    if len(data) > MAX_BYTES:
        return [], too_large(len(data))
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        members = archive.infolist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
        return [], "zip 压缩包已损坏（damaged zip）：请重新压缩，或直接提交 .ipynb"
    if len(members) > MAX_MEMBERS:
        return [], f"zip 里的文件超过 {MAX_MEMBERS} 个（too many files）：请直接提交 .ipynb"
    found = [inner for info in members for inner in _member(archive, info, entry.display, entry)]
    return found, None


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, shown: str, outer: Entry | None) -> list[Entry]:
    """A member as an entry; nothing for folders and what is ignored."""
    name = member_name(info)
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if not parts or info.is_dir() or is_ignored(parts):
        return []
    reason = _member_problem(info, name, parts)
    if outer is not None:
        time: datetime | None = outer.time  # what is written inside was written by the student
        parts = (*outer.parts[:-1], *parts) if ".." not in parts else (*outer.parts[:-1], parts[-1])
    else:
        time = member_time(info)
        parts = tuple(part for part in parts if part != "..")
    load = _refuse(reason) if reason else (lambda limit: _read_member(archive, info, limit))
    return [Entry(parts or ("?",), f"{shown}!{name}", info.file_size, time, load, reason)]


def _member_problem(info: zipfile.ZipInfo, name: str, parts: tuple[str, ...]) -> str | None:
    mode = info.external_attr >> 16
    if name.startswith("/") or ".." in parts or (len(name) > 1 and name[1] == ":"):
        return "zip 里的路径指向压缩包之外（unsafe path），不读取：请重新压缩后提交"
    if info.flag_bits & 0x1:
        return "zip 加了密码（encrypted zip）：请去掉密码后再提交"
    if mode and stat.S_ISLNK(mode):
        return "zip 里是指向别处的链接（symbolic link），不读取：请提交文件本身"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return "zip 里是特殊文件（special file），不读取：请提交普通的 .ipynb 文件"
    return too_large(info.file_size) if info.file_size > MAX_BYTES else None


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    """Unpack one member into memory, never more than the cap, whatever its header claims."""
    try:
        with archive.open(info) as file:
            return file.read(limit)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise UnreadableFile(f"zip 里的文件已损坏（{type(error).__name__}）：请重新压缩，或直接提交 .ipynb") from error
    except Exception as error:  # lzma has an exception of its own
        raise UnreadableFile("zip 里的文件无法解压（damaged member）：请重新压缩，或直接提交 .ipynb") from error


def member_name(info: zipfile.ZipInfo) -> str:
    """The name as its author saw it: UTF-8 where marked, else Chinese Windows' GBK, which zip readers show as cp437."""
    name = info.filename
    if not info.flag_bits & 0x800:
        try:
            name = readable_name(name.encode("cp437"))
        except UnicodeEncodeError:
            name = readable_name(name.encode("utf-8", "replace"))
    return name.replace("\\", "/").replace("\0", "")


def readable_name(raw: bytes) -> str:
    """A file name from its bytes: UTF-8, else GB18030, else with marks for what can't be read."""
    for encoding in ("utf-8", "gb18030"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("utf-8", "replace")


def member_time(info: zipfile.ZipInfo) -> datetime | None:
    """When the collector wrote the member: the UTC extra field, else the local DOS time."""
    extra = info.extra
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<HH", extra)
        if kind == 0x5455 and length >= 5 and len(extra) >= 9 and extra[4] & 1:
            return datetime.fromtimestamp(struct.unpack_from("<i", extra, 5)[0], timezone.utc)
        extra = extra[4 + length :]
    try:
        return datetime(*info.date_time).astimezone() if info.date_time[0] > 1980 else None
    except (ValueError, OverflowError, OSError):
        return None


def _refuse(reason: str | None) -> Callable[[int], bytes]:
    def read(limit: int) -> bytes:
        raise UnreadableFile(reason)

    return read


def _os_reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _shown(path: Path) -> str:
    """The path as text that can be printed and stored."""
    return readable_name(os.fsencode(path))
