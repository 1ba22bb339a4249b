"""Guards an instructor's way through nbgrader's formgrader on a graded class, started as the README says."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import FrameLocator, Page, expect

from grader.cli import main
from grader.tests.browser.support import CHAPTER, ROOT, Lab, copy_course, running_lab, shot

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(600)]
SAMPLE = ROOT / "assets" / "sample_class" / CHAPTER
STUDENTS = ("zhang_wei", "朱玲")


@pytest.fixture
def graded(tmp_path: Path) -> Path:
    for who in STUDENTS:
        shutil.copytree(SAMPLE / who, tmp_path / "class" / who)
    assert main(["grade", str(tmp_path / "class"), "--assignment", CHAPTER, "--out", str(tmp_path / "out")]) == 0
    (tmp_path / "home").mkdir()
    return tmp_path / "out"


def open_formgrader(page: Page, lab: Lab) -> FrameLocator:
    """Nbgrader → Formgrader in JupyterLab's menu; returns what it shows."""
    page.goto(lab.url("lab"))
    page.get_by_role("menuitem", name="Nbgrader").click()
    page.get_by_role("menuitem", name="Formgrader", exact=True).click()
    return page.frame_locator("iframe").first


def score_of(out: Path, who: str) -> float:
    with (out / "results.csv").open(encoding="utf-8-sig", newline="") as stream:
        return next(float(row["score"]) for row in csv.DictReader(stream) if row["student"] == who)


def test_look_open_a_submission_and_override_a_score(page: Page, graded: Path) -> None:
    before = score_of(graded, "zhang_wei")
    assert 0 < before < 100
    with running_lab(graded.parent / "home", graded) as lab:
        frame = open_formgrader(page, lab)
        expect(frame.get_by_text(CHAPTER).first).to_be_visible()
        expect(frame.locator(".alert-warning:visible, .alert-danger:visible")).to_have_count(0)
        shot(page, "formgrader_1_assignments")

        page.goto(lab.url(f"formgrader/manage_submissions/{CHAPTER}"))
        for who in STUDENTS:
            expect(page.locator("tbody tr", has_text=who)).to_contain_text(f"{score_of(graded, who):g} / 100")
        shot(page, "formgrader_2_students")

        page.goto(lab.url(f"formgrader/gradebook/{CHAPTER}/{CHAPTER}"))
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(len(STUDENTS))
        shot(page, "formgrader_3_table")
        rows.filter(has_text=f"{before:g} / 100").get_by_role("link").first.click()
        expect(page.locator("body")).to_contain_text("BEGIN HIDDEN TESTS")
        box = page.locator("input.score").first
        expect(box).to_have_attribute("placeholder", re.compile(r"\d"))  # until it came, what is entered is not sent
        box.scroll_into_view_if_needed()
        shot(page, "formgrader_4_submission")
        with page.expect_response(lambda answer: "/api/grade/" in answer.url and answer.request.method == "PUT"):
            box.fill("0")
            box.press("Tab")
    assert main(["results", str(graded)]) == 0
    assert 0 <= score_of(graded, "zhang_wei") < before


def test_make_lab_lists_the_chapters_in_formgrader(page: Page, tmp_path: Path) -> None:
    root = copy_course(tmp_path / "course")
    (tmp_path / "home").mkdir()
    with running_lab(tmp_path / "home", root=root) as lab:
        frame = open_formgrader(page, lab)
        for name in sorted(path.stem for path in root.glob("solutions/*/*.ipynb")):
            expect(frame.locator("tbody")).to_contain_text(name)
        expect(frame.locator(".alert-warning:visible, .alert-danger:visible")).to_have_count(0)


def test_students_pages_show_no_hidden_test(graded: Path) -> None:
    hidden = (graded / "source" / CHAPTER / f"{CHAPTER}.ipynb").read_text("utf-8").count("BEGIN HIDDEN TESTS")
    assert hidden > 0
    for name in STUDENTS:
        assert "HIDDEN TESTS" not in (graded / "feedback" / name / f"{CHAPTER}.html").read_text("utf-8")
