"""Entering one student's outcome: nbgrader's own autograde bookkeeping with the cells already executed.

The single writer of the gradebook calls this. nbgrader's converter reads ``submitted/``, overwrites locked cells and
tests from the gradebook, then, where stock would start a kernel, takes the notebook that the sandbox executed. It
saves the grades in the gradebook and the executed notebook for formgrader.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.writers import FilesWriter
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import CheckCellMetadata, Execute, NbGraderPreprocessor
from traitlets.config import Config

from grader.files import write_atomic
from grader.gradebook.engine import transaction
from grader.gradebook.overrides import Overrides
from grader.gradebook.tree import CourseTree, write_notebook
from grader.model import Execution, Notebook
from grader.structure import nbgrader_metadata


class TakeExecuted(NbGraderPreprocessor):
    """Stands where nbgrader's Execute does and hands on a notebook that was executed before."""

    executed: Notebook

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        executed = nbformat.from_dict(self.executed)
        # What nbgrader computed for the tests (checksums, points) is kept; only outputs come from the execution.
        computed = {c.metadata.nbgrader.grade_id: c.metadata.nbgrader for c in nb.cells if nbgrader_metadata(c)}
        for cell in executed.cells:
            block = nbgrader_metadata(cell)
            if block and block["grade_id"] in computed:
                cell.metadata["nbgrader"] = computed[block["grade_id"]]
        return executed, resources


class StudentAutograde(Autograde):
    """nbgrader's Autograde for exactly one student, by name instead of by file pattern."""

    def enter(self, student: str, assignment: str, executed: Notebook) -> None:
        """Book one student; raises what nbgrader raises, after which the marker of the booking is missing."""
        self.writer = FilesWriter(parent=self, config=self.config)
        self.exporter = self.exporter_class(parent=self, config=self.config)
        self._take = TakeExecuted(parent=self)
        self._take.executed = executed
        submitted = self._format_source(assignment, student)
        self.notebooks = [os.path.join(submitted, f"{assignment}.ipynb")]
        self.init_assignment(assignment, student)
        for notebook in self.notebooks:
            self.convert_single_notebook(notebook)
        self.set_permissions(assignment, student)

    def _init_preprocessors(self) -> None:
        self.exporter._preprocessors = []
        chain = self.sanitize_preprocessors if self._sanitizing else self.autograde_preprocessors
        for preprocessor in chain:
            # The cells come from the instructor's copy, whose metadata was checked once, at release.
            if preprocessor is not CheckCellMetadata:
                self.exporter.register_preprocessor(self._take if preprocessor is Execute else preprocessor)


class Book:
    """The gradebook of one assignment, open for writing. Use inside :func:`grader.gradebook.engine.shared_session`."""

    def __init__(self, tree: CourseTree) -> None:
        self.tree = tree
        self.overrides = Overrides(tree.root)
        self.config = Config()
        self.config.CourseDirectory.root = str(tree.root)
        self.config.CourseDirectory.db_url = tree.db_url
        self.config.CourseDirectory.assignment_id = tree.assignment
        self.config.Exporter.optimistic_validation = True  # validate once, not after every step

    def enter(
        self,
        student: str,
        submitted: Notebook,
        execution: Execution,
        *,
        collected_at: datetime | None,
        discard_overrides: bool,
    ) -> None:
        """Book a graded submission. Scores of an earlier one are cleared first; booking again changes nothing.

        Args:
            submitted: the student's code in the release's cells (no hidden tests), for nbgrader's ``submitted/``.
            execution: what came of it; its verdicts are what the gradebook holds in the end.
            discard_overrides: forget scores given by hand.
        """
        with self.tree.gradebook() as gradebook, transaction(gradebook):
            self._clear(gradebook, student, discard_overrides)
            self._write_submitted(student, submitted, collected_at)
            with _quiet_log():
                converter = StudentAutograde(coursedir=CourseDirectory(config=self.config), config=self.config)
                converter.enter(student, self.tree.assignment, execution.notebook)
            self._set_verdicts(gradebook, student, execution)
            self.overrides.restore(gradebook, self.tree.assignment, student, scores=not discard_overrides)
        self.overrides.strike(student)

    def clear(self, student: str, *, discard_overrides: bool) -> None:
        """Make sure the student is known and nothing of an earlier submission counts any more."""
        with self.tree.gradebook() as gradebook, transaction(gradebook):
            self._clear(gradebook, student, discard_overrides)

    def _clear(self, gradebook: Gradebook, student: str, discard_overrides: bool) -> None:
        for path in (self.tree.submitted(student).parent, self.tree.autograded(student).parent):
            _remove(path)
        gradebook.update_or_create_student(student)
        try:
            submission = gradebook.find_submission(self.tree.assignment, student)
        except MissingEntry:
            return
        submission.timestamp = None
        for notebook in submission.notebooks:
            for grade in notebook.grades:
                grade.auto_score = None
                if discard_overrides:
                    grade.manual_score = grade.extra_credit = None

    def _write_submitted(self, student: str, submitted: Notebook, collected_at: datetime | None) -> None:
        path = self.tree.submitted(student)
        write_notebook(path, submitted)
        if collected_at is not None:
            stamp = collected_at.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
            write_atomic(path.parent / "timestamp.txt", stamp + "\n")

    def _set_verdicts(self, gradebook: Gradebook, student: str, execution: Execution) -> None:
        """Hold the gradebook to the verdicts: nbgrader reads outputs, and knows no "could not be run"."""
        verdicts = {test.grade_id: test.score for test in execution.tests}
        submission = gradebook.find_submission(self.tree.assignment, student)
        for notebook in submission.notebooks:
            for grade in notebook.grades:
                if grade.name in verdicts and grade.auto_score != verdicts[grade.name]:
                    grade.auto_score = verdicts[grade.name]
                    grade.needs_manual_grade = grade.auto_score is None or grade.manual_score is not None


@contextmanager
def _quiet_log() -> Iterator[None]:
    """nbgrader logs every repaired cell of every student as a warning; its errors come as exceptions anyway."""
    logger = logging.getLogger("traitlets")
    handlers, level = logger.handlers, logger.level
    logger.handlers, logger.level = [logging.NullHandler()], logging.CRITICAL
    try:
        yield
    finally:
        logger.handlers, logger.level = handlers, level


def _remove(folder: Path) -> None:
    """Delete a folder of nbgrader's tree, whose files nbgrader makes read-only."""
    if folder.exists():
        shutil.rmtree(folder)
