"""All cases as one class, graded once by the command line, with traps around it that tell what got out."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import pytest

from grader.intake.archive import readable_name
from grader.tests.attacks import breaking, files, forging, formats, lying, patching, reading, running, structure
from grader.tests.attacks.case import LITTER, SETTING, SURVIVOR, Case, shown
from grader.tests.classroom import CORRECT, PS1, filled, hand_in

ROOT = Path(__file__).resolve().parents[3]
HONEST = [*structure.case.cases, *formats.case.cases, *running.case.cases, *files.case.cases, *files.names.cases]
ATTACKS = [
    *(c for module in (reading, forging, lying, patching, breaking) for c in module.case.cases),
]
CASES = [*HONEST, *ATTACKS]
# Small enough that a bomb costs a second or two, large enough for an honest answer on a busy machine.
LIMITS = ("call_s=4", "cell_s=8", "notebook_s=40", "cpu_s=30", "memory=600M", "tmpfs=64M", "processes=48")
GOOD = ("aa_good", "zz_good")


@dataclass(frozen=True)
class School:
    """What a run left behind. ``root`` holds ``class`` (the hand-ins) and ``out``."""

    root: Path

    @property
    def out(self) -> Path:
        return self.root / "out"

    @cached_property
    def results(self) -> dict[str, Any]:
        return json.loads((self.out / "results.json").read_text("utf-8"))

    @cached_property
    def evidence(self) -> dict[str, Any]:
        return json.loads((self.root / "evidence.json").read_text("utf-8"))

    def entry(self, place: str) -> dict[str, Any]:
        """The student whose hand-in lies at ``place`` in the class."""
        start = shown(f"{self.root}/class/{readable_name(os.fsencode(place))}")
        paths = {shown(s["submission"]): s for s in self.results["students"]}
        found = [s for path, s in paths.items() if path == start or path.startswith((start + "/", start + "!"))]
        assert len(found) == 1, (place, [s["submission"] for s in found])
        return found[0]

    def executed(self, student: str) -> str:
        """The executed notebook as the instructor sees it; empty where nothing ran."""
        path = self.out / "autograded" / student / "ps1" / "ps1.ipynb"
        return path.read_text("utf-8") if path.exists() else ""


def graded(factory: pytest.TempPathFactory) -> School:
    """The class, graded by whichever test process comes first."""
    return School(shared(factory, "school", grade_class))


def shared(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that ``make`` fills once for all test processes of this run."""
    base = factory.getbasetemp()
    base = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = base / name
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            make(folder)
            (folder / "done").touch()
    assert (folder / "done").exists(), f"{folder} could not be made; see the first test that needed it"
    return folder


def grade_class(root: Path) -> None:
    """Write the class, grade it through the command line, and note all that it changed around it."""
    hand_ins = root / "class"
    for name in GOOD:
        hand_in(hand_ins, name, filled(CORRECT))
    for case in CASES:
        case.write(hand_ins)
    with traps(hand_ins) as heard, adopted() as left:
        before = digest(hand_ins), digest(PS1.parent)
        done = subprocess.run(
            [sys.executable, "-m", "grader", "grade", str(hand_ins), "--assignment", "ps1", "--source", str(PS1)]
            + ["--out", str(root / "out"), "--workers", "2", *(x for limit in LIMITS for x in ("--limit", limit))],
            cwd=ROOT,
            env={**os.environ, SETTING: "secret", "NBGRADER_EXECUTION": "autograde"},
            capture_output=True,
        )
    evidence = {
        "code": done.returncode,
        "stdout": done.stdout.decode("utf-8", "replace"),
        "stderr": done.stderr.decode("utf-8", "replace"),
        "heard": heard,
        "left": left,
        "litter": litter(hand_ins),
        "unchanged": before == (digest(hand_ins), digest(PS1.parent)),
    }
    (root / "evidence.json").write_text(json.dumps(evidence), "utf-8")


def digest(folder: Path) -> str:
    """A digest of all names, links, contents and times below a folder."""
    total = hashlib.sha256()
    for parent, names, leaves in os.walk(os.fsencode(folder)):
        names.sort()
        for leaf in sorted([*leaves, *(n for n in names if os.path.islink(os.path.join(parent, n)))]):
            path = os.path.join(parent, leaf)
            state = os.lstat(path)
            total.update(repr((path, state.st_mode, state.st_size, state.st_mtime_ns)).encode())
            if not os.path.islink(path):
                total.update(Path(os.fsdecode(path)).read_bytes())
    return total.hexdigest()


