"""Guards `python -m grader lab`: what it starts, and that a wrong folder is named with a remedy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from grader.cli import main
from grader.errors import GraderError
from grader.lab import ROOT, launch


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "notebooks" / "01_a").mkdir(parents=True)
    (tmp_path / "notebooks" / "01_a" / "01_a.ipynb").write_text("{}", "utf-8")
    return tmp_path


def test_without_a_folder_it_serves_the_course_and_starts_in_notebooks(tree):
    start = launch(root=tree)
    assert start.cwd == tree.resolve()
    assert f"--FileContentsManager.preferred_dir={tree / 'notebooks'}" in start.argv


def test_a_graded_class_is_served_itself(tree):
    out = tree / "out"
    out.mkdir()
    (out / "nbgrader_config.py").touch()
    start = launch(out, ["--port=1234"], root=tree)
    assert start.cwd == out.resolve()
    assert "--port=1234" in start.argv and not any("preferred_dir" in word for word in start.argv)


@pytest.mark.parametrize(("euid", "allowed"), [(0, True), (1000, False)])
def test_only_root_is_allowed_as_root(tree, monkeypatch, euid, allowed):
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    assert ("--allow-root" in launch(root=tree).argv) is allowed


def test_the_environment_needs_no_activation(tree, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/elsewhere")
    env = launch(root=tree).env
    assert env["JUPYTER_CONFIG_PATH"].split(os.pathsep) == [str(tree / "grader"), "/elsewhere"]
    assert (Path(env["PATH"].split(os.pathsep)[0]) / "jupyter").exists()


def test_the_news_popup_is_off():
    config = json.loads((ROOT / "grader" / "labconfig" / "page_config.json").read_text("utf-8"))
    assert config["disabledExtensions"] == {"@jupyterlab/apputils-extension:announcements": True}


def test_a_folder_that_is_no_graded_class_is_one_line(tree, capsys):
    assert main(["lab", str(tree / "nowhere")]) == 2
    shown = capsys.readouterr().err
    assert "no graded class" in shown and "→" in shown and shown.count("\n") == 1


def test_a_tree_without_notebooks_says_how_to_build_them(tmp_path):
    with pytest.raises(GraderError, match="grader build"):
        launch(root=tmp_path)
