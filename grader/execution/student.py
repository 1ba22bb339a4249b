"""Drives the student's process: runs the cells, replaces the process when one dies, opens a session for each test."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from grader import sandbox
from grader.channel import codec
from grader.channel.wire import Channel, Closed, TimedOut
from grader.execution.cells import Cells, StudentCell, TestCell
from grader.execution.remote import Session, Stop, exception
from grader.execution.stubs import Stub, stubs_of
from grader.model import ExecutionRequest
from grader.sandbox.process import Sandbox

FULL, DEFINITIONS, SKIP = "full", "definitions", "skip"
WEAKER = {FULL: DEFINITIONS, DEFINITIONS: SKIP}
DEFINITIONS_S = 5.0
REPLAYS = 3
FORK_S = 20.0
END_S = 2.0

LIMIT_TEXT = {
    "memory": "内存超过上限 (memory limit)",
    "processes": "进程或线程数超过上限 (process limit)",
    "files": "文件数或磁盘用量超过上限 (file limit)",
    "output": "输出超过上限 (output limit)",
    "reply": "返回值过大 (reply size limit)",
}


@dataclass
class CellRun:
    """How a student's cell went: ``status`` is ok, error, or one of TEST_STATUSES for a cell that was stopped."""

    status: str = "ok"
    outputs: list[dict[str, Any]] = field(default_factory=list)
    error: Any = None  # as `remote.exception` makes it
    message: str = ""


class CellStopped(Exception):
    """The process died or was ended while a cell ran."""

    def __init__(self, cell: StudentCell, status: str, message: str, *, forged: bool = False) -> None:
        super().__init__(message)
        self.cell = cell
        self.forged = forged
        self.status = status
        self.message = message


