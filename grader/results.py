"""results.json and results.csv: the gradebook's scores with what the records know of each student.

The scores always come from the gradebook, so that what an instructor changes in formgrader shows when results are
written again (``python -m grader results OUT``).

results.json holds ``assignment, release, max_score, sandbox, due`` and ``students``, sorted by name. Each has

    student, status (see grader.model), late, score, max_score, questions, notes (list of text),
    flags (list of {kind, detail}), reason (why there is no score), submission (the file that counted), other_files,
    collected_at (ISO time or null), sandbox ("bwrap", "none", or null where nothing ran)

each question ``title, score, max_score, behaviours, comments`` and each behaviour ``grade_id, title, score, max_score,
status (see grader.model), message, hidden, step, by_hand``. A score is null where nothing could be graded.
"""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from grader.errors import GraderError
from grader.files import read_json, write_atomic, write_json
from grader.grade.outfolder import read_marker
from grader.grade.records import Record, Records, collected_at
from grader.gradebook.scores import CellGrade, StudentGrades, read_grades
from grader.gradebook.tree import CourseTree
from grader.structure import Behaviour, Question, questions_of
from grader.text import printable

Results = dict[str, Any]

# Text that begins with one of these, full-width forms included, is a formula to a spreadsheet.
_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def collect_results(out: Path) -> Results:
    """Everything that is known of the class, as results.json shows it; sorted by student.

    Call it inside :func:`grader.gradebook.engine.shared_session`.

    Raises:
        GraderError: ``out`` was not made by ``grade``.
    """
    marker = read_marker(out)
    if marker is None:
        raise GraderError(str(out), "no class was graded into this folder", "name the --out folder of `grade`")
    tree = CourseTree(out.resolve(), marker["assignment"])
    source = read_json(tree.source)
    if source is None:
        raise GraderError(str(tree.source), "it is missing or damaged", "run grade again")
    questions = questions_of(source)
    records = {record["student"]: record for record in Records(out).all()}
    grades = read_grades(tree)
    students = [
        _student(name, records.get(name), grades.get(name, StudentGrades()), questions, marker)
        for name in sorted({*records, *grades})
    ]
    return {
        "assignment": marker["assignment"],
        "release": marker["release"],
        "max_score": sum(question.max_score for question in questions),
        "sandbox": "none" if any(student["sandbox"] == "none" for student in students) else marker["sandbox"],
        "due": marker["due"],
        "students": students,
    }


def write_results(out: Path, results: Results) -> None:
    """Write results.json and results.csv into ``out``."""
    write_json(out / "results.json", results)
    write_atomic(out / "results.csv", csv_text(results))


def csv_text(results: Results) -> str:
    """The table for a spreadsheet: quoted, with a byte order mark, one row a student, one column a question.

    No cell starts a formula: such text gets an apostrophe in front, as spreadsheets themselves write it.
    """
    questions = results["students"][0]["questions"] if results["students"] else []
    titles = _distinct([f"{question['title']} ({question['max_score']:g})" for question in questions])
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    header = ["student", "status", "late", "score", "max_score", *titles, "reason", "notes", "flags", "sandbox"]
    writer.writerow([_safe(cell) for cell in header])
    for student in results["students"]:
        writer.writerow(
            [
                _safe(student["student"]),
                student["status"],
                "yes" if student["late"] else "no",
                _number(student["score"]),
                _number(student["max_score"]),
                *[_number(question["score"]) for question in student["questions"]],
                _safe(student["reason"]),
                _safe("; ".join(student["notes"])),
                _safe("; ".join(f"{flag['kind']}: {flag['detail']}" for flag in student["flags"])),
                student["sandbox"] or "",
            ]
        )
    return "\ufeff" + buffer.getvalue()


def to_json(results: Results) -> str:
    """What ``grade --json`` prints."""
    return json.dumps(results, ensure_ascii=False, indent=1)


def table(results: Results) -> Any:
    """The class as a rich table, one row a student."""
    from rich.markup import escape
    from rich.table import Table

    shown = Table(title=escape(f"{results['assignment']}: {len(results['students'])} students"))
    shown.add_column("student")
    shown.add_column("status")
    shown.add_column("score", justify="right")
    for title in [q["title"] for q in results["students"][0]["questions"]] if results["students"] else []:
        shown.add_column(escape(title), justify="right", max_width=18)
    shown.add_column("why")
    for student in results["students"]:
        shown.add_row(
            escape(printable(student["student"])),
            student["status"] + (" (late)" if student["late"] else ""),
            _points(student["score"], student["max_score"]),
            *[_points(question["score"], question["max_score"]) for question in student["questions"]],
            escape(printable(why(student))),
        )
    return shown


