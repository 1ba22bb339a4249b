"""Guards a student's way through chapter 4 in JupyterLab: open, run, fill three TODOs at the keyboard, hand in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from grader.tests.browser.support import (
    CHAPTER,
    ROOT,
    cell_with,
    copy_course,
    open_notebook,
    reference_lines,
    run_all,
    running_lab,
    shot,
    type_over_stub,
)

NOTEBOOK = f"notebooks/{CHAPTER}/{CHAPTER}.ipynb"


def count_cells(path: Path) -> int:
    return len(json.loads(path.read_text("utf-8"))["cells"])


@pytest.mark.sandbox
def test_from_the_first_click_to_100_points(page: Page, tmp_path: Path) -> None:
    root = copy_course(tmp_path / "course")
    (tmp_path / "home").mkdir()
    with running_lab(tmp_path / "home", root=root) as lab:
        page.goto(lab.url("lab"))
        expect(page.locator(".jp-DirListing-item", has_text=CHAPTER)).to_be_attached()
        expect(page.get_by_role("menuitem", name="Nbgrader")).to_be_visible()
        expect(page.locator(".Toastify__toast")).to_have_count(0)  # no popup about Jupyter's news
        panel = open_notebook(page, lab, NOTEBOOK, count_cells(root / NOTEBOOK))
        shot(page, "student_1_opened")

        run_all(page, panel)
        reminder = panel.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"]')
        # The first TODO stops Run All; a kernel on a slow machine may yet take up cells that were sent after it.
        expect(reminder.first).to_contain_text("NotImplementedError: 请先完成 TODO 1")
        reminder.first.scroll_into_view_if_needed()
        shot(page, "student_2_todo_message")

        for todo in (1, 2, 3):
            type_over_stub(page, panel, todo, reference_lines(todo))
        shot(page, "student_3_typed")
        run_all(page, panel)
        final = cell_with(panel, "def test_inference_execution_dispatch").locator(".jp-OutputArea-output")
        expect(final).to_contain_text("✅")
        expect(reminder).to_have_count(0)
        figure = panel.locator(".jp-RenderedImage img")
        expect(figure.first).to_be_attached()
        figure.first.scroll_into_view_if_needed()
        assert figure.first.evaluate("image => image.complete && image.naturalWidth > 300")
        shot(page, "student_4_plot")
        final.scroll_into_view_if_needed()
        shot(page, "student_5_done")

        page.keyboard.press("Control+s")
        expect(page.locator(".jp-mod-dirty")).to_have_count(0)

    saved = root / NOTEBOOK
    assert "✅" in saved.read_text("utf-8")
    handed_in = tmp_path / "class" / "wang_fang" / f"{CHAPTER}.ipynb"
    handed_in.parent.mkdir(parents=True)
    shutil.copy(saved, handed_in)
    words = ["grade", str(tmp_path / "class"), "--assignment", CHAPTER, "--out", str(tmp_path / "out"), "--json"]
    done = subprocess.run([sys.executable, "-m", "grader", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (student,) = json.loads(done.stdout)["students"]
    assert (student["score"], student["max_score"], student["flags"]) == (100, 100, [])
