"""The sandbox: where a student's code runs. See `grader/README.md` for what it promises."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from grader.errors import GraderError
from grader.model import Limits

if TYPE_CHECKING:
    from grader.sandbox.libraries import Libraries
    from grader.sandbox.process import Sandbox
    from grader.sandbox.warm import Zygote

INSTALL = "install bubblewrap: `sudo apt install bubblewrap` (Debian, Ubuntu), `sudo dnf install bubblewrap` (Fedora)"
ELSEWHERE = "grade on Linux, in WSL2, or in a container that may make namespaces (docker run --privileged …)"
UNSAFE = "or, for notebooks you trust, --unsafe-no-sandbox"
APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
USERNS = (Path("/proc/sys/kernel/unprivileged_userns_clone"), Path("/proc/sys/user/max_user_namespaces"))
RESTARTS = 3  # of a zygote that died, most likely for want of memory

_base: Libraries | None = None  # the process that zygotes are forked from
_zygote: Zygote | None = None  # for the next call of `start`
_zygotes: dict[int, Zygote] = {}
_starts = 0
_modules: tuple[str, ...] = ()


def problem() -> GraderError | None:
    """Why student code can't be sandboxed on this machine, with what to do about it; None when it can.

    A small program is run in the very sandbox that grading uses. The answer holds for the life of the process.
    """
    found = _probe()
    return found if isinstance(found, GraderError) else None


def start(limits: Limits, kind: str) -> Sandbox:
    """A new student's process with its shell, ready for cells.

    Args:
        kind: ``bwrap``, or ``none`` when the user asked for that.

    Raises:
        GraderError: no sandbox here.
    """
    from grader.sandbox import process

    if kind == "none":
        return process.Plain(limits)
    found = _probe()
    if isinstance(found, GraderError):
        raise found
    if _zygote is not None:
        from grader.sandbox import warm

        try:
            return warm.Warm(limits, _zygote, _modules)
        except warm.NotWarm:
            pass  # a cold start is as good, only slower
    return process.Bubblewrap(limits, found)


def keep_warm(modules: tuple[str, ...], number: int = 0) -> None:
    """Have later calls of `start`, here and in processes forked from this one, fork from a process that is warm.

    Call it in a process that outlives many students' and runs one thread. It starts the process, once, or again when
    it is gone.

    Args:
        modules: what the next submission imports; the warm process begins to import it.
        number: of the submission among those that run now, from 0. Where all have one user, each takes a warm process
            of its own.
    """
    global _base, _zygote, _modules, _starts
    from grader.sandbox import warm
    from grader.sandbox.libraries import Libraries

    _modules, _zygote = modules, None
    mode = _probe()
    if isinstance(mode, GraderError):
        return
    number = 0 if mode == "root" else number
    _zygote = _zygotes.get(number)
    if _zygote is not None and not _zygote.alive():
        _zygotes.pop(number).close()
        _zygote = None
    if _zygote is None and _starts <= RESTARTS + len(_zygotes):
        _starts += 1
        with contextlib.suppress(OSError):
            if _base is None or not _base.usable():
                _base = Libraries()
            _zygote = _zygotes[number] = warm.Zygote(mode, _base, modules)
    if _zygote is not None:
        _zygote.load(modules)


def fork_from(libraries: Libraries) -> None:
    """Have `keep_warm` use this process; without, it starts one."""
    global _base
    _base = libraries


@lru_cache(maxsize=1)
def _probe() -> str | GraderError:
    """The mode of `command.arguments` that works here, or why none does."""
    if sys.platform != "linux":
        return GraderError("sandbox", f"bubblewrap needs Linux, this is {sys.platform}", f"{ELSEWHERE}; {UNSAFE}")
    if shutil.which("bwrap") is None:
        return GraderError("sandbox", "bubblewrap (bwrap) isn't installed", f"{INSTALL}; {UNSAFE}")
    modes = ["root", "user"] if os.geteuid() == 0 else ["user"]
    said = ""
    for mode in modes:
        said = _try(mode)
        if not said:
            return mode
    return _refusal(said)


def _try(mode: str) -> str:
    """Empty when a program runs in the sandbox, else what bubblewrap said."""
    from grader.sandbox import command

    read, write = os.pipe()
    fds = {name: os.open(os.devnull, os.O_RDONLY) for name in ("worker", "codec", "passwd")}
    fds["info"] = write
    program = [sys.executable, "-I", "-S", "-c", "import socket"]
    try:
        done = subprocess.run(
            command.arguments(Limits(), mode, fds, program),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            pass_fds=list(fds.values()),
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError) as e:
        return str(e)
    finally:
        for fd in (read, *fds.values()):
            os.close(fd)
    return (
        done.stderr.decode(errors="replace").strip()[-300:] or f"exit code {done.returncode}" if done.returncode else ""
    )


def _refusal(said: str) -> GraderError:
    cause = f"bubblewrap can't make its namespaces here ({said})"
    if _setting(APPARMOR) == "1":
        remedy = (
            "AppArmor forbids it (Ubuntu 23.10 and later): `sudo sysctl -w "
            "kernel.apparmor_restrict_unprivileged_userns=0`, or give /usr/bin/bwrap a profile that allows userns"
        )
    elif any(_setting(path) == "0" for path in USERNS):
        remedy = (
            "allow user namespaces: `sudo sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000`"
        )
    else:
        remedy = ELSEWHERE
    return GraderError("sandbox", cause, f"{remedy}; {UNSAFE}")


def _setting(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
