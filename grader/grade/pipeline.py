"""`python -m grader grade`: from a folder of submissions to results, feedback and an nbgrader course tree."""

from __future__ import annotations

import itertools
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy.exc import OperationalError

from grader.errors import GraderError
from grader.feedback import write_feedback
from grader.grade import outfolder
from grader.grade.job import Job, Outcome, failure, grade_one
from grader.grade.records import (
    Record,
    Records,
    booked,
    collected_at,
    describe,
    execution_of,
    fingerprint,
    record_of,
)
from grader.grade.sources import chapter_source, known_assignments
from grader.grade.workers import KeptPool, local_pool, run_jobs
from grader.gradebook.booking import Book
from grader.gradebook.engine import shared_session
from grader.gradebook.scores import read_grades
from grader.gradebook.tree import CourseTree, register
from grader.model import Limits, Notebook, Submission
from grader.progress import progress
from grader.report.page import write_report
from grader.results import Results, collect_results, write_results
from grader.structure import max_score_of, questions_of

REFERENCE = "/reference"  # stands for a student in the job of the reference solution; no student has a name like it


@dataclass(frozen=True)
class GradeOptions:
    """What the command line says; see its help for each."""

    submissions: Path
    assignment: str
    source: Path | None = None
    out: Path | None = None
    workers: int = 2
    roster: Path | None = None
    due: datetime | None = None
    force: bool = False
    unsafe_no_sandbox: bool = False
    limits: Limits = field(default_factory=Limits)
    only: tuple[str, ...] = ()
    make_executor: Callable[[int], Executor] = local_pool
    on_cluster: bool = False  # code runs on other machines, which were asked whether they have a sandbox


@dataclass(frozen=True)
class Edition:
    """The instructor's notebook of an assignment and what students were given."""

    path: Path
    source: Notebook
    release: Notebook
    digest: str
    version: str


def grade(options: GradeOptions) -> tuple[Path, Results]:
    """Grade a class.

    Returns:
        the out folder and the results.

    Raises:
        GraderError: nothing was graded, for the reason it gives; or another process is grading into the folder.
    """
    if isinstance(options.make_executor, KeptPool):
        return _grade(options)
    with KeptPool(options.make_executor, options.workers) as pool:
        return _grade(replace(options, make_executor=pool.start()))


def _grade(options: GradeOptions) -> tuple[Path, Results]:
    sandbox = _sandbox(options.unsafe_no_sandbox, elsewhere=options.on_cluster)
    edition = load_edition(options.assignment, options.source)
    out = (options.out or Path("out") / options.assignment).resolve()
    outfolder.keep_apart(options.submissions, out)
    submissions = _collect(options, edition)
    outfolder.claim(out, options.assignment, edition.path, edition.digest, force=options.force)
    with outfolder.one_writer(out), shared_session():
        _check_only(options, edition, out)
        _ClassRun(options, edition, sandbox, out).grade(submissions)
        return out, write_all(out)


def write_all(out: Path) -> Results:
    """Write results.json, results.csv, the feedback and the class report from the gradebook and the records.

    Call it inside :func:`shared_session`.

    Raises:
        GraderError: ``out`` was not made by ``grade``.
    """
    results = collect_results(out)
    write_results(out, results)
    write_feedback(out, results)
    write_report(out, results)
    return results


def rewrite(out: Path) -> Results:
    """`python -m grader results OUT`: :func:`write_all` alone, after a change in formgrader."""
    if outfolder.read_marker(out) is None:
        raise GraderError(str(out), "no class was graded into this folder", "name the --out folder of `grade`")
    with outfolder.one_writer(out), shared_session():
        return write_all(out)


