"""What a command costs with everything it starts: wall time, CPU time, memory."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

# Where a control group counts CPU time: the folder, the file with it, and seconds for one of its units.
GROUPS = (
    (Path("/sys/fs/cgroup"), "cpu.stat", 1e-6),
    (Path("/sys/fs/cgroup/cpuacct"), "cpuacct.usage", 1e-9),
)
SAMPLE_S = 0.2


@dataclass(frozen=True)
class Figures:
    """wall_s, cpu_s: seconds; peak_mb: MiB, shared pages counted once; counted: what counted the CPU time."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    counted: str


def measure(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path) -> Figures:
    """Run a command to its end.

    A control group counts every process, however it ended. Where none can be made, the processes that were waited
    for are counted, which leaves out what was killed.

    Raises:
        RuntimeError: it failed; the message holds the end of its output.
    """
    group = _Group()
    begun, before = time.perf_counter(), _waited_for()
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=group.enter
        )
        with _Peak(process.pid, group) as peak:
            code = process.wait()
    wall = time.perf_counter() - begun
    cpu = group.close() if group.path else _waited_for() - before
    if code != 0:
        raise RuntimeError(f"{' '.join(command[:6])} …: exit code {code}\n{log.read_text(errors='replace')[-3000:]}")
    return Figures(wall, cpu, peak.bytes / 2**20, group.kind)


def _waited_for() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class _Group:
    """A control group of its own for one command, or none where that is not allowed."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.kind = "waited for"
        for top, name, unit in GROUPS:
            if not (top / name).exists():
                continue
            path = top / f"grader-bench-{os.getpid()}"
            with contextlib.suppress(OSError):
                path.mkdir(exist_ok=True)
                self.path, self.file, self.unit, self.kind = path, path / name, unit, "control group"
                self.before = self.used()
                return

    def enter(self) -> None:
        if self.path:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def used(self) -> float:
        text = self.file.read_text().split()
        return int(text[1] if text[0] == "usage_usec" else text[0]) * self.unit

    def pids(self) -> list[int]:
        assert self.path
        return [int(pid) for pid in (self.path / "cgroup.procs").read_text().split()]

    def close(self) -> float:
        """Seconds of CPU, once the last process is gone."""
        assert self.path
        deadline = time.monotonic() + 10
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.05)
        used = self.used() - self.before
        with contextlib.suppress(OSError):
            self.path.rmdir()
        return used


class _Peak:
    """Samples the memory of a command's processes. Use as a context manager."""

    def __init__(self, pid: int, group: _Group) -> None:
        self.pid, self.group = pid, group
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_S):
            with contextlib.suppress(OSError, psutil.Error):
                self.bytes = max(self.bytes, sum(map(_share, self._pids())))

    def _pids(self) -> list[int]:
        if self.group.path:
            return self.group.pids()
        top = psutil.Process(self.pid)
        return [top.pid, *(p.pid for p in top.children(recursive=True))]


def _share(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
    return 0
