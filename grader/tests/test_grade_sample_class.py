"""Guards the sample classes: they follow the releases, and each student gets what the lists of students say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from grader.grade.pipeline import GradeOptions, grade
from grader.model import Limits
from grader.tests.classroom import student

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "assets" / "sample_class" / "make_sample_class.py"


def load_script():
    spec = importlib.util.spec_from_file_location("make_sample_class", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


sample = load_script()


@pytest.mark.parametrize("chapter", sample.CHAPTERS)
def test_the_class_follows_the_release(chapter):
    assert sample.update(chapter, check=True) == [], "run assets/sample_class/make_sample_class.py"


def test_every_released_chapter_has_a_class():
    assert sorted(path.parent.name for path in (ROOT / "notebooks").glob("*/*.ipynb")) == sample.CHAPTERS


@pytest.mark.sandbox
@pytest.mark.parametrize("chapter", sample.small_classes.SMALL)
def test_small_classes_are_graded_in_the_sandbox_as_in_process(tmp_path, chapter):
    """100, 0, and the others lose exactly the behaviours that their chapter's mutants lose."""
    results = grade(GradeOptions(sample.FOLDER / chapter, chapter, out=tmp_path / "out", workers=2))[1]
    expected = sample.small_classes.expected(chapter)
    assert {entry["student"] for entry in results["students"]} == set(expected)
    for name, report in expected.items():
        entry = student(results, name)
        behaviours = [behaviour for question in entry["questions"] for behaviour in question["behaviours"]]
        lost = {behaviour["grade_id"] for behaviour in behaviours if behaviour["score"] < behaviour["max_score"]}
        assert (entry["status"], lost, entry["score"]) == ("graded", report.lost, report.score), name
    scores = {name: student(results, name)["score"] for name in expected}
    assert scores.pop(sample.small_classes.PERFECT) == 100 and scores.pop(sample.small_classes.UNTOUCHED) == 0
    assert all(0 < score < 100 for score in scores.values()), scores


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    # A short limit per call: the endless loop of one student is in every call of its function.
    options = GradeOptions(
        sample.FOLDER / sample.CHAPTER,
        sample.CHAPTER,
        out=tmp_path_factory.mktemp("class") / "out",
        limits=Limits(call_s=3.0),
    )
    return grade(options)[1]


@pytest.mark.sandbox
@pytest.mark.parametrize("expected", sample.STUDENTS, ids=lambda expected: expected.name)
def test_every_student_gets_what_the_work_deserves(results, expected):
    entry = student(results, expected.name)
    if expected.score == "some":
        assert 0 < entry["score"] < 100
        assert any(b["message"] for q in entry["questions"] for b in q["behaviours"] if b["score"] != b["max_score"])
    else:
        assert entry["score"] == expected.score
    assert entry["status"] in ((expected.status,) if expected.score is None else ("graded", "partial"))
    assert entry["score"] is not None or entry["reason"]


@pytest.mark.sandbox
def test_one_mistake_costs_points_in_its_own_todo_only(results):
    for name, todo in (("hu_bo", 0), ("li_na", 1), ("lin_yue", 1), ("luo_yi", 2), ("fan_li", 2), ("sun_hao", 0)):
        questions = student(results, name)["questions"]
        assert [q["score"] < q["max_score"] for q in questions] == [number == todo for number in range(3)], name


@pytest.mark.sandbox
def test_who_edited_the_tests_is_flagged_and_gains_nothing(results):
    entry = student(results, "zhou_jie")
    assert {"tests_edited", "points_changed"} <= {flag["kind"] for flag in entry["flags"]}
    assert entry["score"] < 20
