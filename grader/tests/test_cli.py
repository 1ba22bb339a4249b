"""Guards the command line: quick to start, one clear line for every fault of the user, a traceback only when asked."""

from __future__ import annotations

import argparse
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from grader import cli
from grader.errors import GraderError
from grader.grade.commands import parse_limits
from grader.model import Limits

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("nbgrader", "nbformat", "nbconvert", "jupytext", "torch", "numpy", "rich", "jinja2", "IPython", "sqlalchemy")


def run(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "grader", *arguments], cwd=ROOT, capture_output=True, text=True, **options
    )


def test_help_lists_the_verbs():
    shown = run("--help")
    assert shown.returncode == 0
    for verb in ("build", "release", "import", "grade", "results", "check", "experiment"):
        assert f"\n    {verb}" in shown.stdout


def test_help_imports_nothing_heavy():
    """Each of these takes longer to import than all of --help may take."""
    code = (
        "import sys\nfrom grader.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def verb(monkeypatch, action) -> None:
    """Let the one verb `do` run this."""

    def parser() -> argparse.ArgumentParser:
        made = argparse.ArgumentParser()
        made.add_subparsers(dest="verb").add_parser("do").set_defaults(run=action)
        return made

    monkeypatch.setattr(cli, "_parser", parser)


def fail(error: BaseException):
    def action(_args) -> int:
        raise error

    return action


def test_a_fault_of_the_user_is_one_line_and_exit_code_2(monkeypatch, capsys):
    verb(monkeypatch, fail(GraderError("file.ipynb", "it is\x1b[2J damaged", "save it again")))
    assert cli.main(["do"]) == 2
    shown = capsys.readouterr()
    assert shown.err == "grader do: file.ipynb: it is�[2J damaged → save it again\n" and not shown.out


def test_every_finding_of_a_release_check_has_its_line(monkeypatch, capsys):
    verb(monkeypatch, fail(GraderError("a.ipynb", "2 problems:\n  - one\n  - two\n", "correct them")))
    assert cli.main(["do"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_ctrl_c_is_one_line_that_says_how_to_go_on(monkeypatch, capsys):
    verb(monkeypatch, fail(KeyboardInterrupt()))
    assert cli.main(["do"]) == 130
    assert capsys.readouterr().err == "grader do: interrupted; run the same command again to go on\n"


def test_an_internal_error_says_where_to_report_it(monkeypatch, capsys):
    verb(monkeypatch, fail(ZeroDivisionError("oh\nno")))
    assert cli.main(["do"]) == 70
    shown = capsys.readouterr().err
    assert (
        shown.startswith("grader do: internal error, ZeroDivisionError: oh no → please report")
        and shown.count("\n") == 1
    )


@pytest.mark.parametrize("arguments", [["--debug", "do"], ["do", "--debug"]])
def test_debug_shows_the_traceback(monkeypatch, arguments):
    verb(monkeypatch, fail(ZeroDivisionError("oh no")))
    with pytest.raises(ZeroDivisionError):
        cli.main(arguments)


def test_the_exit_code_of_a_verb_is_passed_on(monkeypatch):
    verb(monkeypatch, lambda _args: 1)
    assert cli.main(["do"]) == 1


def test_limits_take_numbers_and_sizes():
    limits = parse_limits(["cell_s=2.5", "memory=1G", "output=10k", "processes=3"])
    assert (limits.cell_s, limits.memory, limits.output, limits.processes) == (2.5, 1 << 30, 10 << 10, 3)
    assert parse_limits([]) == Limits()


@pytest.mark.parametrize(
    "item", ["cell_s", "cell_s=", "cell_s=-1", "cell_s=nan", "cell_s=inf", "nonsense=3", "memory=xG"]
)
def test_a_limit_that_is_none_is_refused(item):
    with pytest.raises(GraderError, match="--limit"):
        parse_limits([item])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["grade", "nowhere", "--assignment", "../x"], "can't be a folder's name"),
        (["grade", "nowhere", "--assignment", "no_such_chapter"], "choose one of: "),
        (["grade", "nowhere", "--assignment", "x", "--source", "nofile.ipynb"], "there is no such file"),
        (["grade", "nowhere", "--assignment", "x", "--limit", "speed=3"], "there is no such limit"),
        (["results", "nowhere"], "no class was graded"),
        (["check", "nofile.ipynb"], "it can't be read"),
        (["check"], "one notebook or --all"),
        (["check", "a.ipynb", "--all"], "one notebook or --all"),
    ],
)
def test_bad_input_is_one_line_with_a_remedy(arguments, words):
    shown = run(*arguments)
    assert shown.returncode == 2 and shown.stdout == ""
    (line,) = shown.stderr.splitlines()
    assert words in line and " → " in line


@pytest.mark.parametrize("arguments", [["--workers", "0"], ["--workers", "x"], ["--due", "tomorrow"], ["--nonsense"]])
def test_argparse_refuses_what_is_no_value(arguments):
    assert run("grade", "x", "--assignment", "y", *arguments).returncode == 2


def test_a_due_time_may_name_its_zone():
    from grader.grade.commands import _moment

    assert _moment("2026-12-01T23:59+08:00") == datetime(2026, 12, 1, 15, 59, tzinfo=timezone.utc)
    assert _moment("2026-12-01T15:59Z") == datetime(2026, 12, 1, 15, 59, tzinfo=timezone.utc)
    assert _moment("2026-12-01").tzinfo is not None


@pytest.mark.parametrize(
    "words", [[], ["grad"], ["grade", "class"], ["grade", "class", "--assignment", "a", "--due", "soon"]]
)
def test_a_wrong_argument_is_one_line(capsys, words):
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    shown = capsys.readouterr().err
    assert left.value.code == 2 and shown.count("\n") == 1
    assert shown.startswith("grader") and " → see `python -m grader" in shown
