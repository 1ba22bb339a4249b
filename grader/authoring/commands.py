"""The verbs build, release and import of the command line. Heavy modules load only when a verb runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def register(verbs: argparse._SubParsersAction) -> None:
    """Add the verbs to the command line."""
    build = verbs.add_parser("build", help="make the notebooks of the course from their masters in solutions/")
    build.add_argument(
        "chapters", nargs="*", metavar="CHAPTER", help="such as 04_execution_dispatch or 4; default: all"
    )
    build.add_argument("--check", action="store_true", help="only say what building would change; exit code 1 if any")
    build.set_defaults(run=run_build)

    release = verbs.add_parser("release", help="check an instructor's notebook and make the student's edition")
    release.add_argument(
        "source", type=Path, metavar="SOURCE", help="an .ipynb with nbgrader metadata, or a master .py"
    )
    release.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the student's notebook")
    release.add_argument("--force", action="store_true", help="replace a different notebook there")
    release.set_defaults(run=run_release)

    importer = verbs.add_parser("import", help="take edits of a notebook in solutions/ into its master")
    importer.add_argument("notebook", type=Path, metavar="FILE", help="solutions/NN_name/NN_name.ipynb")
    importer.set_defaults(run=run_import)


def run_build(args: argparse.Namespace) -> int:
    """Build or check; 1 when ``--check`` finds a difference."""
    from grader.authoring.build import build
    from grader.authoring.settings import ROOT, course
    from grader.authoring.tables import unlisted

    changed = build(args.chapters, args.check, progress=lambda line: print(line, flush=True))
    for path in changed:
        print(f"{'out of date' if args.check else 'written'}: {path.relative_to(ROOT)}")
    if not changed:
        print("nothing to change: the notebooks are those of their masters")
    if args.check and changed:
        print("run `python -m grader build` and commit what it writes", file=sys.stderr)
    for notice in filter(None, (course().notice, unlisted(course()))):
        print(notice, file=sys.stderr)
    return 1 if args.check and changed else 0


def run_release(args: argparse.Namespace) -> int:
    """Release one notebook."""
    from grader.authoring.release import release

    print(release(args.source, args.out, force=args.force))
    return 0


def run_import(args: argparse.Namespace) -> int:
    """Import the edits of one notebook."""
    from grader.authoring.importer import import_edits

    print(f"{import_edits(args.notebook)} holds the edits; now run `python -m grader build {args.notebook.stem}`")
    return 0
