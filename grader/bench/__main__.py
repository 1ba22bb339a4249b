"""`python -m grader.bench`: measure, then write bench.json, bench.md and bench.png."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grader.bench import report, sides
from grader.bench.classes import CHAPTERS, Class, make_class

LARGE = 100  # submissions; of that size a course's class is, or a part of a MOOC's


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m grader.bench", description=__doc__)
    parser.add_argument("--n", type=int, default=30, metavar="N", help="submissions in the comparison (30)")
    parser.add_argument("--rounds", type=int, default=3, help="how often both sides run, in turn (3)")
    parser.add_argument("--workers", type=int, default=2, help="of our side in the comparison (2)")
    parser.add_argument("--full", action="store_true", help="also compare N = 100, once; our side with 10, 100, 300")
    parser.add_argument("--chapter", action="append", choices=list(CHAPTERS), help="just this one")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), metavar="DIR")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"machine": machine(), "workers": args.workers, "chapters": []}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for assignment in args.chapter or CHAPTERS:
            chapter = _chapter(make_class(assignment), args, Path(folder))
            result["chapters"].append(chapter)
            (args.out / "bench.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (args.out / "bench.md").write_text(report.table(result), "utf-8")
    report.plot(result, args.out / "bench.png")
    print(report.table(result))
    return 0


def _chapter(course: Class, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Both sides in turn, then the floor, then ours with other sizes and numbers of workers."""
    size = args.n
    comparisons = [_compared(course, size, args.rounds, args.workers, folder)]
    if args.full:
        comparisons.append(_compared(course, LARGE, 1, args.workers, folder))
    _say(f"{course.assignment}: floor")
    bookkeeping = sides.stock(course, size, folder / "stock", execute=False).figures.cpu_s / size
    cells = sides.cells_alone(course, size, folder / "cells").cpu_s / size
    series = []
    for n in (10, 100, 300) if args.full else sorted({10, size}):
        for workers in (1, 2, 4):
            _say(f"{course.assignment}: N={n}, {workers} workers")
            figures = sides.ours(course, n, folder / "ours", workers=workers).figures
            series.append({"size": n, "workers": workers, **asdict(figures)})
    return {
        "assignment": course.assignment,
        "about": CHAPTERS[course.assignment],
        "comparisons": comparisons,
        "floor": {"size": size, "bookkeeping": bookkeeping, "cells": cells},
        "series": series,
    }


def _compared(course: Class, size: int, rounds: int, workers: int, folder: Path) -> dict[str, Any]:
    """Both sides in turn over a class of one size; ratios are stock's figures by ours."""
    stock, ours = [], []
    for number in range(rounds):
        what = f"{course.assignment}: N={size}, round {number + 1} of {rounds}"
        _say(f"{what}, stock")
        theirs = sides.stock(course, size, folder / "stock")
        _say(f"{what}, ours")
        mine = sides.ours(course, size, folder / "ours", workers=workers)
        same_scores(theirs.scores, mine.scores)
        stock.append(theirs.figures)
        ours.append(mine.figures)
    return {
        "size": size,
        "stock": [asdict(f) for f in stock],
        "ours": [asdict(f) for f in ours],
        "ratios": {
            "wall": [a.wall_s / b.wall_s for a, b in zip(stock, ours, strict=True)],
            "cpu": [a.cpu_s / b.cpu_s for a, b in zip(stock, ours, strict=True)],
        },
    }


def same_scores(stock: sides.Scores, ours: sides.Scores) -> None:
    """Raises RuntimeError where the sides disagree about a student: then their speed can't be compared."""
    different = [name for name in sorted(stock.keys() | ours.keys()) if stock.get(name, -1) != ours.get(name, -1)]
    if different:
        shown = ", ".join(f"{name}: stock {stock.get(name)}, ours {ours.get(name)}" for name in different[:5])
        raise RuntimeError(f"{len(different)} students got different scores: {shown}")


def machine() -> dict[str, Any]:
    """What a figure depends on; nothing that tells whose machine it is."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
