"""Running jobs on an executor so that one that dies or hangs costs only its own student."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from multiprocessing.connection import wait as wait_for_sentinel
from pathlib import Path

from grader.grade.job import Job, Outcome, failure

# What a worker needs is imported once, in the server process from which all workers are forked.
_PRELOAD = ["grader.execution", "grader.rebuild", "grader.grade.job", "grader.execution.shared"]


def local_pool(workers: int) -> ProcessPoolExecutor:
    """A pool of worker processes on this machine, none of which outlives this process."""
    if sys.platform == "linux":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOAD)
    else:
        context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)


class KeptPool:
    """A maker of executors that hands out the same one until it is discarded. Use as a context manager.

    Args:
        workers: of the executor, however few its first user asks for.
    """

    def __init__(self, make: Callable[[int], Executor], workers: int) -> None:
        self.make, self.workers = make, workers
        self.executor: Executor | None = None

    def start(self, source: Path | None = None) -> KeptPool:
        """Start a worker, with the servers that it needs, while this process is still busy with other things.

        source: the notebook whose submissions will come, if workers can read it.
        """
        self(self.workers).submit(_get_ready, source)
        return self

    def __call__(self, _: int) -> Executor:
        if self.executor is None:
            self.executor = self.make(self.workers)
        return self.executor

    def discard(self) -> None:
        if self.executor is not None:
            _stop(self.executor)
            self.executor = None

    def __enter__(self) -> KeptPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def _get_ready(source: Path | None) -> None:
    """The first job of a pool."""
    if source is not None:
        from grader.execution import warm_up

        warm_up(source)


def run_jobs(
    jobs: Iterable[Job],
    function: Callable[[Job], Outcome],
    *,
    workers: int,
    deadline_s: float,
    make_executor: Callable[[int], Executor] = local_pool,
) -> Iterator[Outcome]:
    """Yield an outcome for every job, in the order in which they finish.

    At most ``workers`` jobs run and one more waits, so that no worker does while its last outcome is being entered;
    memory stays bounded. When a worker dies, the pool can't tell whose job killed it: those handed out are tried again
    one at a time, and the one that fails alone is at fault. A job that runs past ``deadline_s`` is given up and its
    workers are killed; the others go back into the queue.

    Args:
        function: what to run; picklable, and so is what it takes and returns.
        make_executor: any maker of ``concurrent.futures`` executors, given the number of workers. The executor is
            stopped at the end, unless it is a :class:`KeptPool`'s and idle.
    """
    run = _Run(jobs, function, workers, deadline_s, make_executor)
    try:
        while run.queue or run.suspects or run.running:
            run.hand_out()
            yield from run.collect()
            yield from run.give_up_overdue()
    finally:
        if run.running or not isinstance(make_executor, KeptPool):
            run.stop()


class _Run:
    """The state of one :func:`run_jobs`."""

    def __init__(
        self,
        jobs: Iterable[Job],
        function: Callable[[Job], Outcome],
        workers: int,
        deadline_s: float,
        make_executor: Callable[[int], Executor],
    ) -> None:
        self.queue, self.suspects = deque(jobs), deque[Job]()
        self.running: dict[Future, Job] = {}
        self.started: dict[Future, float] = {}  # of those in `running` that don't wait for a worker
        self.function, self.workers, self.deadline_s, self.make_executor = function, workers, deadline_s, make_executor
        self.executor = make_executor(workers)

    def hand_out(self) -> None:
        """Start jobs while workers are free; a suspect only when nothing else runs."""
        if not self.queue and not self.running:
            self._submit(self.suspects.popleft())
        while self.queue and len(self.running) < self.workers + 1:
            self._submit(self.queue.popleft())
        for future in list(self.running)[: self.workers]:  # executors take jobs in the order in which they came
            self.started.setdefault(future, time.monotonic())

    def collect(self) -> Iterator[Outcome]:
        """Wait for a job to end or to be overdue, and yield what ended."""
        remaining = max(0.0, min(self.started.values()) + self.deadline_s - time.monotonic())
        done, _ = wait(self.running, timeout=remaining, return_when=FIRST_COMPLETED)
        broken: list[Job] = []
        for future in done:
            error = future.exception()
            job = self._take(future)
            if isinstance(error, BrokenExecutor):
                broken.append(job)
            elif type(error).__name__ == "KilledWorker":  # Dask tried it on several workers, and lost them all
                yield _died(job)
            else:
                yield future.result() if error is None else failure(job.student, error)
        if broken:
            broken += self._restart()
            if len(broken) == 1:
                yield _died(broken[0])
            else:
                self.suspects.extend(broken)

    def give_up_overdue(self) -> Iterator[Outcome]:
        """Give up what runs for too long. Only processes can be killed; elsewhere the job is no longer waited for."""
        now = time.monotonic()
        overdue = [future for future, started in self.started.items() if now - started >= self.deadline_s]
        given_up = []
        for future in overdue:
            future.cancel()
            given_up.append(self._take(future))
        if given_up and isinstance(self.executor, ProcessPoolExecutor):
            self.queue.extendleft(self._restart())
        for job in given_up:
            yield _overdue(job, self.deadline_s)

    def _submit(self, job: Job) -> None:
        try:
            future = self.executor.submit(self.function, job)
        except BrokenExecutor:  # a worker died while it was idle
            self.queue.extendleft(self._restart())
            future = self.executor.submit(self.function, job)
        self.running[future] = job

    def _take(self, future: Future) -> Job:
        self.started.pop(future, None)
        return self.running.pop(future)

    def stop(self) -> None:
        if isinstance(self.make_executor, KeptPool):
            self.make_executor.discard()
        else:
            _stop(self.executor)

    def _restart(self) -> list[Job]:
        """Replace the executor; returns the jobs that were under way."""
        self.stop()
        self.executor = self.make_executor(self.workers)
        jobs = list(self.running.values())
        self.running.clear()
        self.started.clear()
        return jobs


def _stop(executor: Executor) -> None:
    """End an executor without waiting for work that may never end. After a Ctrl-C meanwhile, call it again."""
    if isinstance(executor, ProcessPoolExecutor):
        _kill_pool(executor)
    executor.shutdown(wait=False, cancel_futures=True)


def _kill_pool(pool: ProcessPoolExecutor) -> None:
    """Kill a pool's workers and wait for its thread to end.

    The thread closes pipes to which the interpreter writes at its own end, so the two must not meet. It would itself
    wait forever for the rest of what a killed worker was sending and, in older Pythons, for somebody to read a job that
    fills its pipe (python/cpython#94777); so both pipes get their other end closed here.
    """
    thread = pool._executor_manager_thread
    if thread is None:  # no job was ever submitted
        return
    for process in list(pool._processes.values()):
        process.kill()
    pool._result_queue._writer.close()
    thread.join(1)
    if thread.is_alive():
        pool._call_queue._reader.close()
        thread.join()


def _start_worker() -> None:
    """Leave Ctrl-C to the main process, and end with it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        wait_for_sentinel([parent.sentinel])
        os._exit(1)

    if parent is not None:
        threading.Thread(target=end_with_parent, daemon=True).start()


def _died(job: Job) -> Outcome:
    return Outcome(
        job.student,
        "crashed",
        reason="The process that graded this notebook died (out of memory?). Run grade again; if it dies again, "
        "lower --limit memory.",
    )


def _overdue(job: Job, deadline_s: float) -> Outcome:
    return Outcome(
        job.student,
        "timed_out",
        reason=f"Grading was given up after {deadline_s:.0f} s. Run grade again on a less busy machine, or raise "
        "--limit notebook_s.",
    )
