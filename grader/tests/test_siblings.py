"""Guards the promise for honest hand-ins: whatever happened to a file on its way, each gets its fair score through the
command line, in one class with every attack. `SIBLINGS.md` lists the cases."""

from __future__ import annotations

import json

import pytest

from grader.tests.attacks import school
from grader.tests.attacks.case import Case
from grader.tests.classroom import CASES as CASES_FOLDER

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> school.School:
    return school.graded(tmp_path_factory)


@pytest.mark.parametrize("case", school.HONEST, ids=lambda case: case.name)
def test_an_honest_hand_in_gets_its_fair_score(graded, case: Case):
    entry = graded.entry(case.place)
    assert (entry["score"], entry["status"]) == (case.score, case.status), entry
    assert case.score is not None or entry["reason"]


@pytest.mark.parametrize("case", school.HONEST, ids=lambda case: case.name)
def test_flags_are_raised_where_something_was_tampered_with_and_not_at_honest_students(graded, case: Case):
    kinds = {flag["kind"] for flag in graded.entry(case.place)["flags"]}
    assert set(case.flags) <= kinds
    if case.quiet:
        assert not kinds


def test_what_was_repaired_is_noted(graded):
    silent = {"struct_lambda", "struct_callable_object", "struct_decorated", "struct_cell_magic"}
    for case in school.structure.case.cases:
        entry = graded.entry(case.place)
        moved = case.name.startswith(
            ("struct_merged", "struct_retyped", "struct_torn", "struct_reversed", "struct_one")
        )
        assert entry["notes"] or not moved, case.name
        assert not entry["notes"] or case.name not in silent, entry["notes"]


def test_every_unreadable_file_has_a_reason_that_says_what_to_do(graded):
    for case in school.HONEST:
        entry = graded.entry(case.place)
        if case.score is None:
            assert entry["reason"] and "请" in entry["reason"] or "未提交" in entry["reason"], entry


def test_points_are_lost_only_with_a_reason(graded):
    for entry in graded.results["students"]:
        for behaviour in (b for q in entry["questions"] for b in q["behaviours"]):
            if behaviour["score"] != behaviour["max_score"]:
                assert behaviour["message"] or entry["reason"], (entry["student"], behaviour)


def test_the_table_lists_the_cases():
    listed = (CASES_FOLDER.parent / "SIBLINGS.md").read_text("utf-8")
    assert listed == school.table(school.CASES), "run `python -m grader.tests.attacks`"


def test_there_are_sixty_and_each_differs_in_mechanism():
    manifest = {
        case["name"] for case in json.loads((CASES_FOLDER / "submissions" / "manifest.json").read_text("utf-8"))
    }
    names = [case.name for case in school.CASES]
    assert len(names) >= 60 and len(set(names)) == len(names) and not manifest & set(names)
    assert len({case.mechanism for case in school.CASES}) == len(names)
    assert {case.kind.split(":")[0] for case in school.CASES} == {
        "structure",
        "format",
        "run-time",
        "cheat",
        "files",
        "names and layouts",
    }
