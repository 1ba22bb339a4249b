"""Executing the instructor's edition, and reusing its outputs while no code changed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from nbformat.notebooknode import NotebookNode

from grader.errors import GraderError
from grader.model import Notebook

BACKEND = "module://matplotlib_inline.backend_inline"
TIMEOUT_S = 600


def code_digest(notebook: Notebook) -> str:
    """Hash of everything that runs: sources and tags of the code cells, in their order."""
    return digest(
        [
            [cell["id"], cell["source"], cell["metadata"].get("tags", [])]
            for cell in notebook["cells"]
            if cell["cell_type"] == "code"
        ]
    )


def outputs_digest(notebook: Notebook) -> str:
    """Hash of all outputs and execution counts."""
    return digest(
        [
            [cell["id"], cell.get("execution_count"), cell.get("outputs", [])]
            for cell in notebook["cells"]
            if cell["cell_type"] == "code"
        ]
    )


def digest(value: Any) -> str:
    """16 hex digits of the SHA-256 of a JSON value."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def execute_in(notebook: NotebookNode, folder: Path, *, timeout: int = TIMEOUT_S) -> NotebookNode:
    """Run all cells in place, with this Python, in ``folder``.

    Args:
        timeout: seconds for one cell.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
        nbclient.exceptions.CellTimeoutError: a cell took too long.
    """
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    class ThisPython(KernelSpecManager):
        """Every kernel name means the running interpreter, whatever is installed on the machine."""

        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
            return KernelSpec(argv=argv, display_name=kernel_name, language="python")

    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=ThisPython())
    client = NotebookClient(notebook, km=manager, timeout=timeout, record_timing=False, coalesce_streams=True)
    environment = {**os.environ, "MPLBACKEND": BACKEND}
    # nbclient stops a kernel that it was given only if told to; the kernel's own log lines are nobody's business.
    client.execute(cwd=str(folder), env=environment, stderr=subprocess.DEVNULL, cleanup_kc=True)
    return notebook


def execute(notebook: NotebookNode, name: str) -> NotebookNode:
    """Run all cells in place, in an empty folder.

    Raises:
        GraderError: a cell raised or took too long; names the cell and the error.
    """
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    metadata = dict(notebook.metadata)
    with tempfile.TemporaryDirectory(prefix="course-build-") as folder:
        try:
            execute_in(notebook, Path(folder))
        except CellExecutionError as error:
            raise GraderError(f"{name}, cell {_failed(notebook)}", f"{error.ename}: {error.evalue}".strip(),
                              "correct the cell in the master: the reference must run") from error  # fmt: skip
        except CellTimeoutError as error:
            raise GraderError(f"{name}, cell {_failed(notebook)}", f"it ran longer than {TIMEOUT_S} s",
                              "make it shorter") from error  # fmt: skip
        except DeadKernelError as error:
            raise GraderError(name, "the kernel died while the reference ran",
                              "run the notebook in JupyterLab to see where") from error  # fmt: skip
    # nbclient writes the kernel's language_info, with its version, into the notebook.
    notebook.metadata.clear()
    notebook.metadata.update(metadata)
    return notebook


def reuse_outputs(notebook: NotebookNode, built: Notebook) -> bool:
    """Copy the outputs of an earlier build, if they belong to exactly this code and nobody ran it since.

    Args:
        notebook: freshly made from the master, without outputs; changed in place.
        built: what lies in solutions/.
    """
    record = built["metadata"].get("course", {}).get("build", {})
    if record.get("code") != code_digest(notebook) or record.get("outputs") != outputs_digest(built):
        return False
    earlier = {cell.get("id"): cell for cell in built["cells"]}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if cell.id not in earlier or earlier[cell.id]["cell_type"] != "code":
                return False
            cell.outputs = earlier[cell.id]["outputs"]
            cell.execution_count = earlier[cell.id]["execution_count"]
    return True


def _failed(notebook: NotebookNode) -> str:
    """The id of the last cell that began to run."""
    ran = [c.id for c in notebook.cells if c.cell_type == "code" and (c.execution_count is not None or c.outputs)]
    return ran[-1] if ran else "?"
