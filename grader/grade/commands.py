"""The verbs `grade` and `results`."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from grader.errors import GraderError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from grader.model import Limits

_SUFFIXES = {"k": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def register(verbs: argparse._SubParsersAction) -> None:
    """Add the verbs to the command line."""
    grade = verbs.add_parser("grade", help="grade a class: scores, results table, feedback pages")
    grade.add_argument("submissions", type=Path, help="folder or zip with one folder or file per student")
    grade.add_argument("--assignment", required=True, metavar="NAME", help="such as 04_execution_dispatch")
    grade.add_argument("--source", type=Path, metavar="FILE", help="instructor's notebook (default: that of NAME)")
    grade.add_argument("--out", type=Path, metavar="DIR", help="where results go (default: out/NAME)")
    grade.add_argument("--workers", type=_positive, default=2, metavar="N", help="notebooks graded at once (2)")
    grade.add_argument(
        "--scheduler", metavar="ADDRESS", help="grade on a running Dask cluster, such as tcp://host:8786"
    )
    grade.add_argument("--roster", type=Path, metavar="FILE", help="names who should have handed in, one a line")
    grade.add_argument("--due", type=_moment, metavar="TIME", help="later is late, such as 2026-12-01T23:59+08:00")
    grade.add_argument("--only", action="append", default=[], metavar="STUDENT", help="grade just this student")
    grade.add_argument("--limit", action="append", default=[], metavar="NAME=N", help="such as cell_s=30, memory=2G")
    grade.add_argument("--json", action="store_true", help="print results.json instead of the table")
    grade.add_argument(
        "--force", action="store_true", help="grade everything again; drop scores given by hand and foreign results"
    )
    grade.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run students' code unprotected, with your rights"
    )
    grade.set_defaults(run=_grade)
    results = verbs.add_parser("results", help="write the tables and feedback again, after changes in formgrader")
    results.add_argument("out", type=Path, help="the --out folder of grade")
    results.add_argument("--json", action="store_true", help="print results.json instead of the table")
    results.set_defaults(run=_results)


def _grade(args: argparse.Namespace) -> int:
    from grader.grade.sources import chapter_source
    from grader.grade.workers import KeptPool
    from grader.imports import quick_imports

    assignment, limits = _assignment(args.assignment), parse_limits(args.limit)
    make_executor, workers = _executor(args)
    with KeptPool(make_executor, workers) as pool:
        if not args.scheduler and not args.unsafe_no_sandbox:
            # The workers load their libraries while this process does.
            pool.start(args.source or chapter_source(assignment))
        with quick_imports():
            from grader.grade.pipeline import GradeOptions, grade
        out, results = grade(
            GradeOptions(
                submissions=args.submissions,
                assignment=assignment,
                source=args.source,
                out=args.out,
                workers=workers,
                make_executor=pool,
                on_cluster=bool(args.scheduler),
                roster=args.roster,
                due=args.due,
                force=args.force,
                unsafe_no_sandbox=args.unsafe_no_sandbox,
                limits=limits,
                only=tuple(args.only),
            )
        )
    _show(out, results, as_json=args.json)
    return 0


def _executor(args: argparse.Namespace) -> tuple[Callable[[int], Executor], int]:
    """What makes executors, and how many jobs run at once."""
    if args.scheduler:
        from grader.grade.cluster import connect

        return connect(args.scheduler, unsafe=args.unsafe_no_sandbox)
    from grader.grade.workers import local_pool

    return local_pool, args.workers


def _results(args: argparse.Namespace) -> int:
    from grader.grade.pipeline import rewrite

    _show(args.out, rewrite(args.out.resolve()), as_json=args.json)
    return 0


def _show(out: Path, results: dict, *, as_json: bool) -> None:
    from grader.results import table, to_json

    if as_json:
        print(to_json(results))
        return
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table(results))
    if results["sandbox"] == "none":
        console.print("graded WITHOUT a sandbox (--unsafe-no-sandbox)", style="bold red")
    for name, what in (
        ("report.html", "the class at a glance, for you"),
        ("results.csv", "table"),
        ("results.json", "all details"),
        ("feedback", "pages for students"),
    ):
        print(f"{out / name}  ({what})")


def parse_limits(items: list[str]) -> Limits:
    """Limits from `NAME=N` items; sizes may end in k, M or G.

    Raises:
        GraderError: an unknown name, or no positive number.
    """
    from dataclasses import fields, replace

    from grader.model import Limits

    types = {field.name: field.type for field in fields(Limits)}
    chosen: dict[str, float] = {}
    for item in items:
        name, _, text = item.partition("=")
        if name not in types:
            raise GraderError(f"--limit {item}", "there is no such limit", f"choose one of: {', '.join(types)}")
        factor = _SUFFIXES.get(text[-1:], 1)
        try:
            value = float(text[:-1] if factor > 1 else text) * factor
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise GraderError(f"--limit {item}", "it is no positive number", f"write it like {name}=30")
        chosen[name] = value if types[name] == "float" else int(value)
    return replace(Limits(), **chosen)


def _assignment(name: str) -> str:
    """The name, which becomes a folder's and a notebook's name."""
    bad = [c for c in '/\\+:*?"<>|{}' if c in name]
    if bad or not name.strip(" .") or name.strip() != name or name.startswith("."):
        raise GraderError(f"assignment {name!r}", "it can't be a folder's name", "use letters, digits, _ and -")
    return name


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _moment(text: str) -> datetime:
    """An ISO time; one without a zone is this machine's."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone()
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-12-01T23:59+08:00") from error
