"""nbgrader's settings for this course: its own autograde and formgrader take the grader's path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbgrader.converters import Autograde
from nbgrader.preprocessors import Execute

from grader.authoring.release import release_preprocessors


def configure(c: Any, root: Path, *, source: str = "source", release: str = "release") -> None:
    """Point nbgrader at the course tree in ``root`` and at our preprocessors.

    Args:
        c: Jupyter's configuration object.
        source: folder of instructor's notebooks in ``root``.
        release: folder of student's notebooks in ``root``.
    """
    c.CourseDirectory.root = str(root)
    c.CourseDirectory.source_directory = source
    c.CourseDirectory.release_directory = release
    c.CourseDirectory.db_url = f"sqlite:///{root / 'gradebook.db'}"
    # nbgrader's own feedback prints hidden tests: it must not land among the pages that students get.
    c.CourseDirectory.feedback_directory = "nbgrader_feedback_with_hidden_tests"
    # The release holds the notebook only, no master beside it.
    c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", "*.py"]
    c.GenerateAssignment.preprocessors = release_preprocessors()
    c.Autograde.autograde_preprocessors = autograde_preprocessors()
    # Without a course and an exchange formgrader opens with a warning. The name is the gradebook's own default.
    c.CourseDirectory.course_id = "default_course"
    c.Exchange.root = str(root / "exchange")


def autograde_preprocessors() -> list[type]:
    """nbgrader's default list, with its Execute replaced by the sandbox."""
    from grader.execution.nbgrader_execute import Execute as SandboxedExecute

    default = Autograde.class_traits()["autograde_preprocessors"].default()
    return [SandboxedExecute if entry is Execute else entry for entry in default]
