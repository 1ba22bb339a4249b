"""Run student notebooks as a hosted service does: a program for the hosted environment, without this repository.

    python hosted_run.py FOLDER

FOLDER holds NAME/unfilled.ipynb and NAME/filled.ipynb. Both run from top to bottom in NAME/alone, which starts empty,
one after the other in one kernel: what a student does who runs all, fills the TODOs and runs all again. The executed
notebooks are written beside them as NAME/unfilled.run.ipynb and NAME/filled.run.ipynb, and NAME/kernel.json says what
the kernel was: versions, network interfaces, what can be seen of the folder in COURSE_TREE.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

PROBE = """
import importlib.metadata, json, os, platform, socket
kernel = {name: importlib.metadata.version(name) for name in ("ipython", "ipykernel", "matplotlib")}
kernel["python"] = platform.python_version()
kernel["network"] = [name for _, name in socket.if_nameindex()]
kernel["tree"] = os.listdir(os.environ["COURSE_TREE"])
print(json.dumps(kernel))
"""


def run(folder: Path) -> None:
    """Execute both notebooks of one chapter; errors stay in the outputs."""
    alone = folder / "alone"
    alone.mkdir()
    kept = ("unfilled", "filled")
    notebooks = {name: nbformat.read(folder / f"{name}.ipynb", as_version=4) for name in kept}
    resources = {"metadata": {"path": str(alone)}}
    client = NotebookClient(notebooks["unfilled"], timeout=240, allow_errors=True, resources=resources)
    with client.setup_kernel():
        for name in kept:
            client.nb = notebooks[name]
            for index, cell in enumerate(client.nb.cells):
                client.execute_cell(cell, index)
            nbformat.write(client.nb, folder / f"{name}.run.ipynb")
        probe = nbformat.v4.new_code_cell(PROBE)
        client.nb = nbformat.v4.new_notebook(cells=[probe])
        client.execute_cell(probe, 0)
        (folder / "kernel.json").write_text(probe.outputs[0].text, "utf-8")


if __name__ == "__main__":
    for chapter in sorted(Path(sys.argv[1]).iterdir()):
        run(chapter)