class Student:
    """All that a submission does in its sandbox. Use as a context manager."""

    def __init__(self, request: ExecutionRequest, cells: Cells, started: Callable[[int], None]) -> None:
        self.limits = request.limits
        self.kind = request.sandbox
        self.attempted = request.attempted
        self.cells = cells
        self.started = started
        self.runs: dict[str, CellRun] = {}
        self.modes = {c.key: FULL for c in cells.student}
        self.patched: list[str] = []
        self.hits: set[str] = set()
        self.forged = 0
        self.survivors = 0
        self.served = False  # whether any test came to an end with the process alive
        self.again = False  # what a cell left behind may have broken the test: it deserves a second try
        self.knows_hidden = False  # whether a hidden test ran against this sandbox
        self.sandbox: Sandbox | None = None
        self.fork = True
        self.left = request.limits.notebook_s  # for the first run of each cell
        self.replays_left = REPLAYS * request.limits.notebook_s  # for all runs of cells before the first test
        self.completed: set[str] = set()
        self.overdue: dict[str, int] = {}  # see Session
        self._disk: tuple[int, ...] = ()
        self._mute = False  # whether the process didn't answer when the last cell had run
        self._doubted: dict[str, str] | None = None  # the modes before a second try without what cells left behind

    def __enter__(self) -> Student:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def discard(self) -> None:
        """End the process; the next test gets a new one."""
        if self.sandbox is not None:
            self.sandbox.close()
            self.hits |= self.sandbox.hits
            self.sandbox = None
            self.knows_hidden = False

    # ------------------------------------------------------------------------------------------------- the cells

    def prepare(self) -> None:
        """Bring up a process in which all cells have run; a cell that ends it is replayed with less of it."""
        while self.sandbox is None:
            self.sandbox = sandbox.start(self.limits, self.kind)
            self.started(self.sandbox.process.pid)
            try:
                self._run_cells()
            except CellStopped as stopped:
                self._weaken(stopped)
                self.discard()
                continue
            if self._is_broken():
                self._only_definitions()
                self.discard()
        left_running = self.sandbox.others()
        self.survivors = max(self.survivors, left_running)
        if left_running:
            self.sandbox.sweep()
        self.fork = self.sandbox.can_fork and self.sandbox.threads() == 1
        self._disk = self.sandbox.disk_state()

    def _is_broken(self) -> bool:
        """Whether a cell broke the process, or a replaced part of the shell kept a solution cell from running."""
        errors = [self.runs[c.key].error for c in self.cells.student if c.role == "solution" and c.key in self.runs]
        broken = self._mute or bool(self.patched) and any(e and e.cell is None for e in errors)
        return broken and FULL in self.modes.values()

    def _only_definitions(self) -> None:
        """The fault may lie in what a cell left behind (a thread, a hook, a patch): do without."""
        self.modes = {key: DEFINITIONS if mode == FULL else mode for key, mode in self.modes.items()}

    def _weaken(self, stopped: CellStopped) -> None:
        key = stopped.cell.key
        if (stopped.forged or self.modes[key] == DEFINITIONS) and FULL in self.modes.values():
            self._only_definitions()
        else:
            self.modes[key] = WEAKER.get(self.modes[key], SKIP)
        earlier = self.runs.get(key)
        if earlier is None or earlier.status in ("ok", "error"):
            outputs = earlier.outputs if earlier else []
            self.runs[key] = CellRun(stopped.status, outputs, None, stopped.message)

    def _run_cells(self) -> None:
        for cell in self.cells.student:
            mode = self._mode(cell)
            if mode == SKIP:
                continue
            run = self._run_cell(cell, mode)
            if mode == FULL:
                self.completed.add(cell.key)
                if self.runs.get(cell.key, run).status in ("ok", "error"):
                    self.runs[cell.key] = run
        self.patched = self._finish() or self.patched

    def _mode(self, cell: StudentCell) -> str:
        """How much of a cell to run. A cell that came to its end once may always run again."""
        mode = self.modes[cell.key]
        if mode == FULL and cell.key not in self.completed and min(self.left, self.replays_left) <= 0:
            mode = self.modes[cell.key] = DEFINITIONS
            self.runs[cell.key] = CellRun("timed_out", [], None, "整个笔记本的时间已用完 (notebook time limit)")
        return mode

    def _run_cell(self, cell: StudentCell, mode: str) -> CellRun:
        assert self.sandbox is not None
        channel = self.sandbox.channel
        message = {"op": "cell", "key": cell.key, "role": cell.role, "source": cell.source}
        first = mode == FULL and cell.key not in self.completed
        allowed = DEFINITIONS_S if mode == DEFINITIONS else self.limits.cell_s
        if first:
            allowed = min(allowed, max(self.left, 1.0))
        begun = time.monotonic()
        try:
            channel.send({**message, "definitions_only": mode == DEFINITIONS}, begun + allowed)
            reply = channel.receive(begun + allowed, 8 * self.limits.output + (1 << 20))
            if reply.get("limit") == "output":
                self.hits.add("output")
                raise CellStopped(cell, "limit", LIMIT_TEXT["output"])
            if reply.get("done") != cell.key or type(reply.get("outputs")) is not list:
                raise codec.CodecError("an unexpected message")
            error = exception(reply["error"]) if reply.get("error") is not None else None
        except TimedOut:
            raise CellStopped(cell, "timed_out", f"运行超过 {allowed:g} 秒 (time limit)") from None
        except Closed:
            status, text = self._cause()
            raise CellStopped(cell, status, text) from None
        except codec.TooLarge:
            self.hits.add("output")
            raise CellStopped(cell, "limit", LIMIT_TEXT["output"]) from None
        except codec.CodecError:
            self.forged += 1
            raise CellStopped(cell, "error", "单元格破坏了与评分程序的通信 (forged reply)", forged=True) from None
        finally:
            took = time.monotonic() - begun
            self.replays_left -= took
            self.left -= took if first else 0
        return CellRun("error" if error else "ok", reply["outputs"], error)

    def notes(self) -> tuple[str, ...]:
        """What a student should know about cells that were stopped."""
        stopped = [(c, self.runs[c.key]) for c in self.cells.student if c.key in self.runs]
        return tuple(
            f"单元格「{cell.title}」被中止：{run.message}；评分时只保留其中的函数、类和导入"
            for cell, run in stopped
            if run.status not in ("ok", "error")
        )

    def _finish(self) -> list[str]:
        assert self.sandbox is not None
        deadline = time.monotonic() + 10
        self._mute = True
        try:
            self.sandbox.channel.send({"op": "finish"}, deadline)
            found = self.sandbox.channel.receive(deadline, 1 << 20).get("finished")
        except (TimedOut, Closed):
            return ["the student's process stopped answering"]
        except codec.CodecError:
            found = None
        if type(found) is not list:
            self.forged += 1
            return ["the shell"]
        self._mute = False
        return [f[:200] for f in found if type(f) is str][:40]

    def _cause(self, wait_status: object = None) -> tuple[str, str]:
        """Status and reason of a process that died."""
        assert self.sandbox is not None
        violation = self.sandbox.violation
        if violation == "memory":
            return "crashed", LIMIT_TEXT[violation]
        if violation is not None:
            return "limit", LIMIT_TEXT[violation]
        if (
            type(wait_status) is int
            and os.name == "posix"
            and 0 <= wait_status < 1 << 16
            and os.WIFSIGNALED(wait_status)
        ):
            number = os.WTERMSIG(wait_status)
            if number == signal.SIGXCPU:
                return "timed_out", f"CPU 时间超过 {self.limits.cpu_s} 秒 (CPU limit)"
            return "crashed", f"进程被信号 {number} 终止 (killed by signal {number})"
        return "crashed", "进程意外终止 (the process died)"

    # ------------------------------------------------------------------------------------------------- the tests

    def session(self, test: TestCell, restarting: Callable[[bool], None]) -> Session:
        """A session for one test, against a process in the state that the cells left.

        Args:
            restarting: called with True before the cells have to run again, and with False after that.
        """
        return Session(
            lambda: self._connect(test, restarting), self.limits, self._ended, self.overdue, self._stubs(test)
        )

    def _stubs(self, test: TestCell) -> dict[str, Stub]:
        """The functions of the test's own question, where that was left as it was given out."""
        cell = self.cells.by_key(test.question)
        run = self.runs.get(cell.key) if cell else None
        if cell is None or self.attempted.get(cell.grade_id, True) or run is None or run.status != "ok":
            return {}
        return {name: stub for name, stub in stubs_of(cell).items() if name not in self.cells.helpers}

    def _connect(self, test: TestCell, restarting: Callable[[bool], None]) -> Channel:
        """A channel to a process that answers this test.

        Raises:
            Stop: no such process can be had.
        """
        stray = self.sandbox.channel.waiting() if self.sandbox is not None else None
        if stray is not None:
            if stray:
                self._unasked()
            self.discard()
        if self.sandbox is None:
            restarting(True)
            self.prepare()
            restarting(False)
        assert self.sandbox is not None
        message = {"test": test.grade_id, "question": test.question or ""}
        deadline = time.monotonic() + FORK_S
        channel = self.sandbox.channel
        self._test = test
        try:
            if not self.fork:
                channel.send({"op": "answer", **message}, deadline)
                return channel
            ours, theirs = socket.socketpair()
            with theirs:
                channel.send({"op": "test", **message}, deadline, (theirs.fileno(),))
            return Channel(ours)
        except (TimedOut, Closed):
            status, text = self._cause()
            self.discard()
            raise Stop(status, text) from None

    def _unasked(self) -> None:
        """A message came that nobody asked for: what cells left behind writes it."""
        self.forged += 1
        self._only_definitions()

    def _ended(self, why: str, asked: str) -> Stop:
        """The session failed: find out how, and clean up.

        Args:
            why: ``time``, ``closed``, ``forged`` or a limit.
            asked: the operation that got no reply. ``get`` runs no code of the student's.
        """
        beside = not self.fork  # threads that cells left behind ran beside the answer
        wait_status = self._reap(kill=why != "closed")
        lost = why == "closed" and self.sandbox is None
        unknown = lost and self._cause_unknown and not self.served
        stop = self._gone if lost else self._stop(why, wait_status)
        if FULL in self.modes.values() and (beside or unknown or asked == "get" or why == "forged"):
            self._doubted = dict(self.modes)
            self._only_definitions()
            self.discard()
            self.again = True
        return stop

    def _stop(self, why: str, wait_status: object) -> Stop:
        if why == "time":
            return Stop("timed_out", f"一次调用超过 {self.limits.call_s:g} 秒 (time limit)")
        if why == "forged":
            self.forged += 1
            return Stop("error", "返回的消息无法识别 (forged reply)")
        if why in LIMIT_TEXT:
            self.hits.add(why)
            return Stop("limit", LIMIT_TEXT[why])
        return Stop(*self._cause(wait_status))

    def release(self, session: Session) -> None:
        """After a test: end its process; keep the student's if the test left no trace in it."""
        if session.channel is not None and session.channel is not getattr(self.sandbox, "channel", None):
            session.channel.close()
        if session.channel is not None and session.stop is None:
            self.served = True
            self._reap(kill=False)
        if self._doubted is not None and not self.again:
            if session.stop is not None:  # it failed all the same, so the cells were not at fault
                self.modes = self._doubted
                self.discard()
            self._doubted = None

    def _reap(self, *, kill: bool) -> object:
        """End the process of the running test and return its wait status, if it is known."""
        box = self.sandbox
        if box is None:
            return None
        status: object = None
        clean = False
        if self.fork:
            status = self._wait_for_end(kill)
            clean = status is not None and box.sweep() and box.violation is None and box.disk_state() == self._disk
        if not clean:
            self._gone = Stop(*self._cause(status))
            self._cause_unknown = status is None and box.violation is None
            self.discard()
        return status

    def _wait_for_end(self, kill: bool) -> object:
        assert self.sandbox is not None
        for attempt in range(2):
            if (kill or attempt) and not self.sandbox.sweep():
                return None
            try:
                reply = self.sandbox.channel.receive(time.monotonic() + END_S, 1024)
            except TimedOut:
                continue
            except (Closed, codec.CodecError):
                return None
            if reply.get("ended") == self._test.grade_id:
                return reply.get("status")
            self._unasked()
            return None
        return None
