"""Guards the progress display: a bar on a terminal, plain lines in a log, nothing that a name could steer."""

from __future__ import annotations

import io

from grader.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_lines_with_counts_rate_and_time_left():
    stream = io.StringIO()
    with progress(3, "grading", stream, every_s=0) as step:
        for name in "abc":
            step(name)
    lines = stream.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == ["grading 1/3", "grading 2/3", "grading 3/3"]
    assert all("/min, " in line and line.endswith(" s left") for line in lines)
    assert "\x1b" not in stream.getvalue()


def test_a_log_is_not_flooded_and_ends_with_the_last():
    stream = io.StringIO()
    with progress(500, "grading", stream, every_s=3600) as step:
        for _ in range(500):
            step("x")
    assert [line.split(",")[0] for line in stream.getvalue().splitlines()] == ["grading 500/500"]


def test_a_terminal_gets_a_bar():
    stream = Terminal()
    with progress(2, "grading", stream) as step:
        step("ann: graded")
        step("bob: [red]graded")
    shown = stream.getvalue()
    assert "2/2" in shown and "/min" in shown and "[red]graded" in shown


def test_nothing_to_do_shows_nothing():
    stream = io.StringIO()
    with progress(0, "grading", stream):
        pass
    assert stream.getvalue() == ""
