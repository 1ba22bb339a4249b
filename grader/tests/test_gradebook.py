"""Guards the bookkeeping: the gradebook holds what nbgrader itself would hold, whatever was there before."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import MissingEntry

from grader.gradebook.booking import Book
from grader.gradebook.engine import schema_version, shared_session, transaction
from grader.gradebook.scores import read_grades
from grader.gradebook.tree import CourseTree, register
from grader.structure import checksum
from grader.tests.classroom import CORRECT, executed, filled, release, source


@pytest.fixture
def tree(tmp_path):
    with shared_session():
        tree = CourseTree(tmp_path, "ps1")
        register(tree, source(), release(), None)
        yield tree


def enter(tree: CourseTree, name: str, scores: dict[str, float | None], **options) -> None:
    settings = {"collected_at": None, "discard_overrides": False, **options}
    Book(tree).enter(name, filled(CORRECT), executed(scores), **settings)


def override(tree: CourseTree, name: str, grade_id: str, **values: float) -> None:
    """What an instructor does in formgrader."""
    with tree.gradebook() as gradebook:
        grade = gradebook.find_grade(grade_id, "ps1", "ps1", name)
        for key, value in values.items():
            setattr(grade, key, value)
        gradebook.db.commit()


def scores(tree: CourseTree, name: str) -> dict[str, float | None]:
    return {grade_id: grade.score for grade_id, grade in read_grades(tree)[name].cells.items()}


def test_the_gradebook_holds_the_verdicts(tree):
    enter(tree, "ann", {"q1_hidden": 0.0, "q2_test": 2.5})
    assert scores(tree, "ann") == {"q1_visible": 2.0, "q1_hidden": 0.0, "q2_test": 2.5}


def test_a_test_that_could_not_run_has_no_score_and_asks_for_a_person(tree):
    enter(tree, "ann", {"q2_test": None})
    assert scores(tree, "ann")["q2_test"] is None
    with tree.gradebook() as gradebook:
        assert gradebook.find_grade("q2_test", "ps1", "ps1", "ann").needs_manual_grade


def test_no_output_never_means_full_marks_against_the_verdict(tree):
    """nbgrader reads a graded cell without output as full marks."""
    execution = executed({"q1_visible": 0.0})
    for cell in execution.notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
    Book(tree).enter("ann", filled(CORRECT), execution, collected_at=None, discard_overrides=False)
    assert scores(tree, "ann")["q1_visible"] == 0.0


def test_booking_asks_the_database_for_lists_of_cells(tree, monkeypatch):
    from sqlalchemy.orm import Session

    asked = []
    execute = Session.execute
    monkeypatch.setattr(Session, "execute", lambda self, *a, **k: asked.append(a[0]) or execute(self, *a, **k))
    enter(tree, "ann", {"q1_hidden": 0.0, "q2_test": 2.5})
    one_by_one = [str(q) for q in asked if "grade_cell.name = " in str(q) or "source_cell.name = " in str(q)]
    assert len(asked) > 3 and one_by_one == []


def test_booking_asks_the_database_for_nothing_twice(tree, monkeypatch):
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    asked = []

    def note(connection, cursor, statement, values, *_):
        if statement.startswith("SELECT"):
            asked.append((statement, repr(values)))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        enter(tree, "ann", {"q1_hidden": 0.0, "q2_test": 2.5})
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    again = {question for question in asked if asked.count(question) > 1}
    # Who isn't there yet is asked for until he is.
    assert all("FROM student" in sql or "FROM submitted_assignment" in sql for sql, _ in again), again
    assert 5 < len(asked) < 25


def test_what_is_removed_in_a_transaction_is_not_found_from_memory(tree):
    enter(tree, "ann", {})
    with tree.gradebook() as gradebook, transaction(gradebook):
        assert gradebook.find_submission("ps1", "ann").student_id == "ann"
        gradebook.remove_submission("ps1", "ann")
        with pytest.raises(MissingEntry):
            gradebook.find_submission("ps1", "ann")
    assert "ann" not in read_grades(tree)


def test_booking_again_clears_the_old_score_first(tree):
    enter(tree, "ann", {})
    enter(tree, "ann", {"q2_test": None})
    assert scores(tree, "ann") == {"q1_visible": 2.0, "q1_hidden": 3.0, "q2_test": None}


def test_booking_twice_changes_nothing(tree):
    enter(tree, "ann", {"q1_hidden": 0.0})
    before = (scores(tree, "ann"), tree.autograded("ann").read_bytes())
    enter(tree, "ann", {"q1_hidden": 0.0})
    assert (scores(tree, "ann"), tree.autograded("ann").read_bytes()) == before


def test_a_student_without_a_readable_file_is_known_but_has_no_score(tree):
    enter(tree, "ann", {})
    Book(tree).clear("ann", discard_overrides=False)
    assert set(scores(tree, "ann").values()) == {None}
    assert not tree.autograded("ann").exists()


def test_a_score_given_by_hand_survives_a_regrade(tree):
    enter(tree, "ann", {"q1_hidden": 0.0})
    override(tree, "ann", "q1_hidden", manual_score=2.0, extra_credit=0.5)
    enter(tree, "ann", {"q1_hidden": 0.0})
    assert scores(tree, "ann")["q1_hidden"] == 2.5


def test_force_drops_a_score_given_by_hand(tree):
    enter(tree, "ann", {"q1_hidden": 0.0})
    override(tree, "ann", "q1_hidden", manual_score=2.0, extra_credit=0.5)
    enter(tree, "ann", {"q1_hidden": 0.0}, discard_overrides=True)
    assert scores(tree, "ann")["q1_hidden"] == 0.0


def test_a_source_with_other_cells_keeps_the_overrides_of_cells_that_remain(tree):
    enter(tree, "ann", {"q1_hidden": 0.0})
    override(tree, "ann", "q1_hidden", manual_score=2.0)
    override(tree, "ann", "q2_test", manual_score=1.0)
    fewer = source()
    fewer["cells"] = [c for c in fewer["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") != "q2_test"]
    register(tree, fewer, release(fewer), None)
    Book(tree).enter("ann", filled(CORRECT, fewer), executed({}, fewer), collected_at=None, discard_overrides=False)
    assert scores(tree, "ann") == {"q1_visible": 2.0, "q1_hidden": 2.0}
    assert not (tree.root / "records" / "overrides.json").exists()


def test_the_time_of_handing_in_is_the_collectors(tree):
    moment = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
    enter(tree, "ann", {}, collected_at=moment)
    with tree.gradebook() as gradebook:
        assert gradebook.find_submission("ps1", "ann").timestamp == moment.replace(tzinfo=None)


def test_formgrader_gets_the_executed_notebook_with_hidden_tests(tree):
    enter(tree, "ann", {"q1_hidden": 0.0})
    notebook = nbformat.read(tree.autograded("ann"), as_version=4)
    cell = next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == "q1_hidden")
    assert "SECRET_CANARY_HIDDEN_TEST" in cell.source
    assert cell.outputs[0].output_type == "error"


def test_what_students_hand_in_is_kept_without_hidden_tests(tree):
    enter(tree, "ann", {})
    assert "SECRET_CANARY" not in tree.submitted("ann").read_text("utf-8")


def test_ids_that_look_like_file_patterns_are_taken_as_they_are(tree):
    enter(tree, "a[1-3]", {})
    enter(tree, "a2", {"q2_test": 0.0})
    assert scores(tree, "a[1-3]")["q2_test"] == 5.0


def test_the_stored_cells_equal_those_of_nbgraders_own_command(tree, tmp_path_factory):
    root = tmp_path_factory.mktemp("stock")
    target = root / "source" / "ps1" / "ps1.ipynb"
    target.parent.mkdir(parents=True)
    target.write_bytes(tree.source.read_bytes())
    code = (
        "from nbgrader.apps import NbGraderAPI; from traitlets.config import Config\n"
        "c = Config(); c.CourseDirectory.root = '.'\n"
        "from nbgrader.coursedir import CourseDirectory\n"
        "assert NbGraderAPI(CourseDirectory(config=c), config=c).generate_assignment('ps1')['success']\n"
    )
    environment = {"PATH": str(Path(sys.executable).parent) + ":/usr/bin:/bin", "HOME": str(root)}
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, env=environment)
    query = "SELECT name, cell_type, source, checksum, locked FROM source_cell ORDER BY name"
    ours = sqlite3.connect(tree.root / "gradebook.db").execute(query).fetchall()
    stock = sqlite3.connect(root / "gradebook.db").execute(query).fetchall()
    assert ours == stock and len(ours) == 5


@pytest.mark.parametrize("folder", ["grader", "out"])
def test_nbgrader_is_configured_for_our_path(tree, folder, monkeypatch):
    """In the repository (`make lab`) as in an out folder: the sandbox, and every other step of nbgrader's."""
    from nbgrader.converters import Autograde, GenerateAssignment
    from traitlets.config.loader import PyFileConfigLoader

    root = Path(__file__).resolve().parents[2] if folder == "grader" else tree.root
    config = PyFileConfigLoader(
        "nbgrader_config.py", path=str(root / "grader" if folder == "grader" else root)
    ).load_config()
    assert config.CourseDirectory.root == str(root)
    ours = [entry.__name__ for entry in config.Autograde.autograde_preprocessors]
    assert ours == [entry.__name__ for entry in Autograde.class_traits()["autograde_preprocessors"].default()]
    assert config.Autograde.autograde_preprocessors[0].__module__ == "grader.execution.nbgrader_execute"
    release = {entry.__name__ for entry in config.GenerateAssignment.preprocessors}
    stock = {entry.__name__ for entry in GenerateAssignment.class_traits()["preprocessors"].default()}
    assert stock - release == {"ClearSolutions"} and "ClearHiddenTests" in release
    assert "hidden_tests" in config.CourseDirectory.feedback_directory, "nbgrader's feedback holds them"


def test_the_schema_version_is_that_of_the_alembic_program():
    run = "import sys; from alembic.config import main; from nbgrader.dbutil import _temp_alembic_ini as t\n"
    run += "with t('sqlite://') as ini: main(['-c', ini, 'heads'])"
    shown = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True).stdout
    assert shown.split()[0] == schema_version()


def test_our_checksum_is_nbgraders():
    from nbgrader.utils import compute_checksum

    cells = [c for c in source()["cells"] if "nbgrader" in c["metadata"]]
    assert [checksum(c) for c in cells] == [compute_checksum(nbformat.from_dict(c)) for c in cells]
