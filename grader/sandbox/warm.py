"""Warm starts: one bubblewrap holds a process with the libraries loaded, from which submissions are forked.

What a submission gets is as strict as a sandbox of its own (`grader.tests.test_sandbox` asks both the same questions):
new pid, mount, network, ipc and uts namespaces, empty temporary folders, a user of its own (where the grader is root),
no capability, the same filter and limits. Whatever goes wrong here, the caller starts cold instead.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from typing import Any

from grader.channel import codec
from grader.channel.wire import Channel, Closed, TimedOut
from grader.model import Limits
from grader.sandbox import command, process, processes, seccomp
from grader.sandbox.libraries import Libraries, connected

# Keeps bubblewrap's namespaces until its standard input ends; says when they stand.
HOLDER = ["/bin/sh", "-c", "echo; read _"]
# What making a submission's namespaces, mounts and user takes (CAP_SETGID, SETUID, SETPCAP, NET_ADMIN, SYS_ADMIN); the
# forked child gives all of it up.
CAPABILITIES = (6, 7, 8, 12, 21)


class NotWarm(Exception):
    """No process could be forked. The reason is for tests; the remedy is always a cold start."""


class Zygote:
    """The process from which submissions are forked, started at once and in the background.

    Several processes may order from it, each order is one packet; those that are forked from the starter can.

    Args:
        libraries: the process that it is forked from.
        modules: what the first submission imports.
    """

    def __init__(self, mode: str, libraries: Libraries, modules: tuple[str, ...] = ()) -> None:
        self.mode = mode
        self._loaded: set[str] = set()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        hold, self._leash = os.pipe()  # while this end is open, the sandbox lives
        ready, standing = os.pipe()
        try:
            self.process, info = process.launch(
                Limits(), mode, command.USER, HOLDER, None, warm=True, stdin=hold, stdout=standing
            )
            message = {
                "user": mode == "user",
                "capabilities": CAPABILITIES,
                "folder": command.WORK,
                "program": f"{command.RUNNER}/worker.py",
                "words": ["warm", *command.package_paths()],
            }
            with os.fdopen(info):
                libraries.enter(message, modules, theirs, ready, info)
        except BaseException:
            os.close(self._leash)
            raise
        finally:
            theirs.close()
            for fd in (hold, ready, standing):
                os.close(fd)
        self.load(modules)

    def alive(self) -> bool:
        """Whether it can take orders, as far as its starter can tell."""
        return self.process.poll() is None and connected(self.control)

    def load(self, modules: tuple[str, ...]) -> None:
        """Have it import them, in the background. What isn't new costs nothing."""
        new = [name for name in modules if name not in self._loaded]
        if new:
            self._loaded.update(new)
            with contextlib.suppress(OSError):  # the order will find it gone
                self.control.send(json.dumps({"modules": new}).encode())

    def order(self, message: dict[str, Any], channel: int, leash: int) -> None:
        try:
            socket.send_fds(self.control, [json.dumps(message).encode()], [channel, leash])
        except OSError as e:
            raise NotWarm(f"the zygote is gone ({e})") from e

    def close(self) -> None:
        self.control.close()
        os.close(self._leash)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait(20)


class First:
    """The first process of a submission's namespaces, in the place of a `subprocess.Popen`."""

    def __init__(self, pidfd: int) -> None:
        self.pid = processes.pid_of(pidfd)
        self.returncode: int | None = None
        self._pidfd = os.dup(pidfd)

    def wait(self, timeout: float) -> None:
        """Wait until it, and with it every process inside, is gone."""
        if self.returncode is not None:
            return
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if not poll.poll(timeout * 1000):
            raise subprocess.TimeoutExpired("sandbox", timeout)
        self.returncode = -signal.SIGKILL
        os.close(self._pidfd)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


class Warm(process.Inside):
    """A student's process forked from a zygote."""

    def __init__(self, limits: Limits, zygote: Zygote, modules: tuple[str, ...] = ()) -> None:
        super().__init__(limits)
        ours, theirs = socket.socketpair()
        hold, self._leash = os.pipe()  # while this end is open, the sandbox lives
        self.channel = Channel(ours)
        try:
            zygote.order({**order(limits, zygote.mode), "modules": list(modules)}, theirs.fileno(), hold)
        except BaseException:
            ours.close()
            os.close(self._leash)
            raise
        finally:
            theirs.close()
            os.close(hold)
        self._arrive()
        self.process = First(self._init)  # type: ignore[assignment]
        self._first = self.process.pid
        self._begin()

    def _arrive(self) -> None:
        """Wait for the first process's greeting, which brings what it takes to look inside."""
        deadline = time.monotonic() + process.START_S
        try:
            answer, fds = self.channel.receive_with_fds(deadline, 4096, 4)
        except (Closed, TimedOut, codec.CodecError) as e:
            answer, fds = {"refused": type(e).__name__}, []
        if len(fds) == 4:
            self._proc, self._disks, self._init = fds[0], fds[1:3], fds[3]
        if answer != {"inside": True} or self._init is None:
            self.channel.close()
            self._cleanup()
            raise NotWarm(str(answer.get("refused")))

    def _prepare(self, deadline: float) -> None:
        """It was prepared before the fork."""

    def _started(self) -> None:
        assert self._first is not None
        inside = processes.children(self._first)
        self.pid = min(inside) if inside else None

    def _cleanup(self) -> None:
        super()._cleanup()
        os.close(self._leash)


def order(limits: Limits, mode: str) -> dict[str, Any]:
    """What the zygote needs to know for a submission."""
    program = seccomp.program()
    if program is None:
        raise NotWarm("without a filter a child could make a user namespace")
    sizes = {"/dev/shm": command.shm_size(limits), "/tmp": limits.tmpfs}
    kept = [path for path in command.visible_paths() if path.startswith(tuple(f"{folder}/" for folder in sizes))]
    allowed = process.rlimits_inside(limits, mode)
    if "RLIMIT_NPROC" in allowed:
        extra = 1 if mode == "root" else 4  # the first process; a user's zygote, its bubblewrap and holder count, too
        allowed["RLIMIT_NPROC"] = (limits.processes + extra,) * 2
    uid = command.root_uid() if mode == "root" else command.USER
    return {
        "uid": uid if mode == "root" else None,
        "clone": seccomp.clone_number(),
        "alone": mode == "user",  # one user for all: their processes count together
        "rlimits": allowed,
        "tmpfs": sizes,
        "kept": kept,  # an interpreter that lies below /tmp stays visible
        "passwd": command.passwd(uid) if mode == "root" else None,
        "folders": [command.WORK, command.HOME],
        "seccomp": base64.b64encode(program).decode(),
    }
