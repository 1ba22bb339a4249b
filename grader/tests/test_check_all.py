"""Guards `python -m grader check --all` on the real chapters: a student sees what passes and what does not yet."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.structure import nbgrader_metadata

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted(path.stem for path in ROOT.glob("notebooks/*/*.ipynb"))
SOLVED, PARTLY = "04_execution_dispatch", "01_preflight"


def answers(name: str) -> dict[str, str]:
    cells = json.loads((ROOT / "solutions" / name / f"{name}.ipynb").read_text("utf-8"))["cells"]
    return {cell["id"]: cell["source"] for cell in cells if nbgrader_metadata(cell).get("solution")}


def fill(path: Path, sources: dict[str, str]) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = sources.get(cell["id"], cell["source"])
    path.write_text(json.dumps(notebook, ensure_ascii=False), "utf-8")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess:
    """What the command prints in a clone where one chapter is solved, one begun, and the others are untouched."""
    root = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "notebooks", root / "notebooks")
    shutil.copytree(ROOT / "grader", root / "grader", ignore=shutil.ignore_patterns("tests", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    fill(root / "notebooks" / SOLVED / f"{SOLVED}.ipynb", answers(SOLVED))
    begun = answers(PARTLY)
    fill(root / "notebooks" / PARTLY / f"{PARTLY}.ipynb", {min(begun): begun[min(begun)]})
    words = [sys.executable, "-m", "grader", "check", "--all"]
    return subprocess.run(words, cwd=root, capture_output=True, text=True)


def test_one_line_for_each_chapter_in_order(shown):
    assert shown.returncode == 1 and shown.stderr == ""
    assert [line.split()[1] for line in shown.stdout.splitlines()] == CHAPTERS


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_line_says_what_passes(shown, name):
    (line,) = [line for line in shown.stdout.splitlines() if name in line]
    done = {SOLVED: 3, PARTLY: 1}.get(name, 0)
    assert line == f"{'✅' if done == 3 else '❌'} {name}  TODO {done}/3"
