"""Guards the results: scores from the gradebook, null where nothing was graded, a table safe in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json

import pytest

from grader.errors import GraderError
from grader.grade.job import Outcome
from grader.grade.outfolder import write_marker
from grader.grade.records import Records, booked, record_of
from grader.gradebook.booking import Book
from grader.gradebook.engine import shared_session
from grader.gradebook.scores import CellGrade
from grader.gradebook.tree import CourseTree, register
from grader.model import Flag, Submission
from grader.results import _behaviour, collect_results, csv_text, table, why, write_results
from grader.structure import questions_of
from grader.tests.classroom import CORRECT, executed, filled, release, source, student


@pytest.fixture
def out(tmp_path):
    """An out folder as `grade` leaves it: ann graded, bob unreadable, ced not there."""
    with shared_session():
        tree = CourseTree(tmp_path, "ps1")
        register(tree, source(), release(), None)
        marker = {"assignment": "ps1", "release": "1.0", "due": None, "sandbox": "bwrap", "source_digest": "x"}
        write_marker(tmp_path, {**marker, "source": "ps1.ipynb"})
        execution = executed({"q1_hidden": 0.0, "q2_test": 2.5}, q1_hidden="relu_sum is wrong on other inputs")
        Book(tree).enter("ann", filled(CORRECT), execution, collected_at=None, discard_overrides=False)
        flags = (Flag("points_changed", "q1_visible"),)
        ann = Submission("ann", "class/ann.ipynb", {}, notes=("was UTF-16",), flags=flags)
        add(tmp_path, ann, Outcome("ann", "graded", execution, {}, notes=("cell moved back",)))
        add(
            tmp_path,
            Submission("bob", "class/bob.ipynb", None, "HTML → save it again"),
            Outcome("bob", "unreadable", reason="HTML → save it again"),
        )
        add(tmp_path, Submission("ced", "", None, "nothing"), Outcome("ced", "not_submitted", reason="nothing"))
        yield tmp_path


def add(folder, submission, outcome):
    Records(folder).write(booked(record_of(submission, "digest", "x", outcome)))


def test_every_key_of_the_contract_is_there(out):
    results = collect_results(out)
    assert {"assignment", "release", "max_score", "sandbox", "students"} <= set(results)
    entry = student(results, "ann")
    assert {"student", "status", "late", "score", "max_score", "questions", "notes", "flags"} <= set(entry)
    assert {"title", "score", "max_score", "behaviours"} <= set(entry["questions"][0])
    behaviour = entry["questions"][0]["behaviours"][0]
    assert {"grade_id", "title", "score", "max_score", "status", "message"} <= set(behaviour)


def test_scores_add_up(out):
    entry = student(collect_results(out), "ann")
    assert (entry["score"], entry["max_score"]) == (4.5, 10.0)
    assert [(q["title"], q["score"], q["max_score"]) for q in entry["questions"]] == [
        ("q1", 2.0, 5.0),
        ("q2", 2.5, 5.0),
    ]


@pytest.mark.parametrize("name", ["bob", "ced"])
def test_an_ungraded_student_has_null_never_zero(out, name):
    entry = student(collect_results(out), name)
    assert entry["score"] is None
    assert {q["score"] for q in entry["questions"]} == {None}
    assert {b["status"] for q in entry["questions"] for b in q["behaviours"]} == {"not_run"}
    assert entry["reason"]


def test_what_an_instructor_changes_shows(out):
    tree = CourseTree(out, "ps1")
    with tree.gradebook() as gradebook:
        grade = gradebook.find_grade("q1_hidden", "ps1", "ps1", "ann")
        grade.manual_score, grade.extra_credit = 1.0, 0.5
        gradebook.find_comment("q1", "ps1", "ps1", "ann").manual_comment = "see me"
        gradebook.db.commit()
    question = student(collect_results(out), "ann")["questions"][0]
    assert question["score"] == 3.5
    assert question["comments"] == ["see me"]
    assert [b["by_hand"] for b in question["behaviours"]] == [False, True]


def test_a_student_graded_by_nbgrader_alone_is_in_the_table(out):
    Book(CourseTree(out, "ps1")).enter(
        "zoe", filled(CORRECT), executed({"q2_test": 0.0}), collected_at=None, discard_overrides=False
    )
    entry = student(collect_results(out), "zoe")
    assert (entry["status"], entry["score"]) == ("graded", 5.0)
    assert [b["status"] for q in entry["questions"] for b in q["behaviours"]] == ["passed", "passed", "failed"]


def test_words_of_an_older_verdict_are_not_shown_beside_a_newer_score(out):
    Book(CourseTree(out, "ps1")).enter("ann", filled(CORRECT), executed({}), collected_at=None, discard_overrides=False)
    hidden = student(collect_results(out), "ann")["questions"][0]["behaviours"][1]
    assert (hidden["score"], hidden["status"], hidden["message"]) == (3.0, "passed", "")


def test_a_folder_that_was_not_graded_into_is_refused(tmp_path):
    with pytest.raises(GraderError, match="no class was graded"):
        collect_results(tmp_path)


def test_the_files_are_rewritten_byte_for_byte(out):
    results = collect_results(out)
    write_results(out, results)
    first = [(out / name).read_bytes() for name in ("results.json", "results.csv")]
    write_results(out, collect_results(out))
    assert [(out / name).read_bytes() for name in ("results.json", "results.csv")] == first
    assert json.loads(first[0]) == results


def rows(text: str) -> list[list[str]]:
    assert text.startswith("\ufeff")
    return list(csv.reader(io.StringIO(text[1:])))


def test_the_table_has_a_status_and_a_column_per_question(out):
    header, ann, bob, _ = rows(csv_text(collect_results(out)))
    assert header[:7] == ["student", "status", "late", "score", "max_score", "q1 (5)", "q2 (5)"]
    assert ann[:7] == ["ann", "graded", "no", "4.5", "10", "2", "2.5"]
    assert bob[:7] == ["bob", "unreadable", "no", "", "10", "", ""]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", "\n@", " =", "＝"])
def test_no_cell_of_the_table_is_a_formula(out, start):
    results = collect_results(out)
    evil = start + 'HYPERLINK("http://x")'
    results["students"][0]["student"] = evil
    results["students"][0]["notes"] = [evil]
    results["students"][0]["questions"][0]["title"] = evil
    for row in rows(csv_text(results)):
        for cell in row:
            assert not cell.lstrip().startswith(("=", "+", "-", "@", "＝")), cell


def test_every_cell_of_the_table_is_quoted_and_on_one_line(out):
    results = collect_results(out)
    results["students"][0]["reason"] = 'a "quoted"\nsecond line, with comma'
    text = csv_text(results)
    assert all(line.startswith('"') and line.endswith('"') for line in text[1:].split("\r\n") if line)
    assert rows(text)[1][7] == 'a "quoted" second line, with comma'


def test_questions_with_the_same_title_get_columns_of_their_own(out):
    results = collect_results(out)
    for entry in results["students"]:
        entry["questions"][1]["title"] = "q1"
    header = rows(csv_text(results))[0]
    assert len(set(header)) == len(header)


def test_the_terminal_is_not_steered_by_a_message(out):
    from rich.console import Console

    results = collect_results(out)
    results["students"][0]["questions"][0]["behaviours"][1]["message"] = "\x1b[2J[red]gone[/red]"
    console = Console(width=200, file=io.StringIO(), force_terminal=False)
    console.print(table(results))
    shown = console.file.getvalue()
    assert "\x1b" not in shown and "[red]gone" in shown


def test_the_main_reason_is_in_one_line(out):
    results = collect_results(out)
    assert why(student(results, "ann")) == "q1_hidden: relu_sum is wrong on other inputs (+1 more)"
    assert why(student(results, "bob")) == "HTML → save it again"


def cell(grade_id: str, *, solution: bool = False, points: float = 0, **metadata) -> dict:
    block = {"grade_id": grade_id, "solution": solution, "grade": points > 0, "points": points}
    return {"cell_type": "code", "source": "", "metadata": {"nbgrader": block, **metadata}}


def test_questions_follow_the_todo_wherever_the_cells_lie():
    cells = [
        cell("s1", solution=True, todo=1, title="scan"),
        cell("s2", solution=True, todo=2, title="gate"),
        cell("t2", points=3, todo=2, title="dtype"),
        cell("t1", points=2, todo=1, title="order", step="2.1"),
    ]
    questions = questions_of({"cells": cells})
    assert [(q.title, [b.title for b in q.behaviours]) for q in questions] == [("scan", ["order"]), ("gate", ["dtype"])]
    assert questions[0].behaviours[0].step == "2.1"


def test_without_todos_graded_cells_belong_to_the_solution_before_them():
    cells = [
        cell("t0", points=1),
        cell("s1", solution=True),
        cell("t1", points=2),
        cell("t2", points=3),
        cell("s2", solution=True),
        cell("t3", points=4),
    ]
    assert [(q.title, q.max_score) for q in questions_of({"cells": cells})] == [("t0", 1), ("s1", 5), ("s2", 4)]


def test_an_answer_in_words_is_a_question_graded_by_hand():
    essay = cell("essay", solution=True, points=4)
    essay["cell_type"] = "markdown"
    (question,) = questions_of({"cells": [essay]})
    assert question.behaviours[0].manual and question.max_score == 4


@pytest.mark.parametrize(
    ("grade", "status", "message"),
    [
        (CellGrade(None, None, None), "not_run", "to be graded by hand"),
        (CellGrade(0.0, None, None), "no_attempt", ""),
        (CellGrade(0.0, 3.0, None), "failed", "graded by hand"),
        (CellGrade(None, 4.0, None), "passed", "graded by hand"),
    ],
)
def test_an_answer_in_words_never_reads_as_a_failed_test(grade, status, message):
    essay = cell("essay", solution=True, points=4)
    essay["cell_type"] = "markdown"
    (question,) = questions_of({"cells": [essay]})
    shown = _behaviour(question.behaviours[0], None, grade)
    assert (shown["status"], shown["message"]) == (status, message)
