"""moodle.csv: the grading worksheet of a Moodle assignment, filled; or a table for the gradebook's CSV import.

The worksheet comes from the assignment's page (Grading action → Download grading worksheet) and goes back through
"Upload grading worksheet". Moodle finds students by its column Identifier; all columns go back as they came.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from grader.errors import GraderError
from grader.feedback import STUDENT_STATUS, sentence
from grader.report.export import Export, scale_note, scaled, without_row
from grader.report.matching import Row, match, person
from grader.report.sheet import Sheet, as_number, read_sheet

# Moodle writes the header in the user's language: English, and Chinese as its language packs have it.
_HEADERS = {
    "number": ("identifier", "标识符", "标识号", "编号", "識別碼"),
    "name": ("full name", "全名", "姓名"),
    "login": ("id number", "username", "学号", "用户名", "學號", "帳號"),
    "email": ("email address", "电子邮件地址", "email地址", "邮箱", "電子郵件信箱", "電子郵件"),
    "grade": ("grade", "成绩", "分数", "评分", "成績", "分數"),
    "maximum": ("maximum grade", "最高成绩", "最高分", "最高分数", "满分", "最高成績", "最高分數"),
    "feedback": ("feedback comments", "反馈评论", "反馈意见", "评语", "回饋評語", "回饋意見"),
}
# Handed in, and without a score: the student has to hear of it.
RETRY = frozenset({"unreadable", "crashed", "timed_out"})


def write_moodle(out: Path, results: dict[str, Any], worksheet: Path | None) -> Export:
    """Write ``moodle.csv``.

    Args:
        worksheet: the assignment's grading worksheet; without it a table for the gradebook's own import.

    Raises:
        GraderError: the file is no grading worksheet.
    """
    path = out / "moodle.csv"
    if worksheet is None:
        return _without_worksheet(path, results)
    sheet = read_sheet(worksheet)
    columns = {key: _find(sheet.header, names) for key, names in _HEADERS.items()}
    missing = [_HEADERS[key][0] for key in ("number", "grade") if columns[key] is None]
    if missing:
        raise GraderError(
            str(worksheet),
            f"it has no column {missing[0]!r}, only: {'; '.join(sheet.header)}",
            "download the assignment's grading worksheet with Moodle set to English or Chinese",
        )
    return _fill(path, results, sheet, columns)


def _fill(path: Path, results: dict[str, Any], sheet: Sheet, columns: dict[str, int | None]) -> Export:
    def cell(row: list[str], key: str) -> str:
        return "" if columns[key] is None else row[columns[key]]

    rows = [
        Row("".join(re.findall(r"\d+\s*\Z", cell(row, "number"))).strip(), cell(row, "name"), _logins(cell, row))
        for row in sheet.rows
    ]
    matches = match([person(entry, "moodle") for entry in results["students"]], rows)
    maxima = {as_number(cell(row, "maximum")) for row in sheet.rows} - {None}
    filled = set()
    for entry in results["students"]:
        index = matches.rows.get(entry["student"])
        if index is None:
            continue
        row = sheet.rows[index]
        if entry["score"] is None:
            if columns["feedback"] is not None and entry["status"] in RETRY:
                row[columns["feedback"]] = row[columns["feedback"]].strip() or no_score(entry)
            continue
        row[columns["grade"]] = sheet.number(scaled(entry, as_number(cell(row, "maximum"))))
        if columns["feedback"] is not None:
            row[columns["feedback"]] = feedback(entry)
        filled.add(index)
    sheet.write(path)
    return Export(
        "Moodle",
        path,
        filled=len(filled),
        unmatched=without_row(results, matches.unmatched),
        absent=tuple(row.name or row.number for index, row in enumerate(rows) if index not in filled),
        notes=tuple(note for maximum in sorted(maxima) for note in scale_note(maximum, results["max_score"], "Moodle")),
    )


def _logins(cell: Any, row: list[str]) -> tuple[str, ...]:
    return tuple(text for key in ("login", "email") if (text := cell(row, key)))


def _without_worksheet(path: Path, results: dict[str, Any]) -> Export:
    header = ["Identifier", "Full name", "Email address", "Username", results["assignment"], "Feedback comments"]
    sheet = Sheet(header, [], byte_order_mark=True)
    filled = 0
    for entry in results["students"]:
        score = "" if entry["score"] is None else sheet.number(entry["score"])
        sheet.rows.append([*_identity(entry), score, feedback(entry) if score else ""])
        filled += bool(score)
    empty = [i for i in range(4) if not any(row[i] for row in sheet.rows)]
    kept = [i for i in range(len(header)) if i not in empty]
    sheet.header = [header[i] for i in kept]
    sheet.rows = [[row[i] for i in kept] for row in sheet.rows]
    sheet.write(path)
    note = "made without --moodle-worksheet: import it in the gradebook, and map the column that Moodle knows"
    return Export("Moodle", path, filled, notes=(note,))


def _identity(entry: dict[str, Any]) -> list[str]:
    """Identifier, full name, email and username, as far as the submission's name tells."""
    who = person(entry, "moodle")
    if who.number:
        return [f"Participant {who.number}", who.names[0], "", ""]
    return ["", "", entry["student"], ""] if "@" in entry["student"] else ["", "", "", entry["student"]]


def no_score(entry: dict[str, Any]) -> str:
    """Why a file that was handed in has no score; without its name, which is the student's text."""
    chinese, english = STUDENT_STATUS[entry["status"]]
    return f"没有分数：{chinese}，请重新提交。 No score: {english}. Please hand in again."


def feedback(entry: dict[str, Any]) -> str:
    """A student's result in a few lines of HTML, which is what Moodle shows; nothing of it is the student's text."""
    lines = []
    for question in entry["questions"]:
        points = "–" if question["score"] is None else f"{question['score']:g}"
        lines.append(f"得分 {points} / {question['max_score']:g}: {question['title']}")
        for behaviour in question["behaviours"]:
            if behaviour["score"] is None or behaviour["score"] < behaviour["max_score"]:
                lines.append(f"✗ {behaviour['title']}: {' '.join(sentence(behaviour))}")
    return "<br>".join(html.escape(" ".join(line.split())) for line in lines)


def _find(header: list[str], names: tuple[str, ...]) -> int | None:
    folded = [" ".join(name.casefold().split()) for name in header]
    return next((folded.index(name) for name in names if name in folded), None)
