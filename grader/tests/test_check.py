"""Guards the student's own check: the visible tests only, on the grading path, with an exit code to rely on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader import check as module
from grader.authoring.master import write_canonical
from grader.authoring.release import release_notebook
from grader.check import NO_SANDBOX, check
from grader.cli import main
from grader.errors import GraderError
from grader.tests.classroom import CASES, CORRECT, filled, source

pytestmark = pytest.mark.sandbox
ROOT = Path(__file__).resolve().parents[2]
WRONG = {**CORRECT, "q2": "def mean_sq(xs):\n    return 7"}


@pytest.fixture
def course(tmp_path, monkeypatch) -> Path:
    """A tree with one released chapter, ps1."""
    notebook = source()
    notebook["metadata"]["course"] = {"chapter": "ps1", "version": "1.0"}
    path = tmp_path / "notebooks" / "ps1" / "ps1.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(write_canonical(release_notebook(notebook, "ps1")), "utf-8")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return tmp_path


def write(folder: Path, notebook: dict, name: str = "mine.ipynb") -> Path:
    path = folder / name
    path.write_text(json.dumps(notebook), "utf-8")
    return path


def cell(notebook: dict, grade_id: str) -> dict:
    return next(c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id)


def statuses(report: dict) -> dict[str, str]:
    return {b["grade_id"]: b["status"] for q in report["questions"] for b in q["behaviours"]}


def test_a_right_notebook_passes(course, capsys):
    path = write(course, filled(CORRECT))
    assert main(["check", str(path)]) == 0
    assert "✅ q1  1/1" in capsys.readouterr().out


def test_a_wrong_answer_fails_with_its_message(course, capsys):
    path = write(course, filled(WRONG))
    assert main(["check", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "✅ q1" in shown and "❌ q2  0/1" in shown and "7" in shown


def test_json_holds_the_same(course, capsys):
    path = write(course, filled(WRONG))
    assert main(["check", str(path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["assignment"] == "ps1" and not report["passed"]
    assert statuses(report) == {"q1_visible": "passed", "q1_hidden": "hidden", "q2_test": "failed"}


def test_an_untouched_notebook_is_no_attempt(course):
    assert set(statuses(check(write(course, filled({})))).values()) == {"no_attempt", "hidden"}


def test_solving_the_released_file_itself_is_an_attempt(course):
    path = course / "notebooks" / "ps1" / "ps1.ipynb"
    notebook = json.loads(path.read_text("utf-8"))
    cell(notebook, "q1")["source"] = CORRECT["q1"]
    path.write_text(json.dumps(notebook), "utf-8")
    assert statuses(check(path)) == {"q1_visible": "passed", "q1_hidden": "hidden", "q2_test": "no_attempt"}


def test_edited_tests_do_not_help(course):
    notebook = filled(WRONG)
    cell(notebook, "q2_test")["source"] = "pass"
    assert statuses(check(write(course, notebook)))["q2_test"] == "failed"


def test_tests_edited_in_the_released_file_are_taken_from_the_commit(course):
    path = course / "notebooks" / "ps1" / "ps1.ipynb"
    git = ["git", "-C", str(course), "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "release"]):
        subprocess.run([*git, *arguments], check=True)
    notebook = json.loads(path.read_text("utf-8"))
    cell(notebook, "q2_test")["source"] = "pass"
    cell(notebook, "q2")["source"] = WRONG["q2"]
    path.write_text(json.dumps(notebook), "utf-8")
    assert statuses(check(path))["q2_test"] == "failed"
    shutil.rmtree(course / ".git")
    with pytest.raises(GraderError, match="q2_test was edited"):
        check(path)


def test_a_notebook_without_any_metadata_is_recognised_by_its_functions(course):
    notebook = filled(CORRECT)
    for number, one in enumerate(notebook["cells"]):
        one["metadata"], one["id"] = {}, f"c{number}"
    notebook["metadata"] = {}
    report = check(write(course, notebook, "Untitled (3).ipynb"))
    assert report["assignment"] == "ps1" and report["passed"]


def test_a_notebook_of_another_course_is_held_against_its_own_tests(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROOT", tmp_path)
    report = check(write(tmp_path, filled(WRONG)))
    assert report["assignment"] == "mine" and statuses(report)["q2_test"] == "failed"


def test_every_chapter_at_once(course, capsys):
    assert main(["check", "--all"]) == 1
    assert capsys.readouterr().out == "❌ ps1  TODO 0/2\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [("fmt_truncated_json", "truncated"), ("fmt_html_saved_as_ipynb", "HTML")],
)
def test_an_unusable_file_is_one_line(course, capsys, name, words):
    assert main(["check", str(CASES / "submissions" / f"{name}.ipynb")]) == 2
    shown = capsys.readouterr()
    assert words in shown.err and shown.err.count("\n") == 1 and not shown.out


def test_a_notebook_of_no_chapter_is_refused(course, capsys):
    own = {"cell_type": "code", "id": "a", "metadata": {}, "source": "print(1)", "outputs": [], "execution_count": None}
    path = write(course, {"cells": [own], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    assert main(["check", str(path)]) == 2
    assert "→" in capsys.readouterr().err
    assert main(["check", str(path), "--assignment", "nope"]) == 2
    assert "choose one of: ps1" in capsys.readouterr().err


def test_without_a_sandbox_it_runs_and_says_so(course, capsys, monkeypatch):
    import grader.sandbox

    monkeypatch.setattr(grader.sandbox, "problem", lambda: GraderError("sandbox", "none here", "install it"))
    assert main(["check", str(write(course, filled(CORRECT)))]) == 0
    assert NO_SANDBOX in capsys.readouterr().err


# What Python has on Windows, as far as this machine can tell: the libraries' own imports come first.
WINDOWS = """
import ctypes, os, select, signal, socket, sys
import asyncio, concurrent.futures.process, IPython, nbformat, psutil, shutil, sqlalchemy, subprocess, tempfile
lacks = {
    os: "fork sysconf getuid geteuid setsid pidfd_open memfd_create waitid WNOHANG pipe2 uname O_CLOEXEC O_DIRECTORY",
    select: "poll", socket: "AF_UNIX send_fds recv_fds SOCK_SEQPACKET", signal: "SIGKILL SIGCHLD pidfd_send_signal",
}
for module, names in lacks.items():
    for name in names.split():
        vars(module).pop(name, None)
