"""The verb `report`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grader.report.export import Export

_SHOWN = 20  # names in a warning


def register(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    report = verbs.add_parser("report", help="the class at a glance (HTML), and grades for Canvas and Moodle")
    report.add_argument("out", type=Path, help="the --out folder of grade")
    report.add_argument("--canvas-template", type=Path, metavar="FILE", help="gradebook exported from Canvas, as CSV")
    report.add_argument("--canvas-column", metavar="NAME", help="the assignment in Canvas (default: by name or number)")
    report.add_argument("--moodle-worksheet", type=Path, metavar="FILE", help="grading worksheet of the assignment")
    report.set_defaults(run=_report)


def _report(args: argparse.Namespace) -> int:
    from grader.grade.pipeline import rewrite
    from grader.report.canvas import write_canvas
    from grader.report.moodle import write_moodle
    from grader.report.page import write_report

    out = args.out.resolve()
    results = rewrite(out)
    exports = [
        write_canvas(out, results, args.canvas_template, args.canvas_column),
        write_moodle(out, results, args.moodle_worksheet),
    ]
    write_report(out, results, exports)
    _warn(exports)
    print(f"{args.out / 'report.html'}  (the class at a glance; only for the instructor)")
    for export in exports:
        print(f"{args.out / export.path.name}  ({export.filled} grades for {export.system})")
    return 0


def _warn(exports: Sequence[Export]) -> None:
    """Say on stderr whose grades are in no file; the names come from file names, so they are cleaned."""
    from grader.text import printable

    for export in exports:
        for note in export.notes:
            print(printable(f"{export.path.name}: {note}"), file=sys.stderr)
        if export.unmatched:
            names = "; ".join(f"{student} ({reason})" for student, reason in export.unmatched[:_SHOWN])
            more = len(export.unmatched) - _SHOWN
            print(
                printable(
                    f"{export.path.name}: no row found for {names}{f' and {more} more' if more > 0 else ''} → "
                    "enter their scores by hand (report.html lists them)"
                ),
                file=sys.stderr,
            )
