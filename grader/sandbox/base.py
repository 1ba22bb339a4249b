"""The program that loads libraries once for two: the trusted process that runs tests, and the warm one for students.

Importing torch takes longer than grading three notebooks. So this process imports it and forks both from itself. It
runs outside the sandbox, with the environment of the sandbox, and nothing of a course ever lies in its memory: what it
knows is its program (from standard input, so under no name that tells a place), the libraries and its orders.

An order is one packet. It names modules to import or asks for a process, or both, with descriptors for the process:

* ``serve``: a trusted process. It takes over the environment and the path of whoever ordered it, and runs
  ``MODULE.serve`` with its socket and one for orders of its own. It is forked once another order has told what to
  import.
* ``enter``: a process that moves into the namespaces which a bubblewrap has made, gives up all but the named
  capabilities, and runs a program that lies in there.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
from typing import Any

ORDER_CAP = 1 << 16
NEWCGROUP, NEWUSER = 0x02000000, 0x10000000
NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000 | NEWCGROUP  # mount uts ipc pid net
CAPBSET_DROP, SET_NO_NEW_PRIVS = 24, 38


def serve(fd: int) -> None:
    """Follow orders until nobody is left who could give one."""
    controls = [socket.socket(fileno=fd)]
    servers: list[tuple[dict[str, Any], list[int]]] = []  # ordered, and not forked yet
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # it finds nothing in imports, and takes a third of their time
    while controls:
        for control in select.select(controls, [], [])[0]:
            data, fds, _, _ = socket.recv_fds(control, ORDER_CAP, 4)
            reap()
            if not data:
                controls.remove(control)
                control.close()
                continue
            order = json.loads(data)
            if "serve" in order:
                servers.append((order["serve"], fds))
                continue
            load(order["modules"])
            while servers:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                server, its = servers.pop()
                fork([*controls, ours], become_server, server, [*its, theirs.detach()])
                controls.append(ours)
            if fds:
                fork(controls, enter, order["enter"], fds)


def reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass


def fork(controls: list[socket.socket], become: Any, order: dict[str, Any], fds: list[int]) -> None:
    """Have a child live on in another way, with the descriptors for its own. Where none is to be had, they close."""
    pid = -1
    with contextlib.suppress(OSError):
        pid = os.fork()
    if pid == 0:
        try:
            for control in controls:
                control.close()
            become(order, *fds)
        finally:
            os._exit(1)
    for descriptor in fds:
        os.close(descriptor)


def load(modules: list[str]) -> None:
    """Import them. What isn't installed is somebody else's business."""
    missing = [name for name in modules if name not in sys.modules]
    for name in missing:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if missing:
        gc.freeze()  # a collection in a child then doesn't write to, and so copy, every page


def become_server(order: dict[str, Any], environ: int, *sockets: int) -> None:
    """Live on as a trusted process. ``environ``: a file with its environment."""
    with os.fdopen(environ) as file:
        variables = json.load(file)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = order["path"]
    gc.enable()
    importlib.import_module(order["module"]).serve(*sockets)
    os._exit(0)


def enter(order: dict[str, Any], control: int, ready: int, info: int) -> None:
    """Live on inside a bubblewrap, as the process that it would have started itself.

    Args:
        control: the socket for the program.
        ready: where the process inside writes a byte once its view is complete.
        info: where bubblewrap writes the pid of that process.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)  # what goes wrong here is nobody's business: the start will be cold
    if os.read(ready, 1) != b"\n":
        os._exit(1)  # bubblewrap has failed
    inside = os.pidfd_open(json.loads(os.read(info, 4096))["child-pid"])
    call(libc.setns, inside, NAMESPACES | (NEWUSER if order["user"] else 0))
    pid = os.fork()
    if pid != 0:  # only a child is in the pid namespace
        os.closerange(3, 1 << 16)
        os.waitpid(pid, 0)
        os._exit(0)
    os.setsid()
    os.closerange(3, control)
    os.closerange(control + 1, 1 << 16)
    keep_capabilities(order["capabilities"])
    os.chdir(order["folder"])
    os.environ["PWD"] = order["folder"]
    gc.enable()
    sys.argv = [order["program"], str(control), *order["words"]]
    runpy.run_path(order["program"], run_name="__main__")
    os._exit(0)


def keep_capabilities(kept: list[int]) -> None:
    """Give up the others, for good."""
    for number in range(64):
        if number not in kept and libc.prctl(CAPBSET_DROP, number, 0, 0, 0) != 0:
            break  # above the last one
    mask = sum(1 << number for number in kept)
    call(libc.capset, struct.pack("Ii", 0x20080522, 0), struct.pack("6I", mask, mask, 0, 0, 0, 0))
    call(libc.prctl, SET_NO_NEW_PRIVS, 1, 0, 0, 0)


libc = ctypes.CDLL(None, use_errno=True)


def call(function: Any, *args: Any) -> None:
    if function(*args) != 0:
        raise OSError(ctypes.get_errno(), function.__name__)


if __name__ == "__main__":
    channel = int(sys.argv[1])
    sys.path.extend(p for p in sys.argv[2:] if p not in sys.path)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    serve(channel)
