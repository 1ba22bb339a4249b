"""Scores and remarks that an instructor gave by hand, kept while an assignment is entered anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook, MissingEntry

from grader.files import read_json, write_json


class Overrides:
    """The file ``records/overrides.json`` of an out folder: {student: {"grades": {...}, "comments": {...}}}."""

    def __init__(self, root: Path) -> None:
        self.path = root / "records" / "overrides.json"

    def put_aside(self, gradebook: Gradebook, assignment: str) -> None:
        """Save every override of the assignment. What an interrupted run put aside before stays, unless newer."""
        kept: dict[str, Any] = read_json(self.path) or {}
        for submission in gradebook.assignment_submissions(assignment):
            entry = kept.setdefault(submission.student_id, {"grades": {}, "comments": {}})
            for notebook in submission.notebooks:
                for grade in notebook.grades:
                    if grade.manual_score is not None or grade.extra_credit is not None:
                        entry["grades"][grade.name] = [grade.manual_score, grade.extra_credit]
                for comment in notebook.comments:
                    if comment.manual_comment:
                        entry["comments"][comment.name] = comment.manual_comment
        kept = {student: entry for student, entry in kept.items() if entry["grades"] or entry["comments"]}
        if kept:
            write_json(self.path, kept)

    def restore(self, gradebook: Gradebook, assignment: str, student: str, *, scores: bool) -> None:
        """Give a student's overrides back; :meth:`strike` them when that is committed.

        Args:
            scores: False after ``--force``: then only the remarks come back.
        """
        entry = (read_json(self.path) or {}).get(student)
        if entry is None:
            return
        for name, (manual, extra) in (entry["grades"] if scores else {}).items():
            grade = _found(gradebook.find_grade, name, assignment, student)
            if grade is not None:
                grade.manual_score, grade.extra_credit, grade.needs_manual_grade = manual, extra, True
        for name, text in entry["comments"].items():
            comment = _found(gradebook.find_comment, name, assignment, student)
            if comment is not None:
                comment.manual_comment = text

    def strike(self, student: str) -> None:
        """Forget a student's overrides here: the gradebook holds them again."""
        kept: dict[str, Any] = read_json(self.path) or {}
        if kept.pop(student, None) is None:
            return
        if kept:
            write_json(self.path, kept)
        else:
            self.path.unlink()


def _found(find: Any, name: str, assignment: str, student: str) -> Any | None:
    """The grade or comment of a cell, None where the new source no longer has the cell."""
    try:
        return find(name, assignment, assignment, student)
    except MissingEntry:
        return None
