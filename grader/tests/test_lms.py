"""Guards grades for Canvas and Moodle: files go back as they came, with the right score in the right row or none."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from grader.errors import GraderError
from grader.report.canvas import write_canvas
from grader.report.commands import _warn
from grader.report.matching import NO_ROW, SAME_ROW, SEVERAL_ROWS, Person, Row, match, name_keys, person
from grader.report.moodle import feedback, write_moodle
from grader.report.page import page
from grader.report.sheet import as_number, read_sheet
from grader.tests.test_feedback import EVIL
from grader.tests.test_report import entry, results_of

CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section,Notes,Chapter 3 (771),Chapter 4 (772),Chapter 14 (773),"
    "Assignments Current Points,Final Score\r\n"
    ",,,,,,Manual Posting,,,,\r\n"
    "    Points Possible,,,,,,100,100.00,100,(read only),(read only)\r\n"
    '"Doe, Jane",1001,s-1001,jdoe@uni.example,"Lab 1, Monday",likes tea,55,,,55,55\r\n'
    '"O""Neil, Seán",1002,s-1002,sean,"Lab 1, Monday",,,12,,0,0\r\n'
    '"=Evil, Name",1003,s-1003,evil,Lab 2,,,,,,\r\n'
    '"王, 小明",1004,,xm.wang,Lab 2,,,,,,\r\n'
    '"Student, Test",1099,,f00baa,Lab 1,,,,,,\r\n'
)
MOODLE = (
    "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,"
    "Last modified (submission),Last modified (grade),Feedback comments\n"
    'Participant 501,"Jane Doe",jane@uni.example,"Submitted for grading - ",,100.00,Yes,"Monday, 2 March 2026",-,\n'
    'Participant 502,"Seán O\'Neil",sean@uni.example,"No submission - ",12.00,100.00,Yes,-,-,"keep this, please"\n'
    "Participant 503,王 小明,xm@uni.example,Submitted for grading - ,,100.00,Yes,-,-,\n"
)


def classmate(name: str, share: float | None, path: str = "") -> dict:
    """A student with this share of 2 points."""
    score = None if share is None else 2.0 * share
    return entry(name, score, submission=path or f"class/{name}/ps1.ipynb")


def rows(path: Path, delimiter: str = ",") -> list[list[str]]:
    text = path.read_text("utf-8").removeprefix("\ufeff")
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


def given(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "export.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def canvas(tmp_path: Path, *students: dict, text: str | bytes = CANVAS, column: str | None = "Chapter 4"):
    results = results_of(*students, assignment="04_execution_dispatch")
    return write_canvas(tmp_path, results, given(tmp_path, text), column)


def test_canvas_gets_its_columns_back_with_just_one_assignment(tmp_path):
    done = canvas(tmp_path, classmate("doejane", 0.905, "class.zip!doejane_LATE_1001_8801_ps1-2.ipynb"))
    table = rows(tmp_path / "canvas.csv")
    assert table[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Chapter 4 (772)"]
    assert table[1] == ["", "", "", "", "", ""] and table[2] == ["    Points Possible", "", "", "", "", "100.00"]
    assert table[3] == ["Doe, Jane", "1001", "s-1001", "jdoe@uni.example", "Lab 1, Monday", "90.5"]
    assert [row[:5] for row in table[4:]] == [
        ['O"Neil, Seán', "1002", "s-1002", "sean", "Lab 1, Monday"],
        ["=Evil, Name", "1003", "s-1003", "evil", "Lab 2"],
        ["王, 小明", "1004", "", "xm.wang", "Lab 2"],
        ["Student, Test", "1099", "", "f00baa", "Lab 1"],
    ]
    assert (done.filled, done.unmatched) == (1, ())


def test_who_has_no_score_keeps_what_canvas_has_and_never_gets_a_zero(tmp_path):
    done = canvas(tmp_path, classmate("sean", None), classmate("evil", None), classmate("xm.wang", 0.0))
    assert [row[-1] for row in rows(tmp_path / "canvas.csv")[3:]] == ["", "12", "", "0", ""]
    assert done.filled == 1


@pytest.mark.parametrize("name", ["s-1001", "jdoe@uni.example", "JDOE", "Jane Doe", "doejane", "Doe Jane", "1001"])
def test_canvas_students_are_found_by_login_number_or_name(tmp_path, name):
    assert canvas(tmp_path, classmate(name, 1.0)).filled == 1
    assert rows(tmp_path / "canvas.csv")[3][-1] == "100"


def test_the_number_in_the_file_name_beats_the_name(tmp_path):
    wrong_name = classmate("doejane", 0.5, "doejane_1003_7001_ps1.ipynb")
    done = canvas(tmp_path, wrong_name, classmate("sean", 1.0))
    assert [row[-1] for row in rows(tmp_path / "canvas.csv")[3:6]] == ["", "100", "50"]
    assert done.unmatched == ()


def test_a_name_inside_a_students_own_folder_counts_for_nothing(tmp_path):
    forged = classmate("mallory", 1.0, "class/mallory/doejane_1001_8801_ps1.ipynb")
    done = canvas(tmp_path, forged)
    assert done.filled == 0 and done.unmatched == (("mallory", NO_ROW),)


def test_students_without_a_row_are_named_on_stderr_and_on_the_page(tmp_path, capsys):
    done = canvas(tmp_path, classmate("ghost\x1b[2J", 1.0), classmate("sean", 1.0))
    _warn([done])
    told = capsys.readouterr().err
    assert "no row found for ghost" in told and "by hand" in told and "\x1b" not in told
    shown = page(results_of(classmate("sean", 1.0)), "t", exports=[done])
    assert "<strong>ghost" in shown and "Doe, Jane" in shown and "=Evil, Name" in shown


def test_a_doubt_leaves_both_out():
    people = [Person("a", "", ("Jane Doe",)), Person("b", "", ("Doe Jane",)), Person("c", "", ("Li Na",))]
    found = match(people, [Row("1", "Doe, Jane"), Row("2", "Li, Na"), Row("3", "Na, Li")])
    assert found.rows == {} and found.unmatched == {"a": SAME_ROW, "b": SAME_ROW, "c": SEVERAL_ROWS}


def test_a_number_settles_what_names_leave_open():
    people = [Person("a", "2", ("Li Na",)), Person("b", "", ("Li Na",))]
    assert match(people, [Row("1", "Li, Na"), Row("2", "Na, Li")]).rows == {"a": 1, "b": 0}


def test_names_are_compared_without_case_accents_and_order():
    assert name_keys("O'Neil, Seán") & name_keys("sean oneil")
    assert name_keys("王, 小明") & name_keys("王小明")
    assert not name_keys("Li, Na") & name_keys("Li, Nan")
    assert name_keys("") == set() == name_keys(" , ")


@pytest.mark.parametrize("wanted", ["Chapter 4 (772)", "Chapter 4", "772", None])
def test_the_column_is_found(tmp_path, wanted):
    canvas(tmp_path, classmate("sean", 1.0), column=wanted)
    assert rows(tmp_path / "canvas.csv")[0][-1] == "Chapter 4 (772)"


def test_the_assignments_own_name_beats_a_number(tmp_path):
    text = CANVAS.replace("Chapter 3 (771)", "04 Execution Dispatch (771)")
    canvas(tmp_path, classmate("sean", 1.0), text=text, column=None)
    assert rows(tmp_path / "canvas.csv")[0][-1] == "04 Execution Dispatch (771)"


@pytest.mark.parametrize(
    ("old", "new", "wanted", "cause"),
    [
        ("Chapter 3", "HW 4", None, "several of its assignments could be 04_execution_dispatch"),
        ("Chapter 4", "Chapter 5", None, "no assignment in it is clearly"),
        ("Chapter 4", "Chapter 5", "Chapter 4", "'Chapter 4' is not one of its assignments"),
        ("Chapter 3", "Chapter 4", "Chapter 4", "several of its assignments"),
    ],
)
def test_an_unclear_column_is_refused_with_the_choice(tmp_path, old, new, wanted, cause):
    with pytest.raises(GraderError, match=cause) as caught:
        canvas(tmp_path, classmate("sean", 1.0), text=CANVAS.replace(old, new), column=wanted)
    assert "Chapter 14 (773)" in caught.value.remedy
    assert not (tmp_path / "canvas.csv").exists()


def test_scores_are_scaled_to_the_points_possible_and_that_is_said(tmp_path):
    done = canvas(tmp_path, classmate("sean", 0.75), text=CANVAS.replace("100.00", "20"))
    assert rows(tmp_path / "canvas.csv")[4][-1] == "15"
    assert any("counts to 20, the notebook to 2" in note for note in done.notes)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_template_saved_by_a_spreadsheet_is_read(tmp_path, encoding):
    text = CANVAS.replace("Seán", "Sean").encode(encoding)
    canvas(tmp_path, classmate("sean", 1.0), text=text)
    written = (tmp_path / "canvas.csv").read_bytes()
    assert written.startswith(b"\xef\xbb\xbf") == (encoding == "utf-8-sig")
    assert b"100\r\n" in written and "王, 小明" in written.decode("utf-8")


def test_semicolons_and_decimal_commas_stay(tmp_path):
    text = "Student;ID;SIS Login ID;Section;Chapter 4 (772)\nPoints Possible;;;;100,00\nDoe, Jane;1001;jdoe;Lab 1;\n"
    canvas(tmp_path, classmate("jdoe", 0.905), text=text)
    assert (tmp_path / "canvas.csv").read_text("utf-8") == text.replace("Lab 1;\n", "Lab 1;90,5\n")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "no table"),
        ("<html>log in</html>", "no table"),
        ("Name,Grade\nann,1\n", "no column ID"),
        (b"\x00\x01\x02\n\xff,\xff", "no "),
    ],
)
def test_no_gradebook_is_refused_in_plain_words(tmp_path, text, cause):
    with pytest.raises(GraderError, match=cause):
        canvas(tmp_path, classmate("sean", 1.0), text=text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(GraderError, match="can't be read"):
        read_sheet(tmp_path / "none.csv")


def test_without_a_template_canvas_gets_its_minimal_columns(tmp_path):
    students = [classmate("doejane", 0.5, "doejane_1001_8801_ps1.ipynb"), classmate("sean", None)]
    done = write_canvas(tmp_path, results_of(*students), None, None)
    assert rows(tmp_path / "canvas.csv") == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "ps1"],
        ["    Points Possible", "", "", "", "", "2"],
        ["doejane", "1001", "", "", "", "1"],
        ["sean", "", "", "sean", "", ""],
    ]
    assert done.filled == 1 and "--canvas-template" in done.notes[0]


def moodle(tmp_path: Path, *students: dict, text: str | bytes = MOODLE):
    return write_moodle(tmp_path, results_of(*students), given(tmp_path, text))


def test_the_moodle_worksheet_goes_back_with_grades_and_comments(tmp_path):
    jane = classmate("Jane Doe", 0.5, "class/Jane Doe_501_assignsubmission_file_/ps1.ipynb")
    done = moodle(tmp_path, jane, classmate("xm@uni.example", 1.0), classmate("sean@uni.example", None))
    before, after = rows(tmp_path / "export.csv"), rows(tmp_path / "moodle.csv")
    assert [row[4] for row in after] == ["Grade", "50", "12.00", "100"]
    assert after[1][9].startswith("得分 1 / 2: TODO 1<br>✗ order") and after[2][9] == "keep this, please"
    assert [row[:4] + row[5:9] for row in after] == [row[:4] + row[5:9] for row in before]
    assert (done.filled, done.unmatched, done.absent) == (2, (), ("Seán O'Neil",))


def test_an_unreadable_file_is_told_to_its_student_without_a_grade(tmp_path):
    unread = {**classmate("Jane Doe", None), "status": "unreadable"}
    silent = {**classmate("王小明", None), "status": "not_submitted"}
    kept = {**classmate("sean@uni.example", None), "status": "unreadable"}
    done = moodle(tmp_path, unread, silent, kept)
    after = rows(tmp_path / "moodle.csv")
    assert done.filled == 0 and [row[4] for row in after] == ["Grade", "", "12.00", ""]
    assert "No score: the file can't be read. Please hand in again." in after[1][9]
    assert after[2][9] == "keep this, please" and after[3][9] == ""


def test_who_has_no_score_is_no_row_to_fill_by_hand(tmp_path):
    assert canvas(tmp_path, {**classmate("nobody", None), "status": "not_submitted"}).unmatched == ()


def test_the_participants_number_beats_the_name(tmp_path):
    moodle(tmp_path, classmate("Jane Doe", 1.0, "Jane Doe_503_assignsubmission_file_ps1.ipynb"))
    assert [row[4] for row in rows(tmp_path / "moodle.csv")] == ["Grade", "", "12.00", "100"]


def test_a_number_of_canvas_is_none_of_moodle():
    entry_ = classmate("doejane", 1.0, "doejane_501_8801_ps1.ipynb")
    assert person(entry_, "canvas").number == "501" and person(entry_, "moodle").number == ""


def test_a_chinese_worksheet_with_semicolons_is_filled(tmp_path):
    text = "\ufeff标识符;全名;状态;成绩;最高成绩;反馈评论\r\n参与者 503;王小明;已提交;;50,00;\r\n"
    moodle(tmp_path, classmate("王小明", 0.905), text=text)
    written = (tmp_path / "moodle.csv").read_bytes().decode("utf-8")
    assert written.startswith("\ufeff标识符;全名;状态;成绩;最高成绩;反馈评论\r\n参与者 503;王小明;已提交;45,25;50,00;")


def test_another_table_is_no_worksheet(tmp_path):
    with pytest.raises(GraderError, match="no column 'identifier', only: Student; ID"):
        moodle(tmp_path, classmate("sean", 1.0), text=CANVAS)


def test_without_a_worksheet_moodle_gets_what_is_known(tmp_path):
    jane = classmate("Jane Doe", 0.5, "Jane Doe_501_assignsubmission_file_ps1.ipynb")
    done = write_moodle(tmp_path, results_of(jane, classmate("xm@uni.example", None), classmate("sean", 1.0)), None)
    table = rows(tmp_path / "moodle.csv")
    assert table[0] == ["Identifier", "Full name", "Email address", "Username", "ps1", "Feedback comments"]
    assert [row[:5] for row in table[1:]] == [
        ["Participant 501", "Jane Doe", "", "", "1"],
        ["", "", "xm@uni.example", "", ""],
        ["", "", "", "sean", "2"],
    ]
    assert table[2][5] == "" and "--moodle-worksheet" in done.notes[0]


def test_a_comment_is_no_formula_and_no_html_of_a_student():
    student = classmate("sean", 0.0)
    student["questions"][0] |= {"title": EVIL}
    student["questions"][0]["behaviours"][0] |= {"title": "=cmd|x", "message": EVIL}
    text = feedback(student)
    assert text.startswith("得分") and "<script" not in text and "\n" not in text
    assert text.count("alert(1)") == 1  # in the title, which is the instructor's; never in what a student's code said


@pytest.mark.parametrize(
    ("cell", "number"),
    [("100", 100), (" 97,50 ", 97.5), ("1,000.00", 1000), ("1,000", 1000), ("", None), ("(read only)", None)],
)
def test_numbers_of_any_country(cell, number):
    assert as_number(cell) == number
