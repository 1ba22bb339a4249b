"""Guards the pool of workers: whatever a job does to its process, every other student is still graded."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from grader.grade.job import Job, Outcome
from grader.grade.workers import KeptPool, local_pool, run_jobs
from grader.model import Limits

ROOT = Path(__file__).resolve().parents[2]


def job(name: str) -> Job:
    return Job(name, {}, {}, {}, Limits(), "none")


def act(job: Job) -> Outcome:
    """Stands for grading: the student's name says what happens."""
    if job.student.startswith("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    if job.student.startswith("hangs"):
        time.sleep(600)
    if job.student.startswith("slow"):
        time.sleep(2.5)
    if job.student.startswith("raises"):
        raise ValueError("a fault of the grader")
    return Outcome(job.student, "graded")


def outcomes(names: list[str], workers: int, **options) -> dict[str, Outcome]:
    settings = {"workers": workers, "deadline_s": 30.0, **options}
    found = list(run_jobs([job(name) for name in names], act, **settings))
    assert len(found) == len(names), "every student exactly once"
    return {outcome.student: outcome for outcome in found}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_dying_worker_costs_only_its_own_student(workers):
    names = ["a", "dies1", "b", "c", "dies2", "d", "e"]
    found = outcomes(names, workers)
    assert {name: outcome.status for name, outcome in found.items()} == {
        name: "crashed" if name.startswith("dies") else "graded" for name in names
    }
    assert "Run grade again" in found["dies1"].reason


def test_a_hanging_job_is_given_up_and_the_others_are_graded():
    found = outcomes(["a", "hangs", "b", "c", "d"], 2, deadline_s=3.0)
    assert [name for name, outcome in found.items() if outcome.status != "graded"] == ["hangs"]
    assert found["hangs"].status == "timed_out"
    assert found["hangs"].execution is None


def test_a_job_that_waits_for_a_worker_does_not_use_up_its_time():
    found = outcomes(["slow1", "slow2", "slow3"], 1, deadline_s=5.0)
    assert {outcome.status for outcome in found.values()} == {"graded"}


def test_a_slow_job_delays_nobody_but_its_own_worker():
    names = ["a", "slow", *"bcdefg"]
    order = list(outcomes(names, 2))
    assert order[-1] == "slow" and sorted(order) == sorted(names)


def test_one_job_waits_so_that_no_worker_does():
    started = []

    class Watched(ThreadPoolExecutor):
        def submit(self, function, job):
            started.append(job.student)
            return super().submit(function, job)

    handed_out = []
    for _ in run_jobs([job(f"s{i}") for i in range(6)], act, workers=2, deadline_s=30, make_executor=Watched):
        handed_out.append(len(started))
    assert handed_out[0] >= 3 and handed_out[-1] == 6
    assert all(count <= done + 3 for done, count in enumerate(handed_out, 1))


def test_a_notebook_that_cannot_be_read_does_not_keep_the_pool_from_starting(tmp_path):
    (tmp_path / "broken.ipynb").write_text("{", "utf-8")
    for path in (tmp_path / "broken.ipynb", tmp_path / "missing.ipynb", None):
        with KeptPool(local_pool, 1) as pool:
            found = outcomes(["a"], 1, make_executor=pool.start(path))
            assert found["a"].status == "graded"


def test_an_exception_of_the_grader_is_one_students_reason():
    found = outcomes(["a", "raises", "b"], 2)
    assert found["raises"].status == "crashed"
    assert "ValueError: a fault of the grader" in found["raises"].reason
    assert found["b"].status == "graded"


def test_any_executor_will_do():
    found = outcomes(["a", "raises", "b"], 2, make_executor=ThreadPoolExecutor)
    assert {name: outcome.status for name, outcome in found.items()} == {
        "a": "graded", "raises": "crashed", "b": "graded"
    }  # fmt: skip


def test_a_kept_pool_serves_several_runs_and_is_renewed_when_it_breaks():
    made = []

    def make(workers):
        made.append(local_pool(workers))
        return made[-1]

    with KeptPool(make, 2) as pool:
        for names in (["a"], ["b", "c"], ["dies"], ["d", "e"]):
            found = outcomes(names, 2, make_executor=pool)
            assert [o.status for o in found.values()] == ["crashed" if n == "dies" else "graded" for n in names]
        assert len(made) == 2
    assert all(not executor._processes for executor in made)


def send_half_an_outcome(told: str) -> None:
    """What a worker that is killed at the wrong moment leaves in the pipe: a length, and less than that."""
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["result_queue"]._writer._send(struct.pack("!i", 1000) + b"half")
    Path(told).touch()
    time.sleep(600)


@pytest.mark.parametrize("left", ["half an outcome", "a job that fills the pipe", "nothing"])
def test_a_stopped_pool_leaves_nothing_that_the_interpreter_would_wait_for_or_meet(tmp_path, left):
    told = str(tmp_path / "told")
    lines = {
        "half an outcome": f"""
            pool(2).submit(send_half_an_outcome, {told!r})
            while not Path({told!r}).exists(): time.sleep(0.02)""",
        "a job that fills the pipe": """
            for job in 600, 600, b"x" * 10**7: pool(2).submit(time.sleep, job)
            time.sleep(0.3)  # in which the first two reach the workers""",
        "nothing": """
            pool(2).submit(len, b"x").result()""",
    }
    code = (
        "import threading, time\n"
        "from pathlib import Path\n"
        "from grader.grade.workers import KeptPool, local_pool\n"
        "from grader.tests.test_grade_workers import send_half_an_outcome\n"
        f"with KeptPool(local_pool, 2) as pool:{lines[left]}\n"
        "print(threading.active_count())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1\n", "")


def test_no_worker_outlives_a_killed_grader():
    code = (
        "from grader.grade.workers import run_jobs\n"
        "from grader.tests.test_grade_workers import act, job\n"
        "list(run_jobs([job('hangs1'), job('hangs2')], act, workers=2, deadline_s=600))\n"
    )
    grader = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    try:
        process = psutil.Process(grader.pid)
        deadline = time.monotonic() + 60
        while len(process.children(recursive=True)) < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        children = process.children(recursive=True)
        assert len(children) >= 3
    finally:
        grader.kill()
        grader.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
