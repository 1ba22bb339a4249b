"""`--scheduler ADDRESS`: the same jobs on the workers of a running Dask cluster instead of a local pool."""

from __future__ import annotations

import platform
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from grader.errors import GraderError

CONNECT_S = 10
INSTALL = "pip install -e '.[cluster]' here and on every machine of the cluster"


class ClusterExecutor(Executor):
    """Dask's executor with the interface that the standard library's have. Every maker call gets an own client."""

    def __init__(self, address: str) -> None:
        self._client = _connect(address)
        self._executor = self._client.get_executor(pure=False)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        return self._executor.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait=wait and not cancel_futures)
        self._client.close()


def connect(address: str, *, unsafe: bool = False) -> tuple[Callable[[int], Executor], int]:
    """Look at a cluster; returns the maker of its executors, and how many jobs it can run at once.

    Raises:
        GraderError: Dask isn't installed, no scheduler answers, or a worker can't grade.
    """
    client = _connect(address)
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise GraderError(f"--scheduler {address}", "it has no worker", f"start some: dask worker {address}")
        try:
            answers = client.run(about_this_machine)
        except Exception as error:  # whatever Dask makes of a worker without our package
            cause = f"its workers can't load the grader ({type(error).__name__}: {str(error)[:200]})"
            raise GraderError(f"--scheduler {address}", cause, INSTALL) from error
        _check(address, answers, unsafe)
        slots = sum(int(worker["nthreads"]) for worker in workers.values())
    finally:
        client.close()
    return lambda _: ClusterExecutor(address), slots


def about_this_machine() -> dict[str, str]:
    """What a worker tells of itself: versions that must agree, and why it has no sandbox, if so."""
    from importlib.metadata import version

    from grader.sandbox import problem

    fault = problem()
    found = {name: version(name) for name in ("nbgrader", "ipython", "torch", "numpy")}
    return {**found, "python": platform.python_version(), "sandbox": str(fault) if fault else ""}


def _check(address: str, answers: dict[str, dict[str, str]], unsafe: bool) -> None:
    """Refuse a cluster on which scores would depend on the machine, or some of whose workers can't grade safely."""
    first_name, first = next(iter(answers.items()))
    for name, answer in answers.items():
        if answer["sandbox"] and not unsafe:
            raise GraderError(f"worker {name}", answer["sandbox"], "repair it, or take the worker out of the cluster")
        for what in first:
            if what != "sandbox" and answer[what] != first[what]:
                cause = f"{what} is {answer[what]} there and {first[what]} on {first_name}"
                raise GraderError(f"--scheduler {address}", cause, "install the same versions on every worker")


def _connect(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise GraderError(f"--scheduler {address}", "Dask isn't installed", INSTALL) from error
    try:
        return Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        cause = f"no scheduler answers there ({type(error).__name__})"
        raise GraderError(
            f"--scheduler {address}", cause, "start one: dask scheduler; it prints its address"
        ) from error