sys.modules.update(dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios")))
real = ctypes.CDLL.__init__
def load(self, name, *args, **options):
    if name is None:
        raise TypeError("argument of type 'NoneType' is not iterable")
    real(self, name, *args, **options)
ctypes.CDLL.__init__ = load
sys.platform = "win32"
import grader.check, grader.execution.server, grader.execution.tester, grader.sandbox.process
print(grader.sandbox.problem())
"""


def test_what_it_takes_loads_on_windows_too():
    done = subprocess.run([sys.executable, "-c", WINDOWS], cwd=ROOT, capture_output=True, text=True)
    assert "bubblewrap needs Linux, this is win32" in done.stdout, done.stderr


def test_hidden_tests_are_nowhere_near(course, monkeypatch):
    """What is executed is made from the student's edition alone."""
    import grader.execution

    seen = []
    execute = grader.execution.execute
    monkeypatch.setattr(grader.execution, "execute", lambda request: seen.append(request) or execute(request))
    check(write(course, filled(CORRECT)))
    assert len(seen) == 1 and "SECRET_CANARY" not in json.dumps(seen[0].notebook)


def test_questions_and_behaviours_are_called_by_their_titles(course, capsys):
    """A student sees the words of the notebook, not nbgrader's ids; and one cause once."""
    path = course / "notebooks" / "ps1" / "ps1.ipynb"
    notebook = json.loads(path.read_text("utf-8"))
    cell(notebook, "q1")["metadata"]["title"] = "Question one"
    visible = cell(notebook, "q1_visible")["metadata"]
    visible.update(title="Adds what is positive", step="step 1")
    path.write_text(json.dumps(notebook), "utf-8")
    wrong = {**CORRECT, "q1": "def relu_sum(xs):\n    return -1"}
    assert main(["check", str(write(course, filled(wrong)))]) == 1
    shown = capsys.readouterr().out
    assert "❌ Question one  0/1" in shown and "❌ Adds what is positive [failed]" in shown
    assert "q1_visible" not in shown and "(reread): step 1" in shown


def test_one_cause_is_told_once():
    behaviours = [
        {"title": title, "status": "error", "message": "SyntaxError: line 1", "step": None} for title in ("a", "b")
    ]
    questions = [{"title": "q", "passed": False, "behaviours": behaviours}]
    text = module._text({"assignment": "x", "passed": False, "questions": questions, "notes": []})
    assert text.count("SyntaxError") == 1 and "same as above" in text
