"""Guards that nbgrader's own command (and so formgrader's button) takes the grader's path: sandbox, rebuilt notebook,
tests from the instructor's copy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from grader.gradebook.engine import shared_session
from grader.gradebook.tree import CourseTree, register
from grader.tests.classroom import CASES, CORRECT, filled, release, source

pytestmark = pytest.mark.sandbox
CASE_SCORES = {"cheat_unittest_monkeypatch": 0, "run_sigkill_like_oom": 5, "struct_deleted_hidden_test_cell": 10}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    tree = CourseTree(tmp_path_factory.mktemp("course"), "ps1")
    with shared_session():
        register(tree, source(), release(), None)
    hand_in(tree, "untouched", json.dumps(release()).encode())
    hand_in(tree, "good", json.dumps(filled(CORRECT)).encode())
    for name in CASE_SCORES:
        hand_in(tree, name, (CASES / "submissions" / f"{name}.ipynb").read_bytes())
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [str(Path(sys.executable).parent / "nbgrader"), "autograde", "ps1"]
    done = subprocess.run(command, cwd=tree.root, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    return tree


def hand_in(tree: CourseTree, student: str, content: bytes) -> None:
    tree.submitted(student).parent.mkdir(parents=True)
    tree.submitted(student).write_bytes(content)


@pytest.mark.parametrize(("student", "score"), [("good", 10), *CASE_SCORES.items()])
def test_plain_nbgrader_autograde_gives_the_fair_score(tree, student, score):
    with tree.gradebook() as gradebook:
        assert gradebook.find_submission("ps1", student).score == score


def test_the_executed_notebook_shows_hidden_tests_and_restored_cells_in_formgrader(tree):
    notebook = nbformat.read(tree.autograded("struct_deleted_hidden_test_cell"), as_version=4)
    cells = {c.metadata.nbgrader.grade_id: c for c in notebook.cells if "nbgrader" in c.metadata}
    assert "SECRET_CANARY_HIDDEN_TEST" in cells["q1_hidden"].source and cells["q1_hidden"].outputs == []
    wrong = nbformat.read(tree.autograded("cheat_unittest_monkeypatch"), as_version=4)
    assert any(c.get("outputs") and c.outputs[-1].output_type == "error" for c in wrong.cells)


def test_an_untouched_solution_is_no_response_and_no_points(tree):
    with tree.gradebook() as gradebook:
        assert gradebook.find_submission("ps1", "untouched").score == 0
        found = {s: gradebook.find_submission_notebook("ps1", "ps1", s).comments for s in ("good", "untouched")}
        assert {c.auto_comment for c in found["good"]} == {None}
        assert {c.auto_comment for c in found["untouched"]} == {"No response."}
