"""`python -m grader lab [FOLDER]`: JupyterLab with nbgrader's tools, on the notebooks or on a graded class.

Started from a plain shell it needs no activated environment and no configuration: what JupyterLab and formgrader read
(`nbgrader_config.py`, `labconfig/` without the news popup) lies beside this file, and nbgrader's own helpers are put
on PATH.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from grader.errors import GraderError

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Launch:
    """How to start JupyterLab: the words of the command, where, and with which environment variables."""

    argv: list[str]
    cwd: Path
    env: dict[str, str]


def register(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser("lab", help="JupyterLab on the notebooks, or formgrader on a graded class")
    parser.add_argument("folder", nargs="?", type=Path, help="the --out folder of grade (default: notebooks/)")
    parser.add_argument("--port", type=int, help="another port than Jupyter's own choice")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.set_defaults(run=_run)


def launch(folder: Path | None = None, extra: list[str] | None = None, *, root: Path = ROOT) -> Launch:
    """How to start JupyterLab on the course in ``root``, or on a class that was graded into ``folder``.

    Makes nbgrader's exchange folder there: formgrader opens with a warning where it is missing.

    Raises:
        GraderError: ``folder`` is no graded class, or ``root`` has no notebooks.
    """
    if folder is None and not any(root.glob("notebooks/*/*.ipynb")):
        raise GraderError(str(root / "notebooks"), "there is no notebook", "run `python -m grader build` first")
    if folder is not None and not (folder / "nbgrader_config.py").is_file():
        remedy = "give the --out folder of `python -m grader grade`, or no folder for the notebooks"
        raise GraderError(str(folder), "it is no graded class", remedy)
    served = (folder or root).resolve()
    (served / "exchange").mkdir(exist_ok=True)
    argv = [sys.executable, "-m", "jupyterlab", *(extra or [])]
    if folder is None:
        # formgrader wants the whole course below the server's root; the file browser starts in notebooks/
        argv.append(f"--FileContentsManager.preferred_dir={root / 'notebooks'}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # Jupyter refuses root without it: containers
        argv.append("--allow-root")
    config = os.pathsep.join(filter(None, [str(root / "grader"), os.environ.get("JUPYTER_CONFIG_PATH")]))
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    return Launch(argv, served, {**os.environ, "JUPYTER_CONFIG_PATH": config, "PATH": path})


def _run(args: argparse.Namespace) -> int:
    extra = [f"--port={args.port}"] if args.port else []
    extra += ["--no-browser"] if args.no_browser else []
    start = launch(args.folder, extra)
    if os.name == "posix":  # in the place of this process, so that whoever ends it ends the server
        os.chdir(start.cwd)
        os.execve(start.argv[0], start.argv, start.env)
    return subprocess.run(start.argv, cwd=start.cwd, env=start.env, check=False).returncode
