"""canvas.csv, which Canvas takes under Grades → Import.

Canvas finds students by the columns ID, SIS User ID and SIS Login ID and needs Student and Section beside them; all
are handed back as Canvas exported them. An assignment's column keeps its number in brackets, without which Canvas
would make a new assignment. A cell without a grade stays as it was exported.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from grader.errors import GraderError
from grader.report.export import Export, scale_note, scaled, without_row
from grader.report.matching import Matches, Row, match, person
from grader.report.sheet import Sheet, as_number, read_sheet

_IDENTITY = ("ID", "SIS User ID", "SIS Login ID", "Integration ID", "Root Account", "Section")
_ASSIGNMENT = re.compile(r"(?P<name>.*\S)\s*\((?P<number>\d+)\)")
_REMEDY = "export it anew under Grades → Export in Canvas, and leave its header as it is"


def write_canvas(out: Path, results: dict[str, Any], template: Path | None, column: str | None) -> Export:
    """Write ``canvas.csv``.

    Args:
        template: a gradebook exported from Canvas; without it only what the submissions' names say is filled in.
        column: name of the assignment in Canvas; by default the one that is named or numbered like ours.

    Raises:
        GraderError: the template is no gradebook, or which column is meant is not clear.
    """
    path = out / "canvas.csv"
    if template is None:
        return _without_template(path, results, column or results["assignment"])
    sheet = read_sheet(template)
    if "ID" not in sheet.header:
        raise GraderError(str(template), "it has no column ID, so it is no gradebook of Canvas", _REMEDY)
    chosen = _column(template, sheet.header, column, results["assignment"])
    return _fill(path, results, sheet, chosen)


def _fill(path: Path, results: dict[str, Any], sheet: Sheet, chosen: int) -> Export:
    number = sheet.header.index("ID")
    students = [row for row in sheet.rows if row[number].strip()]
    maximum = next((p for row in sheet.rows if row not in students and (p := as_number(row[chosen])) is not None), None)
    matches = _match(results, sheet.header, students)
    graded = set()
    for entry in results["students"]:
        score = scaled(entry, maximum)
        if entry["student"] in matches.rows and score is not None:
            row = students[matches.rows[entry["student"]]]
            row[chosen] = sheet.number(score)
            graded.add(id(row))
    kept = [0, *(i for i, name in enumerate(sheet.header) if name in _IDENTITY and i), chosen]
    written = Sheet(**{**vars(sheet), "header": [sheet.header[i] for i in kept]})
    written.rows = [[row[i] for i in kept] for row in sheet.rows]
    written.write(path)
    return Export(
        "Canvas",
        path,
        filled=len(graded),
        unmatched=without_row(results, matches.unmatched),
        absent=tuple(row[0] for row in students if id(row) not in graded),
        notes=(f"column: {sheet.header[chosen]}", *scale_note(maximum, results["max_score"], sheet.header[chosen])),
    )


def _match(results: dict[str, Any], header: list[str], students: list[list[str]]) -> Matches:
    logins = [header.index(name) for name in ("SIS Login ID", "SIS User ID", "Integration ID") if name in header]
    number = header.index("ID")
    rows = [Row(row[number].strip(), row[0], tuple(row[i] for i in logins)) for row in students]
    return match([person(entry, "canvas") for entry in results["students"]], rows)


def _column(template: Path, header: list[str], wanted: str | None, assignment: str) -> int:
    """The assignment's column: as named, else the only one with our name, else the only one with our number."""
    columns = {i: found for i, name in enumerate(header) if (found := _ASSIGNMENT.fullmatch(name))}
    listed = "; ".join(header[i] for i in columns) or "none"
    if wanted is not None:
        hits = [i for i, c in columns.items() if wanted.strip() in (header[i], c["name"], c["number"])]
        problem = f"--canvas-column {wanted!r} is not one of its assignments"
    else:
        names = {i: c["name"] for i, c in columns.items()}
        hits = [i for i, name in names.items() if _plain(name) == _plain(assignment)]
        hits = hits or [i for i, name in names.items() if _plain(assignment) in _plain(name)]
        own = _first_number(assignment)
        hits = hits or [i for i, name in names.items() if own is not None and _first_number(name) == own]
        problem = f"no assignment in it is clearly {assignment}"
    if len(hits) != 1:
        cause = problem if not hits else f"several of its assignments could be {wanted or assignment}"
        raise GraderError(str(template), cause, f"choose with --canvas-column one of: {listed}")
    return hits[0]


def _without_template(path: Path, results: dict[str, Any], column: str) -> Export:
    sheet = Sheet(["Student", "ID", "SIS User ID", "SIS Login ID", "Section", column], [])
    sheet.rows.append(["    Points Possible", "", "", "", "", sheet.number(results["max_score"])])
    filled = 0
    for entry in results["students"]:
        who = person(entry, "canvas")
        login = "" if who.number else entry["student"]
        score = "" if entry["score"] is None else sheet.number(entry["score"])
        sheet.rows.append([who.names[0], who.number, "", login, "", score])
        filled += bool(score)
    sheet.write(path)
    note = "made without --canvas-template: Canvas will find students only by the ID or login in their file's name"
    return Export("Canvas", path, filled, notes=(note,))


def _plain(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())


def _first_number(name: str) -> int | None:
    found = re.search(r"\d+", name)
    return int(found.group()) if found else None
