"""The bubblewrap command line: what a student's process can see.

It sees the system's programs and libraries, the Python that grades (its prefix and packages), both read-only, an
empty temporary folder, and nothing else: no home, no course, no submissions, no network, no other process.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from grader.model import Limits

WORK = "/tmp/work"
HOME = "/tmp/home"
RUNNER = "/run/runner"
USER = 1000  # the user inside, where the grader isn't root
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "ssl/openssl.cnf", "mime.types")
MASKED = ("/usr/share/fonts", "/usr/local/share/fonts")  # matplotlib would index them for seconds in each sandbox
# Has glibc ask for huge pages for its heap, where they make a fork cheap; `zygote.settle` need not copy them together.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM", "BLIS")
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in LIBRARIES}


def environment(home: str, executable: str) -> dict[str, str]:
    """What the student's process gets as its environment: nothing that tells where or why it runs."""
    return {
        "PATH": f"{os.path.dirname(executable)}:/usr/local/bin:/usr/bin:/bin",
        "HOME": home,
        "USER": "student",
        "LOGNAME": "student",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "MPLBACKEND": "Agg",
        "PYTHONHASHSEED": "0",
        "PIP_RETRIES": "0",  # without a network `!pip install` would try again for seconds
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "KMP_INIT_AT_FORK": "FALSE",
        **ONE_THREAD,
    }


@lru_cache(maxsize=1)
def package_paths() -> tuple[str, ...]:
    """The folders that hold the packages a notebook imports, in the order of ``sys.path``."""
    wanted = set()
    for name in ("IPython", "numpy", "torch", "matplotlib"):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.origin:
            wanted.add(str(Path(spec.origin).parent.parent))
    return tuple(p for p in sys.path if p in wanted)


@lru_cache(maxsize=1)
def visible_paths() -> list[str]:
    """The folders outside the system's that are bound read-only: the interpreter and its packages."""
    found = [sys.base_prefix, sys.prefix, *package_paths()]
    found += [str(Path(os.path.realpath(sys.executable)).parent.parent)]
    if site.ENABLE_USER_SITE:
        found += [p for p in package_paths() if p == site.getusersitepackages()]
    kept: list[str] = []
    for path in sorted({os.path.abspath(p) for p in found}, key=len):
        inside = [*kept, *(s for s in SYSTEM if not os.path.islink(s))]
        if os.path.isdir(path) and path != "/" and not any(path == k or path.startswith(k + "/") for k in inside):
            kept.append(path)
    return kept


def parents(paths: list[str]) -> list[str]:
    """Every folder above ``paths``, from the top: bubblewrap itself would make them readable to root alone."""
    found = {str(p) for path in paths for p in Path(path).parents if str(p) != "/"}
    return sorted(found, key=lambda p: (p.count("/"), p))


@lru_cache(maxsize=1)
def features() -> frozenset[str]:
    """The options that the installed bubblewrap knows (``--size`` came with 0.7, ``--disable-userns`` with 0.8)."""
    try:
        text = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    return frozenset(word for word in text.split() if word.startswith("--"))


def root_uid() -> int:
    """A user for this sandbox alone, when the grader is root. In a container it lies within the mapped users."""
    try:
        first, _, count = (int(x) for x in Path("/proc/self/uid_map").read_text().splitlines()[0].split())
    except (OSError, ValueError, IndexError):
        first, count = 0, 1 << 32
    if first == 0 and count > 5_000_000:
        return 200_000 + os.getpid()
    return first + 1000 + os.getpid() % max(1, count - 2000)


def passwd(uid: int) -> str:
    """/etc/passwd inside."""
    return f"student:x:{uid}:{uid}::{HOME}:/bin/sh\n"


def shm_size(limits: Limits) -> int:
    """Bytes of /dev/shm."""
    return min(limits.tmpfs, 16 << 20)


def arguments(limits: Limits, mode: str, fds: dict[str, int], command: list[str], *, warm: bool = False) -> list[str]:
    """The whole command.

    Args:
        mode: ``root`` (no user namespace, the worker gives up root itself) or ``user`` (with one).
        fds: descriptors of ``worker``, ``codec``, ``passwd`` (file contents), ``info`` (for the pid) and, where the
            machine is known, ``seccomp``; ``zygote`` if ``warm``.
        command: the program and its arguments.
        warm: for the sandbox into which the process moves from which submissions are forked. It runs no student code,
            and makes namespaces; no filter may forbid that.
    """
    return [shutil.which("bwrap") or "bwrap", *_arguments(limits, mode, fds, warm), "--", *command]


def _arguments(limits: Limits, mode: str, fds: dict[str, int], warm: bool) -> Iterator[str]:
    yield from ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
    yield from ("--die-with-parent", "--new-session", "--hostname", "notebook", "--clearenv")
    if mode == "user":
        yield from ("--unshare-user", "--uid", str(USER), "--gid", str(USER))
        if "--disable-userns" in features() and not warm:
            yield "--disable-userns"
    if mode == "root" or warm:
        yield from ("--cap-drop", "ALL")
    if mode == "root" and not warm:
        yield from ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    for name, value in environment(HOME, sys.executable).items():
        yield from ("--setenv", name, value)
    yield from ("--proc", "/proc", "--dev", "/dev")
    yield from _tmpfs("/dev/shm", shm_size(limits))
    yield from _tmpfs("/tmp", limits.tmpfs)
    yield from _files(fds)
    for folder in (WORK, HOME):
        yield from ("--perms", "0777", "--dir", folder)
    yield from ("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORK)
    yield from ("--info-fd", str(fds["info"]))
    if "seccomp" in fds:
        yield from ("--seccomp", str(fds["seccomp"]))


def _tmpfs(folder: str, size: int) -> Iterator[str]:
    yield from ("--perms", "1777")
    if "--size" in features():
        yield from ("--size", str(size))
    yield from ("--tmpfs", folder)


def _files(fds: dict[str, int]) -> Iterator[str]:
    paths = visible_paths()
    for folder in parents([*paths, f"{RUNNER}/x", "/etc/x"]):
        yield from ("--perms", "0755", "--dir", folder)
    for path in SYSTEM:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    for path in MASKED:
        if os.path.isdir(path):
            yield from ("--tmpfs", path, "--remount-ro", path)
    for name in ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    for path in paths:
        yield from ("--ro-bind", path, path)
    for name in ("worker", "codec", "zygote"):
        if name in fds:
            yield from ("--perms", "0444", "--ro-bind-data", str(fds[name]), f"{RUNNER}/{name}.py")
    yield from ("--perms", "0444", "--ro-bind-data", str(fds["passwd"]), "/etc/passwd")
