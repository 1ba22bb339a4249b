"""Guards the sample class: it follows the release, and each student gets what the list of students says."""

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


def test_the_class_follows_the_release():
    files = sample.make(sample.load_release())
    present = {path.relative_to(sample.TARGET).as_posix() for path in sample.TARGET.rglob("*") if path.is_file()}
    assert present == set(files)
    stale = [name for name, content in files.items() if (sample.TARGET / name).read_bytes() != content]
    assert not stale, "run assets/sample_class/make_sample_class.py"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    # A short limit per call: the endless loop of one student is in every call of its function.
    options = GradeOptions(
        sample.TARGET,
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
