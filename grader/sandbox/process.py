"""Starting, watching and ending one student's process, in a sandbox or without one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from grader.channel import codec
from grader.channel.wire import Channel, Closed, TimedOut
from grader.errors import GraderError
from grader.model import Limits
from grader.sandbox import command, processes, seccomp
from grader.sandbox.libraries import data

WORKER = Path(__file__).with_name("worker.py")
PROGRAMS = {"worker": WORKER, "codec": Path(codec.__file__), "zygote": WORKER.with_name("zygote.py")}
START_S = 60.0
POLL_S = 0.05
SHARED_LOOK = 10  # polls from one look at shared memory to the next
INODES = 50_000
BWRAP_PROBLEM = "the sandbox did not start"


def rlimits(limits: Limits, *, own_processes: bool) -> dict[str, tuple[int, int]]:
    """Resource limits of the student's process. ``own_processes``: only the sandbox's processes count in NPROC."""
    found = {
        "RLIMIT_AS": (limits.address_space,) * 2,
        "RLIMIT_CPU": (limits.cpu_s, limits.cpu_s + 5),
        "RLIMIT_NOFILE": (limits.open_files,) * 2,
        "RLIMIT_FSIZE": (limits.file_size,) * 2,
        "RLIMIT_CORE": (0, 0),
    }
    if own_processes:
        found["RLIMIT_NPROC"] = (limits.processes,) * 2
    if sys.platform != "linux":
        del found["RLIMIT_AS"]
    return found


def _kernel() -> tuple[int, int]:
    first, second = os.uname().release.split(".")[:2]
    return int(first), int("".join(c for c in second if c.isdigit()) or 0)


class Sandbox:
    """A student's process with its channel.

    ``violation`` names the limit for which the watchdog ended it, ``hits`` the limits it ran into. `close` ends
    everything that runs inside.
    """

    can_fork = sys.platform == "linux"

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.violation: str | None = None
        self.hits: set[str] = set()
        self.pid: int | None = None  # of the worker, as this process sees it
        self._closed = threading.Event()
        self._watchdog: threading.Thread | None = None

    # what the two kinds do differently
    def _setup(self) -> dict[str, Any]:
        raise NotImplementedError

    def _kill(self) -> None:
        raise NotImplementedError

    def _look(self) -> str | None:
        raise NotImplementedError

    def _cleanup(self) -> None:
        raise NotImplementedError

    def others(self) -> int:
        """How many processes live beside the worker."""
        raise NotImplementedError

    def sweep(self) -> bool:
        """End every process but the worker itself; False when that fails."""
        raise NotImplementedError

    def disk_state(self) -> tuple[int, ...]:
        """Changes when files are written; a test that leaves some gets the next one a new process."""
        return ()

    channel: Channel
    process: subprocess.Popen[bytes]

    def _begin(self) -> None:
        """Send the set-up, wait until the shell stands, and start the watchdog."""
        limits, deadline = self.limits, time.monotonic() + START_S
        message = {"op": "setup", "reply": limits.reply, "depth": limits.depth, "output": limits.output}
        try:
            self._prepare(deadline)
            self.channel.send(message, deadline)
            answer = self.channel.receive(deadline, 1024)
            if answer != {"ready": True}:
                raise codec.CodecError("unexpected answer")
        except (Closed, TimedOut, codec.CodecError) as e:
            self.close()
            raise GraderError(
                "sandbox",
                f"the student's process did not start ({type(e).__name__}), exit code {self.process.returncode}",
                "check that IPython is installed for this Python and that its files are readable to every user",
            ) from e
        self._started()
        self._watchdog = threading.Thread(target=self._watch, name="sandbox watchdog", daemon=True)
        self._watchdog.start()

    def _prepare(self, deadline: float) -> None:
        """Have the worker confine itself and build its shell."""
        message = {"op": "prepare", "paths": list(command.package_paths()), **self._setup()}
        self.channel.send(message, deadline)

    def _started(self) -> None:
        """Hook after the first answer."""

    def _watch(self) -> None:
        while not self._closed.wait(POLL_S):
            try:
                found = self._look()
            except OSError:
                continue
            if found is not None:
                self.violation = found
                self.hits.add(found)
                self._kill()
                return

    def threads(self) -> int:
        """How many threads the worker runs, seen from outside."""
        return processes.threads(self.pid) if self.pid is not None else 1

    def close(self) -> None:
        """End all processes of the sandbox, and wait until they are gone."""
        self._closed.set()
        self._kill()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)
        if self._watchdog is not None:
            self._watchdog.join(20)
        self.channel.close()
        self._cleanup()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Inside(Sandbox):
    """A student's process in namespaces of its own, seen through them."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._first: int | None = None  # pid of the first process inside
        self._init: int | None = None  # its pidfd
        self._proc: int | None = None  # /proc as seen inside
        self._disks: list[int] = []
        self._shared: dict[str, float] = {}  # by inode: the most that was seen of a piece of shared memory
        self._looks = 0
        self._known = (1, 2)  # the first process and the worker, as numbered inside

    def _look(self) -> str | None:
        if self._proc is None:
            return None
        usage = processes.usage_of_all(self._proc)
        if usage.threads - 1 >= self.limits.processes:
            return "processes"
        if usage.memory > self.limits.memory:
            exact = processes.proportional_memory(self._proc)
            if exact is None or exact > self.limits.memory:
                return "memory"
        if self._shared_memory() > self.limits.memory:
            return "memory"
        for disk in self._disks:
            state = os.fstatvfs(disk)
            if state.f_files - state.f_ffree > INODES or _used(state) > self.limits.tmpfs:
                return "files"
            if state.f_blocks and not state.f_bfree:
                self.hits.add("disk")
        return None

    def _shared_memory(self) -> float:
        """Bytes of shared memory, as of the last look at it: that costs more than the other figures."""
        self._looks += 1
        if self._proc is not None and self._looks % SHARED_LOOK == 0:
            now = processes.shared_sizes(self._proc)
            if now is None:
                return math.inf
            self._shared = {inode: max(size, self._shared.get(inode, 0)) for inode, size in now.items()}
        return sum(self._shared.values())

    def disk_state(self) -> tuple[int, ...]:
        states = [os.fstatvfs(disk) for disk in self._disks]
        return tuple(n for s in states for n in (s.f_bfree, s.f_ffree))

    def others(self) -> int:
        if self._proc is not None:
            return len(processes.seen_inside(self._proc, self._known))
        return len(processes.descendants(self._first) - {self.pid}) if self._first is not None else 0

    def sweep(self) -> bool:
        for _ in range(20):
            if self._proc is not None:
                inside = processes.seen_inside(self._proc, self._known)
                for pid in inside:
                    processes.kill_inside(self._proc, pid)
            elif self._first is not None:
                inside = list(processes.descendants(self._first) - {self.pid})
                for pid in inside:
                    processes.kill(pid)
            else:
                return False
            if not inside:
                return True
        return False

    def _kill(self) -> None:
        if self._init is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
        else:
            self.process.kill()

    def _cleanup(self) -> None:
        for fd in (self._init, self._proc, *self._disks):
            if fd is not None:
                os.close(fd)
        self._init = self._proc = None
        self._disks = []


