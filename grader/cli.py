"""The command line: `python -m grader VERB`. Each verb imports what it needs when it runs, so that --help is fast."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import NoReturn

# Modules with a `register(verbs)` that adds their verbs and sets `run`, a function (args) -> exit code.
# They import only the standard library at their top. `build`, `release` and `import` are in the first.
VERB_MODULES = (
    "grader.authoring.commands",
    "grader.grade.commands",
    "grader.check",
    "grader.report.commands",
    "grader.experiment",
    "grader.lab",
)
REPORT_TO = "please report it with the output of --debug on the project's issue page"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; returns the exit code: 0 done, 1 a check failed, 2 nothing done for a stated reason, 130 Ctrl-C."""
    # jsonschema builds parsers for addresses with non-ASCII letters when it is imported, which takes a second, and no
    # notebook schema uses them. It does without where the package is missing.
    sys.modules.setdefault("rfc3987_syntax", None)
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    args = _parser().parse_args([word for word in words if word != "--debug"])
    from grader.errors import GraderError

    try:
        return args.run(args) or 0
    except GraderError as error:
        print(f"grader {args.verb}: {_clean(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"grader {args.verb}: interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `… | head`
        sys.stdout = None
        return 1
    except Exception as error:
        if debug:
            raise
        what = f"{type(error).__name__}: {' '.join(_clean(str(error)).split())}"
        print(f"grader {args.verb}: internal error, {what} → {REPORT_TO}", file=sys.stderr)
        return 70


class _Parser(argparse.ArgumentParser):
    """An argparse parser that says in one line what is wrong, as every other error does (argparse prints the usage)."""

    def error(self, message: str) -> NoReturn:
        verb = self.prog.partition("grader")[2].strip()
        print(f"grader{f' {verb}' if verb else ''}: {_clean(message)} → see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m grader", description="Build, release, check and grade the course's notebooks.")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error (at any place)")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name in VERB_MODULES:
        if _exists(name):
            importlib.import_module(name).register(verbs)
    return parser


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _clean(text: str) -> str:
    """A message (one line; one more for each finding of a release check) that can't steer the terminal."""
    from grader.text import printable

    return "\n".join(printable(line) for line in text.strip().splitlines())
