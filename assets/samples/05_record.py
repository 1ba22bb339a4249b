"""Records the two samples of chapter 5 into this folder, from the root of the repo::

    PYTHONPATH=. python assets/samples/05_record.py block
    PYTHONPATH=. python assets/samples/05_record.py result

Model, export, record and report are the notebook's own cells, so a sample is what the notebook itself would write.
Each in a process of its own: the first export of a process starts cold, and the text says so.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from grader.tests.mutants import framework

NAME = "05_graph_capture"
FOLDER = Path(__file__).parent
BLOCK, RESULT = FOLDER / "05_llama_block.json", FOLDER / "05_graph_capture_cpu.json"


def experiment_names(names: dict[str, Any]) -> dict[str, Any]:
    """``names`` with what the settings and experiment cells define, in dry_run; nothing is exported."""
    from grader.tests.chapter_checks import master

    for cell in master(NAME)["cells"]:
        if {"settings", "experiment"} & set(cell["metadata"].get("tags", [])):
            exec(cell["source"], names)
    return names


def record_block(names: dict[str, Any]) -> None:
    import torch

    nodes = names["record_nodes"](torch.export.export(*names["make_case"](1, "cpu")))
    block = {"torch_version": torch.__version__, "nodes": nodes}
    BLOCK.write_text(json.dumps(block, separators=(",", ":")) + "\n", encoding="utf-8")


def record_result(names: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            names["run_capture"]("cpu")
            written = Path(names["result_path"](names["GPU_RESULT_PATH"], "cpu")).read_text(encoding="utf-8")
        finally:
            os.chdir(before)
    RESULT.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    records = {"block": record_block, "result": record_result}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=records, help="the block first; the result compares itself with it")
    chosen = parser.parse_args().what
    records[chosen](experiment_names(framework.load(NAME).namespace()))