class Bubblewrap(Inside):
    """A student's process inside a bubblewrap of its own. ``mode`` as for `command.arguments`."""

    def __init__(self, limits: Limits, mode: str) -> None:
        super().__init__(limits)
        self.mode = mode
        self.uid = command.root_uid() if mode == "root" else command.USER
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        fd = theirs.fileno()
        program = [sys.executable, f"{command.RUNNER}/worker.py", str(fd)]
        with theirs:
            self.process, info = launch(limits, mode, self.uid, program, seccomp.program(), pass_fds=(fd,))
        self._first = _first_pid(info)
        if self._first is not None:
            with contextlib.suppress(OSError):
                self._init = os.pidfd_open(self._first)
        self._begin()

    def _setup(self) -> dict[str, Any]:
        return {"uid": self.uid if self.mode == "root" else None, "rlimits": rlimits_inside(self.limits, self.mode)}

    def _started(self) -> None:
        assert self._first is not None
        inside = processes.descendants(self._first)
        self.pid = min(inside) if inside else None
        root = f"/proc/{self._first}/root"
        with contextlib.suppress(OSError):
            self._known = (1, processes.number_inside(self.pid or self._first))
            self._proc = os.open(f"{root}/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._disks = [
                os.open(f"{root}{d}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for d in ("/tmp", "/dev/shm")
            ]


def launch(
    limits: Limits,
    mode: str,
    uid: int,
    program: list[str],
    filtered: bytes | None,
    *,
    warm: bool = False,
    pass_fds: tuple[int, ...] = (),
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a program in bubblewrap; returns the process and the descriptor on which its pid will come.

    Args:
        program: and its arguments.
        filtered: the seccomp filter, if there is one.
        warm: as for `command.arguments`.
        pass_fds, stdin, stdout: as for `subprocess.Popen`.
    """
    info_read, info_write = os.pipe()
    fds = {name: data(path.read_bytes()) for name, path in PROGRAMS.items() if warm or name != "zygote"}
    fds["info"] = info_write
    fds["passwd"] = data(command.passwd(uid).encode())
    if filtered is not None:
        fds["seccomp"] = data(filtered)
    try:
        process = subprocess.Popen(
            command.arguments(limits, mode, fds, program, warm=warm),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            cwd="/",
            pass_fds=[*fds.values(), *pass_fds],
        )
    except BaseException:
        os.close(info_read)
        raise
    finally:
        for fd in fds.values():
            os.close(fd)
    return process, info_read


def _first_pid(fd: int) -> int | None:
    with os.fdopen(fd, "rb") as file:
        try:
            return int(json.loads(file.read() or b"{}")["child-pid"])
        except (ValueError, KeyError):
            return None


def rlimits_inside(limits: Limits, mode: str) -> dict[str, tuple[int, int]]:
    return rlimits(limits, own_processes=mode == "root" or _kernel() >= (5, 14))


def _used(state: os.statvfs_result) -> int:
    return (state.f_blocks - state.f_bfree) * state.f_frsize


class Plain(Sandbox):
    """A student's process without a sandbox, for one's own notebook: an own session, limits where there are some."""

    inherits_sockets = os.name == "posix"

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        import psutil

        self._psutil = psutil
        self.folder = tempfile.mkdtemp(prefix="notebook-")
        if self.inherits_sockets:
            ours, theirs = socket.socketpair()
            self.process = self._popen([str(theirs.fileno())], pass_fds=[theirs.fileno()], start_new_session=True)
            theirs.close()
        else:
            ours = self._connect()
        self.channel = Channel(ours)
        self.pid = self.process.pid
        self._begin()

    def _popen(self, arguments: list[str], **options: Any) -> subprocess.Popen[bytes]:
        extra = {k: v for k, v in os.environ.items() if k.upper() in ("SYSTEMROOT", "TEMP", "TMP")}
        return subprocess.Popen(
            [sys.executable, str(WORKER), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**extra, **command.environment(self.folder, sys.executable)},
            cwd=self.folder,
            **options,
        )

    def _connect(self) -> socket.socket:
        token = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(START_S)
            self.process = self._popen([str(server.getsockname()[1]), token])
            ours, _ = server.accept()
        ours.settimeout(START_S)
        if ours.recv(len(token), socket.MSG_WAITALL) != token.encode():
            raise GraderError("sandbox", "another program answered in the worker's place", "run it again")
        return ours

    def _setup(self) -> dict[str, Any]:
        limited = os.name == "posix"
        return {"uid": None, "rlimits": rlimits(self.limits, own_processes=False) if limited else {}}

    def others(self) -> int:
        return len(self._others())

    def _others(self) -> list[Any]:
        try:
            return self._psutil.Process(self.process.pid).children(recursive=True)
        except self._psutil.Error:
            return []

    def _look(self) -> str | None:
        memory, others = 0, self._others()
        if len(others) > self.limits.processes:
            return "processes"
        for process in [self._psutil.Process(self.process.pid), *others]:
            with contextlib.suppress(self._psutil.Error):
                memory += process.memory_info().rss
        return "memory" if memory > self.limits.memory else None

    def threads(self) -> int:
        try:
            return self._psutil.Process(self.process.pid).num_threads()
        except self._psutil.Error:
            return 1

    def sweep(self) -> bool:
        for process in self._others():
            with contextlib.suppress(self._psutil.Error):
                process.kill()
        return True

    def _kill(self) -> None:
        self.sweep()
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()

    def _cleanup(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
