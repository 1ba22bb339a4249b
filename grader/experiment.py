"""Run a chapter's experiment from the command line: the built notebook, other settings, an empty folder."""

from __future__ import annotations

import argparse
import base64
import re
from pathlib import Path

from grader.errors import GraderError

ROOT = Path(__file__).resolve().parent.parent


def with_settings(notebook: dict, settings: dict[str, str]) -> dict:
    """Replace `NAME = …` lines of the cell tagged `settings`.

    Args:
        notebook: an nbformat 4.5 notebook; changed in place and returned.
        settings: name → Python expression as it shall stand in the cell.

    Raises:
        GraderError: there is no settings cell, or it does not assign one of the names.
    """
    cells = [cell for cell in notebook["cells"] if "settings" in cell["metadata"].get("tags", [])]
    if not cells:
        raise GraderError("notebook", "it has no cell tagged 'settings'", "choose a chapter with an experiment")
    for name, value in settings.items():
        line = re.compile(rf"^{re.escape(name)}[ \t]*=.*$", re.MULTILINE)
        cell = next((cell for cell in cells if line.search(cell["source"])), None)
        if cell is None:
            raise GraderError(f"setting {name}", "the settings cell does not assign it", "check the spelling")
        cell["source"] = line.sub(lambda _, n=name, v=value: f"{n} = {v}", cell["source"], count=1)
    return notebook


def run(chapter: str, out: Path, settings: dict[str, str], *, timeout: int = 600) -> list[Path]:
    """Execute the chapter's instructor edition in ``out`` with other settings.

    Returns:
        what was written: the executed notebook, the plot, the result files.

    Raises:
        GraderError: unknown chapter or setting, or a cell failed (its error is named).
    """
    import nbformat
    from nbclient.exceptions import CellExecutionError

    from grader.authoring.executor import execute_in

    source = ROOT / "solutions" / chapter / f"{chapter}.ipynb"
    if not source.exists():
        known = ", ".join(sorted(path.parent.name for path in ROOT.glob("solutions/*/*.ipynb")))
        raise GraderError(chapter, "no such chapter", f"choose one of: {known or 'none built yet; run make build'}")
    notebook = with_settings(nbformat.read(source, as_version=4), settings)
    out.mkdir(parents=True, exist_ok=True)
    try:
        execute_in(notebook, out, timeout=timeout)
    except CellExecutionError as error:
        raise GraderError(
            f"{source.name}", f"{error.ename}: {error.evalue}", "read the cell's message above"
        ) from error
    written = [out / f"{chapter}.executed.ipynb"]
    nbformat.write(notebook, written[0])
    for number, image in enumerate(_plots(notebook), start=1):
        written.append(out / f"{chapter}.plot{number}.png")
        written[-1].write_bytes(image)
    return written + sorted((out / "benchmarks" / "results").glob("*.json"))


def _plots(notebook: dict) -> list[bytes]:
    """The PNG images that cells tagged `plot` drew."""
    outputs = [
        output
        for cell in notebook["cells"]
        if "plot" in cell["metadata"].get("tags", [])
        for output in cell.get("outputs", [])
    ]
    return [base64.b64decode(o["data"]["image/png"]) for o in outputs if "image/png" in o.get("data", {})]


def register(verbs: argparse._SubParsersAction) -> None:
    """Add the verb `experiment` to the command line."""
    parser = verbs.add_parser("experiment", help="run a chapter's experiment with other settings")
    parser.add_argument("chapter", help="such as 04_execution_dispatch")
    parser.add_argument("--out", type=Path, required=True, help="folder for the result files, made if missing")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a line of the settings cell")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    pairs = [item.partition("=") for item in args.set]
    for path in run(args.chapter, args.out, {name.strip(): value for name, _, value in pairs}):
        print(path)
    return 0