def why(student: dict[str, Any]) -> str:
    """The main reason for a student's score, in one line."""
    if student["reason"]:
        return student["reason"]
    lost = [b for q in student["questions"] for b in q["behaviours"] if b["score"] != b["max_score"]]
    reasons = [f"{b['title']}: {b['message'] or b['status']}" for b in lost]
    text = " ".join(reasons[0].split()) if reasons else "; ".join(student["notes"])
    text = text if len(text) <= 100 else text[:99] + "…"
    return text + (f" (+{len(reasons) - 1} more)" if len(reasons) > 1 else "")


def _student(
    name: str, record: Record | None, grades: StudentGrades, questions: list[Question], marker: dict[str, Any]
) -> dict[str, Any]:
    due = datetime.fromisoformat(marker["due"]) if marker["due"] else None
    verdicts = {test["grade_id"]: test for test in record["tests"]} if record else {}
    shown = [_question(question, verdicts, grades) for question in questions]
    handed_in = collected_at(record) if record else None
    submission = record["submission"] if record else {"path": "", "notes": [], "flags": [], "other_files": []}
    return {
        "student": name,
        "status": record["status"] if record else "graded",
        "late": bool(due and handed_in and handed_in > due),
        "score": _total([question["score"] for question in shown]),
        "max_score": sum(question.max_score for question in questions),
        "questions": shown,
        "notes": _notes(record, marker),
        "flags": [*submission["flags"], *(record["flags"] if record else [])],
        "reason": record["reason"] if record else "",
        "submission": submission["path"],
        "other_files": submission["other_files"],
        "collected_at": handed_in.isoformat() if handed_in else None,
        "sandbox": record["sandbox"] if record else None,
    }


def _notes(record: Record | None, marker: dict[str, Any]) -> list[str]:
    if record is None:
        return []
    notes = [*record["submission"]["notes"], *record["notes"]]
    if record["source_digest"] != marker["source_digest"]:
        notes.append("graded with an earlier version of the source; not among the submissions since")
    return notes


def _question(question: Question, verdicts: dict[str, Any], grades: StudentGrades) -> dict[str, Any]:
    shown = [_behaviour(b, verdicts.get(b.grade_id), grades.cells.get(b.grade_id)) for b in question.behaviours]
    return {
        "title": question.title,
        "score": _total([behaviour["score"] for behaviour in shown]),
        "max_score": question.max_score,
        "behaviours": shown,
        "comments": [grades.comments[name] for name in question.solutions if name in grades.comments],
    }


def _behaviour(behaviour: Behaviour, verdict: dict[str, Any] | None, grade: CellGrade | None) -> dict[str, Any]:
    score = grade.score if grade else None
    if verdict is None or (grade is not None and grade.auto != verdict["score"]):
        # Graded by nbgrader's own command, or not at all: the gradebook has points but no words.
        verdict = {"status": _status(score, behaviour.max_score), "message": "", "hidden": False}
        if behaviour.manual:
            verdict = _by_hand(verdict, grade)
    return {
        "grade_id": behaviour.grade_id,
        "title": behaviour.title,
        "score": score,
        "max_score": behaviour.max_score,
        "status": verdict["status"],
        "message": verdict["message"],
        "hidden": verdict["hidden"],
        "step": behaviour.step,
        "by_hand": grade is not None and (grade.manual is not None or bool(grade.extra)),
    }


def _by_hand(verdict: dict[str, Any], grade: CellGrade | None) -> dict[str, Any]:
    """Words for a question that no test judges; an answer left as released has nbgrader's 0 at once."""
    if grade is None or grade.score is None:
        return {**verdict, "message": "to be graded by hand"}
    if grade.manual is not None:
        return {**verdict, "message": "graded by hand"}
    return {**verdict, "status": "no_attempt"} if grade.score == 0 else verdict


def _status(score: float | None, max_score: float) -> str:
    if score is None:
        return "not_run"
    return "passed" if score >= max_score else "failed"


def _total(scores: list[float | None]) -> float | None:
    """The sum of what was graded; None where nothing was."""
    known = [score for score in scores if score is not None]
    return round(sum(known), 6) if known else None


def _distinct(titles: list[str]) -> list[str]:
    return [title if titles.count(title) == 1 else f"{title} #{n}" for n, title in enumerate(titles, start=1)]


def _safe(text: str) -> str:
    text = printable(" ".join(text.replace("\t", " ").splitlines()))
    return f"'{text}" if text.lstrip().startswith(_FORMULA_STARTS) else text


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.12g}"


def _points(score: float | None, max_score: float) -> str:
    return "–" if score is None else f"{score:g}/{max_score:g}"
