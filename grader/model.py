"""The values that flow through the grader, one way:

    intake → Submission → rebuild → Rebuilt → execute → Execution → gradebook → results

All of them are plain data: they can be pickled to a worker process and compared in a test.
Notebooks are nbformat 4.5 dictionaries (``nbformat.NotebookNode`` or plain ``dict``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Notebook = dict[str, Any]

# Cells with one of these tags never run when a submission is graded.
SKIP_TAGS = frozenset({"settings", "experiment", "reader", "plot", "summary"})

# A student's status for one assignment, as results.json shows it.
STUDENT_STATUSES = ("graded", "partial", "not_submitted", "unreadable", "crashed", "timed_out")

# What one test cell came to. Only the first two are a verdict of the test itself.
#   passed          full points, or partial credit equal to the maximum
#   failed          an assertion of the test failed, or partial credit below the maximum
#   no_attempt      the stub is untouched (NotImplementedError of the release, or unchanged solution cell)
#   error           the student's code raised, or a name is missing
#   timed_out       the student's code used up its time
#   crashed         the student's process died (signal, exit, memory)
#   limit           another limit of the sandbox stopped it (output, processes, files, reply size)
#   not_run         nothing could be run for this test (null score)
TEST_STATUSES = ("passed", "failed", "no_attempt", "error", "timed_out", "crashed", "limit", "not_run")


@dataclass(frozen=True)
class Flag:
    """A hint of tampering. It never changes a score by itself.

    kind: one of ``tests_edited, points_changed, runner_patched, sandbox_limit, forged_timestamp,
    shadow_file, forged_reply, sandbox_probe``.
    """

    kind: str
    detail: str


@dataclass(frozen=True)
class Submission:
    """One student's hand-in as intake found it. ``notebook`` is None when ``problem`` says why."""

    student: str
    path: str  # as the instructor knows it (a member of a zip reads "class.zip!member")
    notebook: Notebook | None
    problem: str | None = None  # plain words, with a remedy
    collected_at: datetime | None = None  # timezone-aware; the collector's time, never the student's
    notes: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    other_files: tuple[str, ...] = ()  # older hand-ins and extra files, listed, never used


@dataclass(frozen=True)
class Rebuilt:
    """The instructor's notebook with the student's code in it.

    ``notebook`` holds every cell of the instructor's copy in its order (solution cells carry the
    student's source, test cells and locked cells the instructor's) and the student's own extra code
    cells, each at its place and marked ``metadata.grader.origin == "student"``.
    ``attempted`` tells for each solution grade_id whether its source differs from the release.
    """

    notebook: Notebook
    attempted: dict[str, bool]
    notes: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True)
class Limits:
    """What student code may use. Seconds, bytes, counts."""

    cell_s: float = 30.0
    call_s: float = 10.0
    notebook_s: float = 120.0
    cpu_s: int = 60
    address_space: int = 4 << 30
    memory: int = 2 << 30
    processes: int = 64
    open_files: int = 256
    file_size: int = 64 << 20
    tmpfs: int = 256 << 20
    output: int = 1_000_000
    reply: int = 1 << 20
    depth: int = 64


@dataclass(frozen=True)
class TestOutcome:
    """The verdict on one graded cell. ``message`` is safe to show to the student:
    for a failure inside a hidden test it never holds the test's source, values or exception text."""

    __test__ = False  # not a pytest class

    grade_id: str
    status: str  # one of TEST_STATUSES
    score: float | None  # None only for not_run
    max_score: float
    message: str = ""
    hidden: bool = False  # the failing statement lies in a hidden test


@dataclass(frozen=True)
class ExecutionRequest:
    """All that execution needs. Pure data, so that it can run in any process on any machine."""

    student: str
    notebook: Notebook  # Rebuilt.notebook
    attempted: dict[str, bool]
    limits: Limits = Limits()
    sandbox: str = "bwrap"  # "bwrap" or "none"; "none" must have been asked for


@dataclass(frozen=True)
class Execution:
    """``notebook`` is the request's, with outputs: what nbgrader's SaveAutoGrades reads."""

    notebook: Notebook
    tests: tuple[TestOutcome, ...]
    status: str  # graded, partial, crashed or timed_out
    sandbox: str
    notes: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    timing: dict[str, float] = field(default_factory=dict)
