"""Guards the benchmark: it compares like with like, and its table says what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grader.bench import report
from grader.bench.__main__ import same_scores
from grader.bench.classes import CHAPTERS, make_class

ROOT = Path(__file__).resolve().parents[2]


def figures(wall_s: float, cpu_s: float) -> dict:
    return {"wall_s": wall_s, "cpu_s": cpu_s, "peak_mb": 100.0, "counted": "control group"}


def result() -> dict:
    compared = {
        "size": 10,
        "stock": [figures(60, 30), figures(80, 30)],
        "ours": [figures(6, 5), figures(10, 5)],
        "ratios": {"wall": [10.0, 8.0], "cpu": [6.0, 6.0]},
    }
    chapter = {
        "assignment": "a",
        "about": "small",
        "comparisons": [compared],
        "floor": {"size": 10, "bookkeeping": 0.15, "cells": 0.1},
        "series": [{"size": n, "workers": w, **figures(n / w, n)} for n in (10, 30) for w in (1, 2)],
    }
    machine = {"cpu": "some", "cores": 2, "kernel": "6", "python": "3.11", "load": 0.5}
    return {"machine": machine, "workers": 2, "chapters": [chapter]}


def test_the_table_gives_medians_with_their_spread_and_the_distance_to_the_floor():
    text = report.table(result())
    assert "| small, N=10 | stock `nbgrader autograde` | 70.0 (60.0–80.0) | 9 | 3.000 | 100 |" in text
    assert "| small, N=10 | **9.0 (8.0–10.0)** | 6.0 (6.0–6.0) | 2.0 |" in text
    assert "| small | 30 | 2 | 15.0 | 120 | 1.000 | 100 |" in text


def test_the_plot_is_a_picture(tmp_path):
    report.plot(result(), tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("ours", [{"ann": 1.0}, {"ann": 1.0, "bob": 3.0}, {"ann": 1.0, "bob": None}])
def test_sides_that_disagree_about_a_student_are_not_compared(ours):
    with pytest.raises(RuntimeError, match="bob"):
        same_scores({"ann": 1.0, "bob": 2.0}, ours)


@pytest.mark.parametrize("assignment", CHAPTERS)
def test_a_class_holds_right_and_wrong_answers(assignment, tmp_path):
    course = make_class(assignment)
    assert len(course.answers) > 2
    paths = sorted(course.write(tmp_path, 5).rglob("*.ipynb"))
    assert len(paths) == 5 and len({path.read_bytes() for path in paths[: len(course.answers)]}) > 2


@pytest.mark.slow
@pytest.mark.sandbox
def test_both_sides_grade_a_small_class(tmp_path):
    command = [sys.executable, "-m", "grader.bench", "--n", "3", "--rounds", "1", "--out", str(tmp_path)]
    done = subprocess.run([*command, "--chapter", "04_execution_dispatch"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    chapter = json.loads((tmp_path / "bench.json").read_text("utf-8"))["chapters"][0]
    assert chapter["comparisons"][0]["ratios"]["wall"][0] > 0
    assert done.stdout.strip() == (tmp_path / "bench.md").read_text("utf-8").strip()
    assert (tmp_path / "bench.png").stat().st_size > 1000
