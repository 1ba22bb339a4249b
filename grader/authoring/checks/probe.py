"""Running the reference to see what each graded cell's last value is.

Trusted code: the instructor's own notebook. It runs in a process of its own, in an empty folder, with IPython but
without a kernel (`python -m grader.authoring.checks.probe REQUEST REPLY`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 300
PACKAGE_ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Outcome:
    """What one cell did.

    Attributes:
        error: the exception in one line, or empty.
        type_name: of the last value as IPython would show it, such as ``float`` or ``numpy.float64``; ``None``
            where it shows nothing.
        number: the value, where it is a plain float or int.
    """

    error: str = ""
    type_name: str = "None"
    number: float | None = None


def run_cells(runs: list[list[tuple[str, str]]]) -> list[dict[str, Outcome]]:
    """Run lists of (cell name, source), each list in a namespace of its own; errors don't stop a list.

    Raises:
        TimeoutError: it took longer than TIMEOUT_S.
        RuntimeError: the process died; the text says how.
    """
    with tempfile.TemporaryDirectory(prefix="course-probe-") as folder:
        request, reply = Path(folder) / "request.json", Path(folder) / "reply.json"
        work = Path(folder) / "work"
        work.mkdir()
        request.write_text(json.dumps(runs), "utf-8")
        command = [sys.executable, "-m", "grader.authoring.checks.probe", str(request), str(reply)]
        path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
        environment = {
            **os.environ,
            "MPLBACKEND": "agg",
            "PYTHONPATH": path,
            "IPYTHONDIR": str(Path(folder) / "ipython"),
        }
        try:
            done = subprocess.run(command, cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, errors="replace", timeout=TIMEOUT_S)  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"the reference ran longer than {TIMEOUT_S} s") from error
        if not reply.exists():
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise RuntimeError(f"the reference ended its own process: {last[:200]}")
        return [{name: Outcome(**value) for name, value in run.items()} for run in json.loads(reply.read_text("utf-8"))]


def _serve(request: Path, reply: Path) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.showtraceback = lambda *args, **kwargs: None
    shell.showsyntaxerror = lambda *args, **kwargs: None
    outcomes = []
    for cells in json.loads(request.read_text("utf-8")):
        shell.reset(new_session=True)
        outcomes.append({name: _outcome(shell.run_cell(source)) for name, source in cells})
    reply.write_text(json.dumps(outcomes), "utf-8")


def _outcome(result: Any) -> dict[str, Any]:
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        text = (str(error).strip().splitlines() or [""])[0]
        return {"error": f"{type(error).__name__}: {text}"[:300]}
    value = result.result
    if value is None:
        return {}
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return {"type_name": name, "number": value if kind in (int, float) else None}


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), Path(sys.argv[2]))
