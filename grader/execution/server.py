"""The trusted processes, one for each submission: forked from a small server that has the libraries loaded.

A test that a hostile value keeps busy can then be ended from outside, and a fork of a clean process with one thread
is safe wherever `execute` is called from. On Linux this module runs as that server; elsewhere a process is spawned.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from grader import sandbox
from grader.execution.cells import Cells
from grader.imports import quick_imports
from grader.model import ExecutionRequest
from grader.sandbox.libraries import Libraries, connected

ADDRESS_SPACE = 8 << 30
FORKS = sys.platform == "linux"
_lock = threading.Lock()
_server: _Server | None = None


class Child:
    """One trusted process: what it reports, and how to end it."""

    def __init__(self, connection: Any, process: Any = None) -> None:
        self.connection = connection
        self.process = process
        self._pidfd: int | None = None

    def begin(self, request: ExecutionRequest, cells: Cells, hung: frozenset[str]) -> None:
        self.connection.send((request, cells, hung))
        if self.process is None:
            pid = self.connection.recv()
            with contextlib.suppress(OSError, AttributeError):
                self._pidfd = os.pidfd_open(pid)

    def end(self) -> None:
        """Kill it, with all that it started."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        elif self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
            self._pidfd = None
        self.connection.close()


def child(preload: tuple[str, ...], students: tuple[str, ...] = (), kind: str = "none") -> Child:
    """A new trusted process with the modules of ``preload`` imported.

    Args:
        students: modules that the student's process will want.
        kind: of the sandbox, as for `sandbox.start`.
    """
    if FORKS:
        return Child(_running().fork({"preload": preload, "students": students, "kind": kind}))
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_one, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return Child(ours, process)


def warm_up(preload: tuple[str, ...], students: tuple[str, ...]) -> None:
    """Have the modules imported, in the background, for which `child` will soon ask; for the sandbox there is here."""
    if FORKS:
        _running().prepare({"preload": preload, "students": students, "kind": "bwrap"})


def serve_one(connection: Any, announce: bool = False) -> None:
    """Handle one request: the life of a trusted process. It reports lists of events.

    announce: tell its pid first.
    """
    from grader.errors import GraderError
    from grader.execution import tester

    request, cells, hung = connection.recv()
    if announce:
        connection.send(os.getpid())
    held: list[tuple[Any, ...]] = []

    def emit(*event: Any) -> None:
        held.append(event)
        if event[0] != "test":  # the next event follows at once
            connection.send(held)
            held.clear()

    try:
        tester.run(request, cells, emit, hung)
    except GraderError as e:
        emit("problem", e.subject, e.cause, e.remedy)
    connection.close()


class _Server:
    """The parent's end of a running server.

    One for each process that calls `execute`, or, ``shared``, one for all that are forked from the one that made it:
    every order is one packet, so that several can order at once.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self.owner = None if shared else os.getpid()
        self.lock = threading.Lock()
        self.loaded: set[str] | None = None
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.libraries = Libraries()
        with theirs:
            self.libraries.serve(__name__, theirs)

    def usable(self) -> bool:
        return self.owner in (None, os.getpid()) and connected(self.socket)

    def prepare(self, order: dict[str, Any]) -> None:
        """Have the modules imported that the order names, those of both sides in one process as far as may be."""
        with self.lock:
            self._load(order)
            self.socket.send(json.dumps(order).encode())

    def fork(self, order: dict[str, Any]) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs, self.lock:
            self._load(order)
            socket.send_fds(self.socket, [json.dumps(order).encode()], [theirs.fileno()])
        return Connection(ours.detach())

    def _load(self, order: dict[str, Any]) -> None:
        modules = {*order["preload"], *order["students"]}
        if self.loaded is None or not modules <= self.loaded:  # the first order starts the server
            self.libraries.load(sorted(modules))
            self.loaded = modules | (self.loaded or set())


def share() -> None:
    """Start a server for this process and all that will be forked from it. Call it while there is one thread."""
    global _server
    if FORKS:
        _server = _Server(shared=True)


def _running() -> _Server:
    global _server
    with _lock:
        if _server is None or not _server.usable():
            _server = _Server()
        return _server


def serve(fd: int, libraries: int) -> None:
    """The server: import what is asked for, and fork. It never runs anything else, so it stays at one thread.

    Args:
        fd: a socket of sequenced packets.
        libraries: that of the process from which this one was forked.
    """
    sandbox.fork_from(Libraries(socket.socket(fileno=libraries)))
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=fd)
    control.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children: dict[int, int] = {}  # number of each by pid
    while True:
        data, fds, _, _ = socket.recv_fds(control, 4096, 1)
        if not data:
            return
        order = json.loads(data)
        children = {pid: number for pid, number in children.items() if os.waitpid(pid, os.WNOHANG)[0] == 0}
        number = min(set(range(len(children) + 1)) - set(children.values()))
        if order["kind"] == "bwrap":
            sandbox.keep_warm(tuple(order["students"]), number)
        _import(["grader.execution.tester", *order["preload"]])
        if not fds:
            continue
        pid = os.fork()
        if pid == 0:
            _child(control, fds[0])
        children[pid] = number
        os.close(fds[0])


def _import(modules: list[str]) -> None:
    from grader.sandbox import zygote  # which only Linux can import

    missing = [name for name in modules if name not in sys.modules]
    if not missing:
        return
    with quick_imports():
        for name in missing:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        if "numpy" in sys.modules:
            importlib.import_module("numpy.random")  # put off by NumPy; each test seeds it
        zygote.first_use()


def _child(control: socket.socket, fd: int) -> None:
    parent = os.getppid()
    code = 1
    try:
        control.close()
        _die_with(parent)
        _bound_memory()
        serve_one(Connection(fd), announce=True)
        code = 0
    except (BrokenPipeError, ConnectionError, EOFError):
        pass
    finally:
        os._exit(code)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent, the server, is gone; the server ends with its owner."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _bound_memory() -> None:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard == resource.RLIM_INFINITY or hard > ADDRESS_SPACE:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, hard))
