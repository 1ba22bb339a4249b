"""Looking at the processes of one sandbox from outside, through /proc."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@dataclass(frozen=True)
class Usage:
    """processes and threads are counts, memory is in bytes (resident)."""

    processes: int
    threads: int
    memory: int


def _read(path: str, at: int | None = None) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=at)
    try:
        return os.read(fd, 4096).decode("ascii", "replace")
    finally:
        os.close(fd)


def descendants(root: int) -> set[int]:
    """Every living process below ``root`` (without it)."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = _read(f"/proc/{name}/stat").rpartition(")")[2].split()
                if fields[0] != "Z":
                    children.setdefault(int(fields[1]), []).append(int(name))
    found: set[int] = set()
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in found:
                found.add(pid)
                todo.append(pid)
    return found


def seen_inside(proc: int, known: tuple[int, ...]) -> list[int]:
    """The living processes that a sandbox's /proc shows, without the ``known`` ones; pids as inside."""
    found = []
    for name in os.listdir(proc):
        if name.isdigit() and int(name) not in known:
            with contextlib.suppress(OSError, IndexError):
                if _read(f"{name}/stat", proc).rpartition(")")[2].split()[0] != "Z":
                    found.append(int(name))
    return found


def kill_inside(proc: int, pid: int) -> None:
    """SIGKILL to a process by its folder in a sandbox's /proc, which never comes to stand for another one."""
    with contextlib.suppress(OSError):
        folder = os.open(str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
        try:
            signal.pidfd_send_signal(folder, signal.SIGKILL)
        finally:
            os.close(folder)


def number_inside(pid: int) -> int:
    """The pid that a process has in its innermost namespace."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    raise OSError("no NSpid")


def pid_of(pidfd: int) -> int:
    """The pid, as this process sees it, that a pidfd stands for."""
    for line in _read(f"/proc/self/fdinfo/{pidfd}").splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    raise OSError("no pidfd")


def children(pid: int) -> set[int]:
    """The processes directly below one that has a single thread."""
    try:
        return {int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()}
    except OSError:  # a kernel without that file
        return descendants(pid)


def threads(pid: int) -> int:
    """How many threads a process runs; 1 when it can't be told."""
    with contextlib.suppress(OSError, ValueError):
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith("Threads:"):
                return int(line.split()[1])
    return 1


def usage_of_all(proc: int) -> Usage:
    """What all processes use that a /proc shows. ``proc`` is a descriptor of that folder.

    Pages that several processes share count once for each, so that this never tells too little.
    """
    count = thread_count = pages = 0
    for name in os.listdir(proc):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = _read(f"{name}/stat", proc).rpartition(")")[2].split()
                count += 1
                thread_count += int(fields[17])
                pages += int(fields[21])
    return Usage(count, thread_count, pages * PAGE)


def proportional_memory(proc: int) -> int | None:
    """Resident bytes with shared pages counted once, or None where the kernel doesn't tell."""
    total = 0
    for name in _but_first(proc):
        try:
            for line in _read(f"{name}/smaps_rollup", proc).splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
        except (FileNotFoundError, ProcessLookupError):
            continue
        except (OSError, ValueError):
            return None
    return total


def shared_sizes(proc: int) -> dict[str, int] | None:
    """How far mappings reach into each piece of anonymous memory that processes share, in bytes, by inode.

    What only processes touched that have ended since is in nobody's resident memory, and still there.

    Returns:
        None where a process hides its mappings, which only one does that asks the kernel to.
    """
    found: dict[str, int] = {}
    for name in _but_first(proc):
        try:
            with open(name + "/maps", encoding="ascii", errors="replace", opener=_opener(proc)) as file:
                for line in file:
                    if line.endswith("/dev/zero (deleted)\n"):
                        span, _, offset, _, inode = line.split()[:5]
                        start, end = (int(x, 16) for x in span.split("-"))
                        found[inode] = max(found.get(inode, 0), int(offset, 16) + end - start)
        except PermissionError:
            return None
        except (OSError, ValueError):
            continue
    return found


def _but_first(proc: int) -> list[str]:
    """The processes that a sandbox's /proc shows, without its first, which is ours and may be closed to everybody."""
    return [name for name in os.listdir(proc) if name.isdigit() and name != "1"]


def _opener(folder: int) -> Callable[[str, int], int]:
    return lambda path, flags: os.open(path, flags, dir_fd=folder)


def kill(pid: int) -> None:
    """SIGKILL, through a pidfd where there is one, so that a reused pid can't be hit between look and kill."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "pidfd_open"):
            fd = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            finally:
                os.close(fd)
        else:
            os.kill(pid, signal.SIGKILL)
