"""How far a run is: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

Step = Callable[[str], None]


@contextmanager
def progress(total: int, what: str, stream: TextIO | None = None, *, every_s: float = 5.0) -> Iterator[Step]:
    """Yield a function to be called once for each finished item, with a word on it.

    Args:
        total: number of items.
        what: what is done, such as "grading".
        stream: standard error by default, so that a table on standard output stays clean.
        every_s: on something other than a terminal, the least time between two lines.
    """
    stream = stream or sys.stderr
    if total == 0:
        yield lambda _: None
    elif stream.isatty():
        with _bar(total, what, stream) as step:
            yield step
    else:
        yield _Lines(total, what, stream, every_s)


@contextmanager
def _bar(total: int, what: str, stream: TextIO) -> Iterator[Step]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[item]}", markup=False),
    )
    started = time.monotonic()
    with Progress(*columns, console=Console(file=stream), transient=False) as bar:
        task = bar.add_task(what, total=total, rate="", item="")
        done = 0

        def step(item: str) -> None:
            nonlocal done
            done += 1
            bar.update(task, advance=1, item=item[:40], rate=f"{_rate(done, started):.0f}/min")

        yield step


class _Lines:
    """Writes `grading 12/30, 55/min, 20 s left` now and then, and always at the end."""

    def __init__(self, total: int, what: str, stream: TextIO, every_s: float) -> None:
        self.total, self.what, self.stream, self.every_s = total, what, stream, every_s
        self.done = 0
        self.started = self.written = time.monotonic()

    def __call__(self, item: str) -> None:
        self.done += 1
        now = time.monotonic()
        if self.done < self.total and now - self.written < self.every_s:
            return
        self.written = now
        rate = _rate(self.done, self.started)
        left = (self.total - self.done) / rate * 60
        print(
            f"{self.what} {self.done}/{self.total}, {rate:.0f}/min, {left:.0f} s left",
            file=self.stream,
            flush=True,
        )


def _rate(done: int, started: float) -> float:
    """Items per minute."""
    return 60 * done / max(time.monotonic() - started, 1e-6)
