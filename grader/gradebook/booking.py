"""Entering one student's outcome: nbgrader's own autograde bookkeeping with the cells already executed.

The single writer of the gradebook calls this. nbgrader's converter reads ``submitted/``, overwrites locked cells and
tests from the gradebook, then, where stock would start a kernel, takes the notebook that the sandbox executed. It
saves the grades in the gradebook and the executed notebook for formgrader.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import nbformat
from nbconvert.writers import FilesWriter
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import CheckCellMetadata, ClearOutput, Execute
from traitlets.config import Config

from grader.files import write_atomic
from grader.gradebook.engine import transaction
from grader.gradebook.overrides import Overrides
from grader.gradebook.tree import CourseTree, write_notebook
from grader.model import Execution, Notebook


class StudentAutograde(Autograde):
    """nbgrader's Autograde for exactly one student, by name instead of by file pattern, and in one pass.

    nbgrader sanitizes the submission, writes it, reads it again and executes it, with a deep copy and a validation
    after every step. Here the cells come from the instructor's copy and are executed already: what is left are the
    steps that read and fill the gradebook.
    """

    LEFT_OUT = (ClearOutput, CheckCellMetadata, Execute)

    def enter(self, student: str, assignment: str, executed: Notebook) -> None:
        """Book one student; raises what nbgrader raises, after which the marker of the booking is missing."""
        self.writer = FilesWriter(parent=self, config=self.config)
        self.exporter = self.exporter_class(parent=self, config=self.config)
        submitted = Path(self._format_source(assignment, student)) / f"{assignment}.ipynb"
        self.notebooks = [str(submitted)]
        self.init_assignment(assignment, student)
        resources = self.init_single_notebook_resources(str(submitted))
        notebook = nbformat.from_dict(executed)
        for step in (*self.sanitize_preprocessors, *self.autograde_preprocessors):
            if step not in self.LEFT_OUT:
                notebook, resources = step(parent=self, config=self.config)(notebook, resources)
        nbformat.validate(notebook)
        write_notebook(Path(self._format_dest(assignment, student)) / submitted.name, notebook, compact=True)
        self.set_permissions(assignment, student)


class Book:
    """The gradebook of one assignment, open for writing. Use inside :func:`grader.gradebook.engine.shared_session`."""

    def __init__(self, tree: CourseTree) -> None:
        self.tree = tree
        self.overrides = Overrides(tree.root)
        self.config = Config()
        self.config.CourseDirectory.root = str(tree.root)
        self.config.CourseDirectory.db_url = tree.db_url
        self.config.CourseDirectory.assignment_id = tree.assignment

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
        write_notebook(path, submitted, compact=True)
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
