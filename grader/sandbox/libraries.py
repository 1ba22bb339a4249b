"""The process with the libraries loaded (`base.py`), as those see it who have it fork."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from grader.sandbox import command

# What it may import: a library that writes files or reads the machine's settings is left to the process inside.
SHARED = ("numpy", "numpy.random", "torch")
PROGRAM = Path(__file__).with_name("base.py")


class Libraries:
    """Orders from that process. Several may: each order is one packet.

    Args:
        control: of a process that runs already; without it, one is started.
    """

    def __init__(self, control: socket.socket | None = None) -> None:
        if control is not None:
            self.control = control
            return
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = data(PROGRAM.read_bytes())
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-", str(theirs.fileno()), *command.package_paths()],
                stdin=program,
                env={**command.environment(command.HOME, sys.executable), **command.HUGE_PAGES},
                cwd="/",
                pass_fds=[theirs.fileno()],
            )
        finally:
            os.close(program)
            theirs.close()

    def usable(self) -> bool:
        """Whether it can take orders."""
        return connected(self.control)

    def load(self, modules: Iterable[str]) -> None:
        """Have it import them, in the background, if they are of :data:`SHARED`."""
        with contextlib.suppress(OSError):  # the next order will find it gone
            self._order({"modules": _shared(modules)})

    def serve(self, module: str, theirs: socket.socket) -> None:
        """Have it fork a trusted process that runs ``module.serve(socket, control)``.

        The process has this one's environment and path, but one thread, and can order, too.
        """
        environ = data(json.dumps({**os.environ, **command.ONE_THREAD}).encode())
        try:
            path = [os.path.abspath(folder) for folder in sys.path]
            self._order({"serve": {"module": module, "path": path}}, environ, theirs)
        finally:
            os.close(environ)

    def enter(self, message: dict[str, Any], modules: Iterable[str], *descriptors: Any) -> None:
        """Have it import modules, as `load`, and fork a process that goes on inside a sandbox: see `base.enter`."""
        self._order({"enter": message, "modules": _shared(modules)}, *descriptors)

    def _order(self, message: dict[str, Any], *descriptors: Any) -> None:
        fds = [d if isinstance(d, int) else d.fileno() for d in descriptors]
        socket.send_fds(self.control, [json.dumps(message).encode()], fds)


def _shared(modules: Iterable[str]) -> list[str]:
    return [name for name in modules if name in SHARED]


def connected(sock: socket.socket) -> bool:
    """Whether the other end is open."""
    poll = select.poll()
    poll.register(sock, 0)
    return not poll.poll(0)


def data(content: bytes) -> int:
    """A descriptor from which ``content`` can be read, and that names no file."""
    fd = os.memfd_create("data")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
