"""Guards a class's run against being killed or interrupted: the same command again gives the same results."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grader.files import write_atomic
from grader.grade.outfolder import one_writer
from grader.tests.attacks.school import adopted, shared
from grader.tests.classroom import CORRECT, PS1, filled, hand_in

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
ANSWERS = (
    CORRECT,
    {**CORRECT, "q2": "def mean_sq(xs):\n    return 7"},
    {},
    {**CORRECT, "q1": "import os\ndef relu_sum(xs):\n    os._exit(1)"},
    {**CORRECT, "q1": "def relu_sum(xs:\n    return 1"},
)


def start(folder: Path, out: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "grader", "grade", str(folder / "class"), "--assignment", "ps1"]
    command += ["--source", str(PS1), "--out", str(folder / out), "--workers", "2"]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def leftovers(out: Path) -> dict[str, bytes]:
    """What a run leaves for people."""
    paths = [out / "results.json", out / "results.csv", *(p for p in (out / "feedback").rglob("*") if p.is_file())]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in paths}


def booked(out: Path) -> int:
    return len(list((out / "records" / "students").glob("*.json")))


@pytest.fixture(scope="module")
def calm(tmp_path_factory) -> Path:
    """A class of twenty, graded without a disturbance."""

    def make(root: Path) -> None:
        for number in range(20):
            content = filled(ANSWERS[number % 5]) if number % 7 != 6 else b"no notebook"
            hand_in(root / "class", f"s{number:02}", content)
        assert start(root, "calm").wait() == 0

    return shared(tmp_path_factory, "twenty", make)


def disturb(folder: Path, out: str, chance: random.Random, how: signal.Signals) -> int:
    """Start the grader, and disturb it after a random number of students; returns its exit code."""
    wanted = booked(folder / out) + chance.randrange(6)
    pause = chance.uniform(0, 0.5)
    grader = start(folder, out)
    while grader.poll() is None and booked(folder / out) < wanted:
        time.sleep(0.01)
    time.sleep(pause)
    if how is signal.SIGINT:
        os.killpg(grader.pid, how)  # as a terminal does: to the whole group
    else:
        grader.send_signal(how)
    grader.communicate()
    return grader.returncode


@pytest.mark.parametrize("seed", [4, pytest.param(5, marks=pytest.mark.slow), pytest.param(6, marks=pytest.mark.slow)])
def test_killed_at_random_moments_and_run_again_gives_the_same_results(calm, seed):
    chance = random.Random(seed)
    out = f"killed{seed}"
    with adopted() as left:
        codes = [disturb(calm, out, chance, signal.SIGKILL) for _ in range(4)]
        assert start(calm, out).wait() == 0
    assert -signal.SIGKILL in codes
    assert leftovers(calm / out) == leftovers(calm / "calm")
    assert left == []


def test_interrupted_from_the_keyboard_it_says_how_to_go_on_and_goes_on(calm):
    chance = random.Random(9)
    with adopted() as left:
        codes = [disturb(calm, "interrupted", chance, signal.SIGINT) for _ in range(2)]
        assert start(calm, "interrupted").wait() == 0
    assert set(codes) <= {130, 0} and 130 in codes
    assert leftovers(calm / "interrupted") == leftovers(calm / "calm")
    assert left == []


def test_terminated_politely_it_ends_and_leaves_nothing_running(calm):
    with adopted() as left:
        code = disturb(calm, "terminated", random.Random(3), signal.SIGTERM)
        assert start(calm, "terminated").wait() == 0
    assert code != 0
    assert leftovers(calm / "terminated") == leftovers(calm / "calm")
    assert left == []


def test_a_file_that_was_being_written_when_the_run_was_killed_is_cleared(tmp_path, monkeypatch):
    kept = [tmp_path / "feedback" / "ann" / name for name in ("ps1.html", "notes.tmp", ".hidden")]
    for path in kept:
        write_atomic(path, "whole")
    monkeypatch.setattr(os, "replace", lambda *_: os._exit(9))
    if (pid := os.fork()) == 0:
        write_atomic(kept[0], "never whole")
    os.waitpid(pid, 0)
    assert len(list(kept[0].parent.iterdir())) == 4
    with one_writer(tmp_path):
        assert sorted(kept[0].parent.iterdir()) == sorted(kept) and kept[0].read_text() == "whole"
