"""Guards the promise against attackers: each earns what its honest code earns, gets hold of nothing, and leaves no
process, no file and no changed score behind. All attacks run in one class, in the sandbox, through the command line."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import re
import sqlite3
from pathlib import Path

import pytest

from grader.gradebook import tree
from grader.tests.attacks import school
from grader.tests.attacks.case import MARK, Case

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> school.School:
    return school.graded(tmp_path_factory)


@pytest.mark.parametrize("case", school.ATTACKS, ids=lambda case: case.name)
def test_an_attack_earns_what_its_honest_code_earns(graded, case: Case):
    entry = graded.entry(case.place)
    assert (entry["score"], entry["status"]) == (case.score, case.status), entry
    assert set(case.flags) <= {flag["kind"] for flag in entry["flags"]}


@pytest.mark.parametrize("case", school.ATTACKS, ids=lambda case: case.name)
def test_an_attack_gets_hold_of_nothing(graded, case: Case):
    entry = graded.entry(case.place)
    assert MARK not in graded.executed(entry["student"]) and MARK not in json.dumps(entry)


def test_the_run_ended_well(graded):
    assert graded.evidence["code"] == 0, graded.evidence["stderr"]
    assert "Traceback" not in graded.evidence["stderr"] and "error" not in graded.evidence["stderr"].lower()


@pytest.mark.parametrize("name", school.GOOD)
def test_the_correct_students_before_and_after_have_full_marks(graded, name):
    entry = graded.entry(name)
    assert (entry["score"], entry["status"], entry["flags"], entry["notes"]) == (10, "graded", [], [])


def test_every_hand_in_is_one_student(graded):
    assert len(graded.results["students"]) == len(school.CASES) + len(school.GOOD)


def test_no_process_survives(graded):
    assert graded.evidence["left"] == []


def test_no_file_is_left_and_no_submission_changed(graded):
    assert graded.evidence["litter"] == []
    assert graded.evidence["unchanged"]


def test_nobody_reached_the_machines_network(graded):
    assert graded.evidence["heard"] == []


def test_the_gradebook_holds_the_scores_and_nothing_else(graded):
    with sqlite3.connect(f"file:{graded.out / 'gradebook.db'}?mode=ro", uri=True) as database:
        kinds = {kind for (kind,) in database.execute("SELECT DISTINCT type FROM sqlite_master")}
        extra = database.execute(
            "SELECT count(*) FROM grade WHERE extra_credit IS NOT NULL OR manual_score IS NOT NULL"
        )
        assert kinds <= {"table", "index"} and extra.fetchone() == (0,)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_the_configuration_is_as_it_was_written(graded):
    code = str(Path(tree.__file__).resolve().parents[2])
    assert (graded.out / "nbgrader_config.py").read_text("utf-8") == tree.CONFIG.format(code=code)


def test_the_hidden_tests_in_the_source_are_untouched(graded):
    source = json.loads((graded.out / "source" / "ps1" / "ps1.ipynb").read_text("utf-8"))
    assert "SECRET_CANARY_HIDDEN_TEST = 41" in json.dumps(source)


def test_nothing_that_was_printed_or_raised_steers_the_terminal(graded):
    shown = graded.evidence["stdout"] + graded.evidence["stderr"]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown.replace("\r", ""))


class Tags(html.parser.HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = [f"{k}={v}" for k, v in attrs if k.startswith("on") or "javascript:" in (v or "").lower()]
        if tag in ("script", "img", "iframe", "svg", "object", "embed", "form", "base") or values:
            self.bad.append(f"{tag} {values}")


def test_no_students_markup_lives_in_a_page(graded):
    pages = list((graded.out / "feedback").rglob("*.html"))
    assert len(pages) == len(graded.results["students"])
    for page in pages:
        tags = Tags()
        tags.feed(page.read_text("utf-8"))
        assert not tags.bad, page
        assert page.stat().st_size < 60_000, page


def test_templates_in_names_and_messages_are_not_evaluated(graded):
    page = graded.out / "feedback" / graded.entry("raise_html")["student"] / "ps1.html"
    assert "{{7*7}}" in page.read_text("utf-8")


def test_no_cell_of_the_table_is_a_formula(graded):
    text = (graded.out / "results.csv").read_text("utf-8-sig")
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) == len(graded.results["students"]) + 1 and len({len(row) for row in rows}) == 1
    numbers = re.compile(r"-?[0-9.]*\Z")
    for row in rows:
        for cell in row:
            assert numbers.match(cell) or not cell.lstrip().startswith(("=", "+", "-", "@")), row
            assert "\n" not in cell and "\r" not in cell and "\t" not in cell


def test_results_stay_small_whatever_was_printed(graded):
    assert (graded.out / "results.json").stat().st_size < 10_000 * len(graded.results["students"])
    for notebook in (graded.out / "feedback").rglob("*.ipynb"):
        assert notebook.stat().st_size < 1_000_000, notebook