@contextlib.contextmanager
def traps(hand_ins: Path) -> Iterator[list[str]]:
    """Listeners on this machine that note whoever reaches them."""
    heard: list[str] = []
    places: list[tuple[int, int, Any]] = [(socket.AF_INET, kind, ("127.0.0.1", 0)) for kind in (1, 2)]
    if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6"):
        places.append((socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)))
    places += [(socket.AF_UNIX, kind, f"\0attack-canary-{os.getpid()}") for kind in (1, 2, 5)]
    listeners, port = [], 0
    for family, kind, address in places:
        listener = socket.socket(family, kind)
        with contextlib.suppress(OSError):  # the same number may be taken in another family
            listener.bind((address[0], port) if isinstance(address, tuple) else address)
            port = port or listener.getsockname()[1]
            if kind != socket.SOCK_DGRAM:
                listener.listen()
            listeners.append(listener)
    for path in hand_ins.glob("break_network_*/ps1.ipynb"):
        text = path.read_text("utf-8").replace(str(breaking.PORT), str(port))
        path.write_text(text.replace("attack-canary", f"attack-canary-{os.getpid()}"), "utf-8")
    stop = threading.Event()
    thread = threading.Thread(target=listen, args=(listeners, heard, stop))
    thread.start()
    try:
        yield heard
    finally:
        stop.set()
        thread.join()
        for listener in listeners:
            listener.close()


def listen(listeners: list[socket.socket], heard: list[str], stop: threading.Event) -> None:
    import select

    while not stop.is_set():
        for ready in select.select(listeners, [], [], 0.2)[0]:
            heard.append(str(ready))
            if ready.type == socket.SOCK_DGRAM:
                ready.recv(100)
            else:
                ready.accept()[0].close()


@contextlib.contextmanager
def adopted() -> Iterator[list[str]]:
    """Whatever is started inside and outlives its parent becomes a child of this process, which notes it."""
    left: list[str] = []
    prctl = ctypes.CDLL(None).prctl
    me = psutil.Process()
    before = {p.pid for p in me.children(recursive=True)}
    prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    try:
        yield left
        deadline = time.monotonic() + 20
        while found := [p for p in survivors(me) if not before & {p.pid, *ancestors(p)}]:
            if time.monotonic() > deadline:
                left += [described(p) for p in found]
                for process in found:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
                break
            time.sleep(0.1)
    finally:
        prctl(36, 0, 0, 0, 0)


def survivors(me: psutil.Process) -> list[psutil.Process]:
    """Living processes below this one, and any of the name that hostile notebooks give theirs."""
    found = []
    for process in [*me.children(recursive=True), *psutil.process_iter()]:
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.name().startswith(SURVIVOR[:15]) or me.pid in {p.pid for p in process.parents()}:
                found.append(process)
    return found


def ancestors(process: psutil.Process) -> set[int]:
    """The processes above this one: what a browser of another test starts meanwhile is below the browser."""
    with contextlib.suppress(psutil.Error):
        return {parent.pid for parent in process.parents()}
    return set()


def described(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {process.name()} {process.cmdline()}"
    return str(process.pid)


def litter(hand_ins: Path) -> list[str]:
    """Files of hostile notebooks anywhere that an escaped process could write."""
    places = {tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm", "/", "/etc", "/run", str(Path.home()), str(ROOT)}
    found = [str(p) for place in places for p in Path(place).glob(f"{LITTER}*")]
    for package in Path(sys.prefix).glob(f"lib/python*/site-packages/{LITTER}*"):
        found.append(str(package))
    return found + [str(p) for p in hand_ins.rglob(f"{LITTER}*") if not p.parent.name.startswith("$(")]


def table(cases: list[Case]) -> str:
    """The list of all cases as Markdown."""
    lines = [
        "# Cases of our own, besides those of the manifest",
        "",
        "Written by `python -m grader.tests.attacks`; a test holds it against the definitions. Each case is a hand-in",
        "of one class that is graded through `python -m grader grade`. Fair: the points of 10 that it earns; – where",
        "there is a reason instead of a number. Flags never change a score.",
        "",
        "| name | kind | what differs | fair | status | flags |",
        "|---|---|---|---|---|---|",
    ]
    for case in cases:
        fair = "–" if case.score is None else f"{case.score:g}"
        flags = ", ".join(case.flags) or ("none" if case.quiet else "")
        mechanism = case.mechanism.replace("|", "\\|")
        lines.append(f"| {case.name} | {case.kind} | {mechanism} | {fair} | {case.status} | {flags} |")
    return "\n".join(lines) + "\n"


def write_table() -> Path:
    path = Path(__file__).parents[1] / "SIBLINGS.md"
    path.write_text(table(CASES), "utf-8")
    return path
