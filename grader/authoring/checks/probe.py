"""Running the reference to see what each graded cell's last value is.

Trusted code: the instructor's own notebook. It runs in a process of its own, in an empty folder, with IPython but
without a kernel: probe_worker.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 300
WORKER = Path(__file__).with_name("probe_worker.py")


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
        command = [sys.executable, "-c", WORKER.read_text("utf-8"), str(request), str(reply)]
        environment = {**os.environ, "MPLBACKEND": "agg", "IPYTHONDIR": str(Path(folder) / "ipython")}
        try:
            done = subprocess.run(command, cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, errors="replace", timeout=TIMEOUT_S)  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"the reference ran longer than {TIMEOUT_S} s") from error
        if not reply.exists():
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise RuntimeError(f"the reference ended its own process: {last[:200]}")
        return [{name: Outcome(**value) for name, value in run.items()} for run in json.loads(reply.read_text("utf-8"))]
