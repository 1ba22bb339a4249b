"""Guards a class's run: the same results however often, with however many workers, and whenever it was killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from grader.errors import GraderError
from grader.grade import pipeline
from grader.grade.outfolder import one_writer
from grader.grade.pipeline import GradeOptions, grade, rewrite
from grader.gradebook.tree import CourseTree
from grader.model import Limits
from grader.tests.classroom import CORRECT, PS1, filled, hand_in, source, student

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.sandbox
WRONG = {**CORRECT, "q2": "def mean_sq(xs):\n    return 7"}


@pytest.fixture
def options(tmp_path) -> GradeOptions:
    """A class of four: right, half right, untouched, unreadable."""
    submissions = tmp_path / "class"
    hand_in(submissions, "ann", filled(CORRECT))
    hand_in(submissions, "bob", filled(WRONG))
    hand_in(submissions, "cem", filled({}))
    hand_in(submissions, "dan", b"<html>log in</html>")
    return GradeOptions(submissions, "ps1", source=PS1, out=tmp_path / "out")


def scores(results: dict) -> dict[str, float | None]:
    return {entry["student"]: entry["score"] for entry in results["students"]}


def statuses(results: dict) -> dict[str, str]:
    return {entry["student"]: entry["status"] for entry in results["students"]}


def files(out: Path) -> dict[str, bytes]:
    """What a run leaves for people: the tables and the pages."""
    paths = [out / "results.json", out / "results.csv", *sorted((out / "feedback").rglob("*.html"))]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in paths}


def spy(monkeypatch) -> list[str]:
    """Names of the students that are really graded from now on."""
    graded: list[str] = []
    run_jobs = pipeline.run_jobs

    def watched(jobs, *arguments, **settings):
        graded.extend(job.student for job in jobs)
        return run_jobs(jobs, *arguments, **settings)

    monkeypatch.setattr(pipeline, "run_jobs", watched)
    return graded


def test_a_class_is_graded(options):
    out, results = grade(options)
    assert scores(results) == {"ann": 10, "bob": 5, "cem": 0, "dan": None}
    assert statuses(results) == {"ann": "graded", "bob": "graded", "cem": "graded", "dan": "unreadable"}
    assert json.loads((out / "results.json").read_text("utf-8")) == results
    assert results["sandbox"] == "bwrap" and results["max_score"] == 10
    assert {path.parent.name for path in out.glob("feedback/*/ps1.html")} == {"ann", "bob", "cem", "dan"}


def test_the_untouched_release_is_no_attempt(options):
    entry = student(grade(options)[1], "cem")
    assert {b["status"] for q in entry["questions"] for b in q["behaviours"]} == {"no_attempt"}


def test_running_again_grades_nobody_and_changes_nothing(options, monkeypatch):
    out, _ = grade(options)
    before = files(out)
    graded = spy(monkeypatch)
    grade(options)
    assert graded == [] and files(out) == before


@pytest.mark.parametrize("workers", [1, 4])
def test_the_number_of_workers_changes_nothing(options, tmp_path, workers):
    first, _ = grade(options)
    second, _ = grade(replace(options, out=tmp_path / "other", workers=workers))
    assert files(first) == files(second)


def test_only_a_changed_submission_is_graded_again(options, monkeypatch):
    grade(options)
    hand_in(options.submissions, "bob", filled(CORRECT))
    graded = spy(monkeypatch)
    _, results = grade(options)
    assert graded == ["bob"] and scores(results)["bob"] == 10


def test_a_newer_unreadable_file_clears_the_old_score(options):
    grade(options)
    hand_in(options.submissions, "ann", b"{}")
    _, results = grade(options)
    assert scores(results)["ann"] is None and statuses(results)["ann"] == "unreadable"


def test_a_changed_source_is_graded_again(options, tmp_path, monkeypatch):
    notebook = source()
    path = tmp_path / "mine.ipynb"
    path.write_text(json.dumps(notebook), "utf-8")
    options = replace(options, source=path)
    grade(options)
    test = next(c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == "q2_test")
    test["metadata"]["nbgrader"]["points"] = 20
    path.write_text(json.dumps(notebook), "utf-8")
    graded = spy(monkeypatch)
    _, results = grade(options)
    assert graded == [pipeline.REFERENCE, "ann", "bob", "cem"]
    assert scores(results) == {"ann": 25, "bob": 5, "cem": 0, "dan": None}


def test_a_source_whose_reference_fails_its_own_tests_is_refused(options, tmp_path):
    notebook = source()
    for cell in notebook["cells"]:
        cell["source"] = cell["source"].replace("== 4", "== 5")
    path = tmp_path / "faulty.ipynb"
    path.write_text(json.dumps(notebook), "utf-8")
    with pytest.raises(GraderError, match="q1_visible"):
        grade(replace(options, source=path))
    assert not (options.out / "results.json").exists()


def test_force_grades_everybody_again(options, monkeypatch):
    grade(options)
    graded = spy(monkeypatch)
    grade(replace(options, force=True))
    assert graded == ["ann", "bob", "cem"]


def override(options: GradeOptions, name: str, grade_id: str, score: float) -> None:
    with CourseTree(options.out, "ps1").gradebook() as gradebook:
        gradebook.find_grade(grade_id, "ps1", "ps1", name).manual_score = score
        gradebook.db.commit()


def test_a_score_changed_in_formgrader_shows_when_results_are_written_again(options):
    out, _ = grade(options)
    override(options, "bob", "q2_test", 4.0)
    assert scores(rewrite(out))["bob"] == 9
    assert scores(grade(options)[1])["bob"] == 9
    assert scores(grade(replace(options, force=True))[1])["bob"] == 5


def test_nbgraders_own_command_on_the_out_folder_gives_the_same_scores(options):
    out, before = grade(options)
    environment = {**os.environ, "JUPYTER_CONFIG_PATH": str(out), "HOME": str(out)}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "nbgrader", "autograde", "ps1", "--force"]
    done = subprocess.run(command, cwd=out, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("Autograding ") == 3
    assert scores(rewrite(out)) == scores(before)


def test_one_student_alone(options, monkeypatch):
    grade(options)
    hand_in(options.submissions, "ann", filled(WRONG))
    hand_in(options.submissions, "bob", filled(CORRECT))
    graded = spy(monkeypatch)
    _, results = grade(replace(options, only=("bob",)))
    assert graded == ["bob"]
    assert scores(results) == {"ann": 10, "bob": 10, "cem": 0, "dan": None}
    with pytest.raises(GraderError, match="no submission by this student"):
        grade(replace(options, only=("nobody",)))


def test_who_is_late_is_told_by_the_collectors_clock(options):
    due = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    hand_in(options.submissions, "ann", filled(CORRECT), at=due - timedelta(hours=1))
    hand_in(options.submissions, "bob", filled(WRONG), at=due + timedelta(hours=1))
    (options.submissions / "bob" / "timestamp.txt").write_text("2026-03-01 00:00:00 UTC")
    _, results = grade(replace(options, due=due))
    assert not student(results, "ann")["late"] and student(results, "bob")["late"]
    assert scores(results)["bob"] == 5, "late is told, never punished"


def test_the_roster_tells_who_handed_nothing_in(options, tmp_path):
    roster = tmp_path / "roster.txt"
    roster.write_text("ann\nzoe\n", "utf-8")
    _, results = grade(replace(options, roster=roster))
    assert statuses(results)["zoe"] == "not_submitted" and scores(results)["zoe"] is None
    hand_in(options.submissions, "zoe", filled(CORRECT))
    assert scores(grade(replace(options, roster=roster))[1])["zoe"] == 10


def test_another_assignments_results_are_not_overwritten(options):
    grade(options)
    before = files(options.out)
    with pytest.raises(GraderError, match="holds the results of ps1"):
        grade(replace(options, assignment="ps9"))
    assert files(options.out) == before
    _, results = grade(replace(options, assignment="ps9", force=True))
    assert results["assignment"] == "ps9" and scores(results)["ann"] == 10


def test_another_sources_results_are_not_overwritten(options, tmp_path):
    grade(options)
    notebook = source()
    notebook["cells"][0]["source"] = "# Another"
    path = tmp_path / "another.ipynb"
    path.write_text(json.dumps(notebook), "utf-8")
    with pytest.raises(GraderError, match="another source"):
        grade(replace(options, source=path))
    assert scores(grade(replace(options, source=path, force=True))[1])["ann"] == 10


def test_a_folder_with_somebody_elses_gradebook_is_left_alone(options):
    options.out.mkdir()
    (options.out / "gradebook.db").write_bytes(b"precious")
    with pytest.raises(GraderError, match="did not make"):
        grade(options)
    assert (options.out / "gradebook.db").read_bytes() == b"precious"


@pytest.mark.parametrize("kind", ["file", "below a file"])
def test_an_out_folder_that_cannot_be_made_is_refused(options, tmp_path, kind):
    (tmp_path / "taken").write_text("x")
    out = tmp_path / "taken" if kind == "file" else tmp_path / "taken" / "below"
    with pytest.raises(GraderError, match="--out"):
        grade(replace(options, out=out))


@pytest.mark.parametrize(("submissions", "out"), [("class", "class"), ("class", "class/out"), ("o/submitted", "o")])
def test_hand_ins_and_results_do_not_mix(options, tmp_path, submissions, out):
    folder = tmp_path / submissions
    hand_in(folder, "ann", filled(CORRECT))
    with pytest.raises(GraderError, match="folder"):
        grade(replace(options, submissions=folder, out=tmp_path / out))
    assert (folder / "ann" / "ps1.ipynb").exists() and not (tmp_path / out / "results.json").exists()


def test_there_is_one_writer(options):
    grade(options)
    with one_writer(options.out), pytest.raises(GraderError, match=f"process {os.getpid()} is grading into it"):
        grade(options)
    grade(options)


def test_the_lock_of_a_killed_grader_is_stale(options):
    grade(options)
    (options.out / ".grading.lock").write_text("999999")
    grade(options)


def test_an_empty_folder_is_refused(options, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(GraderError):
        grade(replace(options, submissions=empty))
    assert not options.out.exists()


def test_without_a_sandbox_it_is_refused_and_unsafe_is_recorded(options, monkeypatch, capsys):
    import grader.sandbox

    fault = GraderError("sandbox", "no bwrap", "install it")
    monkeypatch.setattr(grader.sandbox, "problem", lambda: fault)
    with pytest.raises(GraderError, match="no bwrap"):
        grade(options)
    _, results = grade(replace(options, unsafe_no_sandbox=True))
    assert "--unsafe-no-sandbox" in capsys.readouterr().err
    assert results["sandbox"] == "none"
    assert [entry["sandbox"] for entry in results["students"]] == ["none", "none", "none", None]
    assert scores(results) == {"ann": 10, "bob": 5, "cem": 0, "dan": None}


def test_a_notebook_that_nbgrader_cannot_book_costs_only_its_own_student(options, monkeypatch):
    enter = pipeline.Book.enter

    def choosy(self, name, *arguments, **settings):
        if name == "ann":
            raise ValueError("no such cell")
        enter(self, name, *arguments, **settings)

    monkeypatch.setattr(pipeline.Book, "enter", choosy)
    _, results = grade(options)
    assert scores(results) == {"ann": None, "bob": 5, "cem": 0, "dan": None}
    assert "ValueError: no such cell" in student(results, "ann")["reason"]
    monkeypatch.undo()
    assert scores(grade(options)[1])["ann"] == 10, "the next run tries again"


@pytest.mark.parametrize("name", ["gradebook.db", "autograded"])
def test_what_people_delete_is_made_again(options, name):
    out, before = grade(options)
    if (out / name).is_dir():
        shutil.rmtree(out / name)
    else:
        (out / name).unlink()
    assert grade(options)[1] == before
    assert (out / name).exists()


def test_a_gradebook_that_somebody_else_writes_is_one_clear_line(options):
    grade(options)
    hand_in(options.submissions, "cem", filled(WRONG))
    holder = sqlite3.connect(options.out / "gradebook.db")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(GraderError, match="close formgrader"):
            grade(options)
    finally:
        holder.close()
    assert scores(grade(options)[1])["cem"] == 5


@pytest.mark.parametrize("strikes", [1, 5])
def test_ctrl_c_leaves_a_state_that_goes_on(tmp_path, strikes):
    submissions = tmp_path / "class"
    endless = {**CORRECT, "q1": "def relu_sum(xs):\n    while True: pass"}
    for name, answers in (("a", CORRECT), ("b", endless), ("c", endless), ("d", CORRECT)):
        hand_in(submissions, name, filled(answers))
    command = [sys.executable, "-m", "grader", "grade", str(submissions), "--assignment", "ps1", "--source", str(PS1)]
    grader = subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")], cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not (tmp_path / "out" / "records" / "students" / "a.json").exists() and grader.poll() is None:
        time.sleep(0.05)
    for _ in range(strikes):
        os.killpg(grader.pid, signal.SIGINT)  # as a terminal does
        time.sleep(0.03)
    _, shown = grader.communicate(timeout=60)
    assert grader.returncode == 130
    assert "Traceback" not in shown
    if strikes == 1:  # of several, one may fall into the message
        assert "run the same command again to go on" in shown.splitlines()[-1]
    limits = Limits(call_s=0.5)
    _, results = grade(GradeOptions(submissions, "ps1", source=PS1, out=tmp_path / "out", limits=limits))
    assert scores(results) == {"a": 10, "b": 5, "c": 5, "d": 10}


def test_ctrl_c_counts_even_where_python_drops_it(options, monkeypatch):
    class Struck:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    book = pipeline._ClassRun._book
    monkeypatch.setattr(pipeline._ClassRun, "_book", lambda run, record: Struck() and book(run, record))
    before, dropped = signal.getsignal(signal.SIGINT), []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: dropped.append(what.exc_type))
    with pytest.raises(KeyboardInterrupt):
        grade(options)
    assert dropped == [KeyboardInterrupt] and signal.getsignal(signal.SIGINT) is before
    assert len(list((options.out / "records" / "students").glob("*.json"))) == 1


def test_other_limits_are_kept_to(options):
    slow = {**CORRECT, "q1": "import time\ndef relu_sum(xs):\n    time.sleep(60)"}
    hand_in(options.submissions, "bob", filled(slow))
    _, results = grade(replace(options, limits=Limits(call_s=1.0, cell_s=2.0), only=("bob",)))
    question = student(results, "bob")["questions"][0]
    assert question["score"] == 0 and {b["status"] for b in question["behaviours"]} == {"timed_out"}