def load_edition(assignment: str, source: Path | None) -> Edition:
    """Read the instructor's notebook, check it as release does, and make the student edition in memory.

    Raises:
        GraderError: no such assignment or file, or the source has a fault that would cost students points.
    """
    from grader.authoring.checks.finding import refuse
    from grader.authoring.checks.graded import check_graded_cells, check_ids_and_points
    from grader.authoring.checks.markers import check_markers
    from grader.authoring.release import load_source, release_notebook

    path = source or _known_source(assignment)
    if not path.is_file():
        raise GraderError(str(path), "there is no such file", "name the instructor's notebook with --source")
    notebook = load_source(path)
    faults = check_ids_and_points(notebook) + check_markers(notebook)
    refuse(path.name, faults + check_graded_cells(notebook)[0])
    release = release_notebook(notebook, assignment)
    plain_source, plain_release = _plain(notebook), _plain(release)
    for cell in plain_source["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    if not questions_of(plain_source):
        raise GraderError(str(path), "it has no graded cell", "give the test cells points in nbgrader's metadata")
    digest = fingerprint(plain_source)
    course = plain_release["metadata"].get("course", {})
    version = f"{course['version']}+{course['release']}" if course.get("version") else f"source {digest[:12]}"
    return Edition(path, plain_source, plain_release, digest, version)


def _check_only(options: GradeOptions, edition: Edition, out: Path) -> None:
    """A changed source takes the whole class along: scores of two editions must not stand side by side."""
    marker = outfolder.read_marker(out)
    if options.only and marker is not None and marker["source_digest"] != edition.digest:
        raise GraderError("--only", "the source has changed since the class was graded", "grade everybody again")


def _check_reference(edition: Edition, outcome: Outcome) -> None:
    """Look at what came of the reference solution, graded like a student's: what it fails, everybody would.

    Raises:
        GraderError: it does not get full marks; names the cells.
    """
    tests = outcome.execution.tests if outcome.execution else ()
    failed = [
        f"{test.grade_id} ({test.status}: {' '.join(test.message.split())[:200]})"
        for test in tests
        if test.status != "passed"
    ]
    if outcome.execution is None or failed:
        raise GraderError(
            str(edition.path),
            f"its own reference solution does not pass: {'; '.join(failed) or outcome.reason}",
            "correct the source; nobody could get full marks",
        )


def _deadline(options: GradeOptions, edition: Edition) -> float:
    """Seconds after which a worker is believed to hang: far beyond what the sandbox's own limits allow."""
    tests = sum(len(question.behaviours) for question in questions_of(edition.source))
    return 2 * options.limits.notebook_s + tests * options.limits.cell_s + 60


@contextmanager
def _interruptions() -> Iterator[Callable[[], None]]:
    """Yields what raises KeyboardInterrupt once more after a Ctrl-C.

    Python drops the exception where it strikes in a finalizer, of which booking runs many.
    """
    asked: list[int] = []

    def note(number: int, frame: Any) -> None:
        asked.append(number)
        raise KeyboardInterrupt

    def stop_if_asked() -> None:
        if asked:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only that one may have handlers, and gets signals
        yield stop_if_asked
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield stop_if_asked
    finally:
        signal.signal(signal.SIGINT, before)


class _ClassRun:
    """One run over a class by the one writer of its out folder."""

    def __init__(self, options: GradeOptions, edition: Edition, sandbox: str, out: Path) -> None:
        self.options, self.edition, self.sandbox, self.out = options, edition, sandbox, out
        self.tree, self.records = CourseTree(out, options.assignment), Records(out)
        self.book = Book(self.tree)
        self.conditions = fingerprint(edition.digest, asdict(options.limits), sandbox)
        marker = outfolder.read_marker(out)
        # Once per source. Where it has to be checked, nothing that was graded earlier still counts.
        self.reference_passed = marker is not None and (marker["source_digest"], marker["sandbox"]) == (
            edition.digest,
            sandbox,
        )

    def grade(self, submissions: list[Submission]) -> None:
        """Bring the gradebook and the records up to date with the submissions.

        Raises:
            GraderError: the reference solution does not pass; nothing was entered then.
        """
        digests = {s.student: fingerprint(s.notebook, s.problem, self.conditions) for s in submissions}
        readable = {s.student: s for s in submissions if s.notebook is not None}
        kept = {name: record for name in readable if (record := self._kept(name, digests[name])) is not None}
        todo = [name for name in readable if name not in kept]
        with progress(len(todo), "grading") as step, _interruptions() as stop_if_asked:
            outcomes = self._outcomes([self._job(name, readable[name].notebook) for name in todo])
            self._open()
            for submission in submissions:
                if submission.notebook is None:
                    self._enter_ungraded(submission, digests[submission.student])
                elif submission.student in kept:
                    self._enter_again(submission, kept[submission.student])
                stop_if_asked()
            for outcome in outcomes:
                self._enter(readable[outcome.student], digests[outcome.student], outcome)
                step(f"{outcome.student}: {outcome.status}")
                stop_if_asked()

    def _open(self) -> None:
        """Make the out folder hold this edition; from here on it does."""
        register(self.tree, self.edition.source, self.edition.release, self.options.due)
        outfolder.write_marker(self.out, _marker(self.options, self.edition, self.sandbox))

    def _job(self, student: str, notebook: Notebook) -> Job:
        return Job(student, self.edition.source, self.edition.release, notebook, self.options.limits, self.sandbox)

    def _outcomes(self, jobs: list[Job]) -> Iterator[Outcome]:
        """The outcome of each job. The reference solution goes along with them, and has passed when this returns."""
        if not self.reference_passed:
            jobs = [self._job(REFERENCE, self.edition.source), *jobs]
        if not jobs:
            return iter(())
        outcomes = run_jobs(
            jobs,
            grade_one,
            workers=max(1, min(self.options.workers, len(jobs))),
            deadline_s=_deadline(self.options, self.edition),
            make_executor=self.options.make_executor,
        )
        early = []
        while not self.reference_passed:
            outcome = next(outcomes)
            if outcome.student == REFERENCE:
                _check_reference(self.edition, outcome)
                self.reference_passed = True
            else:
                early.append(outcome)
        return itertools.chain(early, outcomes)

    def _kept(self, student: str, digest: str) -> Record | None:
        """The record of the same submission under the same conditions, unless something of it was lost since."""
        record = self.records.read(student)
        if record is None or self.options.force or record["digest"] != digest or not self.reference_passed:
            return None
        if record["booked"] and record["tests"] and not self._is_in_gradebook(student):
            return None
        return record

    def _enter_again(self, submission: Submission, record: Record) -> None:
        """Enter what was executed earlier: all of it where the booking is missing, else when it was handed in."""
        record = {**record, "submission": describe(submission)}
        if record["booked"]:
            self.records.write(record)
        else:
            self._book(record)

    def _is_in_gradebook(self, student: str) -> bool:
        """Whether what the record says was booked is still there: people delete gradebooks and folders."""
        return student in self._known and self.tree.autograded(student).is_file()

    @cached_property
    def _known(self) -> set[str]:
        return set(read_grades(self.tree))

    def _enter(self, submission: Submission, digest: str, outcome: Outcome) -> None:
        if outcome.execution is None:
            digest = ""  # a fault of the machine or the grader: the next run tries again
        record = record_of(submission, digest, self.edition.digest, outcome)
        try:
            self.records.write(record)
            self._book(record)
        except OperationalError:  # the gradebook is locked or the disk is full: not this student's fault
            raise
        except Exception as error:  # whatever nbgrader can't digest must cost only its own student
            failed = failure(submission.student, error)
            self._book(record_of(submission, "", self.edition.digest, failed))

    def _enter_ungraded(self, submission: Submission, digest: str) -> None:
        """Note a student whose hand-in is missing or unreadable; a roster never wipes out an earlier grade."""
        missing = not submission.path
        earlier = self.records.read(submission.student)
        if missing and earlier is not None and earlier["status"] != "not_submitted":
            return
        if earlier is not None and earlier["digest"] == digest and earlier["booked"] and not self.options.force:
            return
        status = "not_submitted" if missing else "unreadable"
        self._enter(submission, digest, Outcome(submission.student, status, reason=submission.problem or ""))

    def _book(self, record: Record) -> None:
        """Enter a record's grades into the gradebook, then mark it as booked."""
        execution = execution_of(record)
        if execution is None:
            self.book.clear(record["student"], discard_overrides=self.options.force)
        else:
            self.book.enter(
                record["student"],
                record["edition"],
                execution,
                collected_at=collected_at(record),
                discard_overrides=self.options.force,
            )
        self.records.write(booked(record))


def _collect(options: GradeOptions, edition: Edition) -> list[Submission]:
    from grader.intake.collect import collect

    submissions = collect(
        options.submissions,
        options.assignment,
        edition.release,
        source_names=[edition.path.name],
        roster=options.roster,
    )
    if not options.only:
        return submissions
    chosen = [submission for submission in submissions if submission.student in options.only]
    unknown = sorted(set(options.only) - {submission.student for submission in chosen})
    if unknown:
        names = ", ".join(submission.student for submission in submissions[:20])
        raise GraderError(f"--only {unknown[0]}", "no submission by this student", f"choose among: {names}")
    return chosen


def _known_source(assignment: str) -> Path:
    path = chapter_source(assignment)
    if path is not None:
        return path
    known = ", ".join(known_assignments()) or "none yet"
    raise GraderError(
        f"assignment {assignment}", "it is unknown", f"choose one of: {known}; or name its notebook with --source"
    )


def _sandbox(unsafe: bool, *, elsewhere: bool) -> str:
    """ "bwrap", or "none" where it was asked for; refuses where code would run here and there is no sandbox."""
    if unsafe:
        print(
            "warning: --unsafe-no-sandbox: students' code runs with your rights on this machine. It can read the "
            "hidden tests, change any score and delete your files. Every result is marked with it.",
            file=sys.stderr,
        )
        return "none"
    from grader.sandbox import problem

    fault = None if elsewhere else problem()
    if fault is not None:
        raise fault
    return "bwrap"


def _marker(options: GradeOptions, edition: Edition, sandbox: str) -> dict[str, Any]:
    return {
        "format": 1,
        "assignment": options.assignment,
        "source": str(edition.path.resolve()),
        "source_digest": edition.digest,
        "release": edition.version,
        "max_score": max_score_of(edition.source),
        "sandbox": sandbox,
        "due": options.due.isoformat() if options.due else None,
        "limits": asdict(options.limits),
    }


def _plain(notebook: Notebook) -> Notebook:
    """The notebook as plain dictionaries, which pickle small and compare by value."""
    return json.loads(json.dumps(notebook))
