"""Reading scores back: what the gradebook holds, with what an instructor changed in formgrader."""

from __future__ import annotations

from dataclasses import dataclass, field

from grader.gradebook.tree import CourseTree


@dataclass(frozen=True)
class CellGrade:
    """One grade. ``score`` is the manual score where there is one, plus extra credit; None: not graded."""

    auto: float | None
    manual: float | None
    extra: float | None

    @property
    def score(self) -> float | None:
        base = self.auto if self.manual is None else self.manual
        if base is None:
            return self.extra
        return base + (self.extra or 0.0)


@dataclass
class StudentGrades:
    """All grades of a student by grade_id, and the instructor's remarks by solution grade_id."""

    cells: dict[str, CellGrade] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)


def read_grades(tree: CourseTree) -> dict[str, StudentGrades]:
    """Every student with a submission in the gradebook."""
    students: dict[str, StudentGrades] = {}
    with tree.gradebook() as gradebook:
        for submission in gradebook.assignment_submissions(tree.assignment):
            grades = students.setdefault(submission.student_id, StudentGrades())
            for notebook in submission.notebooks:
                for grade in notebook.grades:
                    grades.cells[grade.name] = CellGrade(grade.auto_score, grade.manual_score, grade.extra_credit)
                for comment in notebook.comments:
                    if comment.manual_comment:
                        grades.comments[comment.name] = comment.manual_comment
    return students
