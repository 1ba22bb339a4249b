"""Guards grading over a Dask cluster: the same results as on one machine, whatever happens to a worker."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from pathlib import Path

import pytest

from grader.cli import main
from grader.errors import GraderError
from grader.grade import cluster
from grader.grade.pipeline import GradeOptions, grade
from grader.tests.classroom import CORRECT, PS1, filled, hand_in

pytestmark = pytest.mark.sandbox
ANSWERS = (
    CORRECT,
    {**CORRECT, "q2": "def mean_sq(xs):\n    return 7"},
    {},
    {**CORRECT, "q1": "import os\ndef relu_sum(xs):\n    os._exit(1)"},
)


@pytest.fixture(scope="module")
def school(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("school")
    for number in range(10):
        hand_in(folder / "class", f"s{number:02}", filled(ANSWERS[number % len(ANSWERS)]))
    return folder


def options(school: Path, out: str, **more) -> GradeOptions:
    return GradeOptions(school / "class", "ps1", source=PS1, out=school / out, **more)


def written(school: Path, out: str) -> dict[str, bytes]:
    return {name: (school / out / name).read_bytes() for name in ("results.json", "results.csv")}


@pytest.fixture(scope="module")
def alone(school) -> dict[str, bytes]:
    """What one worker on this machine makes of the class."""
    grade(options(school, "alone", workers=1))
    return written(school, "alone")


@pytest.fixture(scope="module")
def dask():
    """A real cluster on this machine: a scheduler and two worker processes, each watched by a nanny."""
    distributed = pytest.importorskip("distributed", reason="`make test` installs it")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as started:
        yield started


@pytest.mark.parametrize("workers", [2, 4])
def test_the_number_of_workers_changes_nothing(school, alone, workers):
    grade(options(school, f"local{workers}", workers=workers))
    assert written(school, f"local{workers}") == alone


def test_a_cluster_that_loses_a_worker_midway_gives_the_same_results(school, alone, dask):
    make_executor, slots = cluster.connect(dask.scheduler_address)
    assert slots == 2
    out = school / "cluster"
    killed = []

    def kill_one_midway(count: int):
        executor = make_executor(count)
        submit = executor.submit

        def submit_and_kill(*args):
            future = submit(*args)
            if len(list((out / "records" / "students").glob("*.json"))) >= 3 and not killed:
                killed.append(next(iter(dask.workers.values())).pid)
                os.kill(killed[0], signal.SIGKILL)
            return future

        executor.submit = submit_and_kill
        return executor

    grade(options(school, "cluster", workers=slots, make_executor=kill_one_midway, on_cluster=True))
    assert len(killed) == 1
    assert written(school, "cluster") == alone


def test_from_the_command_line(school, alone, dask, capsys):
    command = ["grade", str(school / "class"), "--assignment", "ps1", "--source", str(PS1)]
    assert main([*command, "--out", str(school / "typed"), "--scheduler", dask.scheduler_address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(alone["results.json"])
    assert written(school, "typed") == alone


def test_no_scheduler_there(monkeypatch):
    pytest.importorskip("distributed", reason="`make test` installs it")
    monkeypatch.setattr(cluster, "CONNECT_S", 1)
    with pytest.raises(GraderError, match="no scheduler answers there"):
        cluster.connect("tcp://127.0.0.1:9")


def test_no_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(GraderError, match=r"Dask isn't installed → pip install -e '\.\[cluster\]'"):
        cluster.connect("tcp://127.0.0.1:9")


def test_workers_that_differ_or_have_no_sandbox_are_refused():
    good = {"python": "3.11.7", "torch": "2.13.0", "sandbox": ""}
    cluster._check("x", {"a": good, "b": dict(good)}, False)
    with pytest.raises(GraderError, match="torch is 2.12.0 there and 2.13.0 on a"):
        cluster._check("x", {"a": good, "b": {**good, "torch": "2.12.0"}}, False)
    bare = {"a": good, "b": {**good, "sandbox": "bubblewrap isn't installed"}}
    with pytest.raises(GraderError, match="worker b: bubblewrap"):
        cluster._check("x", bare, False)
    cluster._check("x", bare, True)


def test_an_error_of_a_worker_comes_back_whole():
    error = pickle.loads(pickle.dumps(GraderError("a", "b", "c")))
    assert (error.subject, error.cause, error.remedy, str(error)) == ("a", "b", "c", "a: b → c")
