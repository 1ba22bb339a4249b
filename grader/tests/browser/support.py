"""A JupyterLab of its own for the browser tests, and the few moves that a person makes in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from grader.lab import Launch, launch

ROOT = Path(__file__).resolve().parents[3]
SHOTS = ROOT / ".screenshots"  # ignored by git; for people to look at
CHAPTER = "04_execution_dispatch"
TOKEN = "token-of-the-browser-tests"
PATIENCE_MS = 90_000  # a busy machine may take long; nothing is measured here
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def copy_course(target: Path) -> Path:
    """A copy of what `make lab` serves, so that nothing in the tree is saved over."""
    skipped = shutil.ignore_patterns("tests", "__pycache__", ".ipynb_checkpoints")
    for name in ("notebooks", "solutions", "grader"):
        shutil.copytree(ROOT / name, target / name, ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", target)
    return target


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab."""

    address: str

    def url(self, path: str) -> str:
        return f"{self.address}/{path}?token={TOKEN}"


@contextlib.contextmanager
def running_lab(home: Path, folder: Path | None = None, *, root: Path = ROOT) -> Iterator[Lab]:
    """JupyterLab as `python -m grader lab` starts it, with no settings of whoever runs the tests."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [f"--port={port}", "--ServerApp.port_retries=0", "--no-browser", f"--IdentityProvider.token={TOKEN}"]
    start = launch(folder, words, root=root)
    log = home / "jupyter.log"
    own = {"HOME": home, "JUPYTER_CONFIG_DIR": home / "config", "IPYTHONDIR": home / "ipython"}
    env = {**start.env, **{name: str(path) for name, path in own.items()}}
    with log.open("w") as stream:
        server = subprocess.Popen(start.argv, cwd=start.cwd, env=env, stdout=stream, stderr=subprocess.STDOUT)
    try:
        lab = Lab(f"http://127.0.0.1:{port}")
        _wait_until_it_answers(lab, server, log, start)
        yield lab
    finally:
        server.terminate()
        server.wait(30)


def _wait_until_it_answers(lab: Lab, server: subprocess.Popen, log: Path, start: Launch) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(lab.url("api/status"), timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"{start.argv} does not serve:\n{log.read_text()[-3000:]}")


def open_notebook(page: Page, lab: Lab, path: str, cells: int) -> Locator:
    """Open a notebook in JupyterLab; returns its panel once the kernel is idle and all its cells are drawn.

    JupyterLab draws a long notebook bit by bit, and what is drawn later moves what one is about to click.
    """
    page.goto(lab.url(f"lab/tree/{path}"))
    panel = page.locator(".jp-NotebookPanel:visible")
    expect(panel.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]')).to_be_visible(timeout=PATIENCE_MS)
    expect(panel.locator(".jp-Cell")).to_have_count(cells, timeout=PATIENCE_MS)
    return panel


def run_all(page: Page, panel: Locator) -> None:
    """Run → Run All Cells, and wait until the kernel is idle again."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator(".lm-Menu-item", has_text=re.compile("^Run All Cells$")).click()
    # Run All selects the last cell at once; the kernel becomes busy a moment later.
    expect(panel.locator(".jp-Cell").last).to_have_class(re.compile("jp-mod-selected"))
    page.wait_for_timeout(500)
    expect(panel.locator(".jp-InputPrompt", has_text="[*]")).to_have_count(0, timeout=PATIENCE_MS)
    indicator = panel.locator(".jp-Notebook-ExecutionIndicator")
    expect(indicator).to_have_attribute("data-status", "idle", timeout=PATIENCE_MS)


def cell_with(panel: Locator, text: str) -> Locator:
    """The one code cell whose source holds this text."""
    return panel.locator(".jp-CodeCell").filter(has=panel.page.locator(".jp-InputArea", has_text=text))


def type_over_stub(page: Page, panel: Locator, todo: int, lines: list[str]) -> None:
    """Replace the stub of one TODO at the keyboard, as a student does: select its line, type."""
    stub = panel.locator(".cm-line", has_text=f"raise NotImplementedError('请先完成 TODO {todo}：")
    _put_cursor(page, stub)
    page.keyboard.press("Home")
    page.keyboard.press("Shift+End")
    for number, line in enumerate(lines):
        if number:
            page.keyboard.press("Enter")
        page.keyboard.type(line)


def _put_cursor(page: Page, line: Locator) -> None:
    """Click into a line of an editor; what lies above may still be drawn and move it away from the mouse."""
    for _ in range(10):
        line.scroll_into_view_if_needed()
        line.click()
        page.wait_for_timeout(200)
        if line.evaluate("line => line.closest('.cm-focused') && line.contains(getSelection().anchorNode)"):
            return
    raise AssertionError(f"the cursor does not go into {line}")


def reference_lines(todo: int) -> list[str]:
    """The reference answer of a TODO of chapter 4: the lines between the solution markers, without indentation."""
    notebook = json.loads((ROOT / "solutions" / CHAPTER / f"{CHAPTER}.ipynb").read_text("utf-8"))
    cell = next(cell for cell in notebook["cells"] if cell["id"] == f"todo{todo}")
    body = "".join(cell["source"]).split("### BEGIN SOLUTION\n")[1].split("### END SOLUTION")[0]
    return [line.strip() for line in body.splitlines() if line.strip()]


def shot(page: Page, name: str, **options: object) -> None:
    """Keep a picture for people to look at."""
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", **options)


def chromium() -> str:
    """The browser on PATH, as `grader/bootstrap.py --browser` installs it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "no Chromium on PATH → python3 grader/bootstrap.py --browser"
    return found


def browser_words() -> list[str]:
    """Chromium's own sandbox refuses root, as in containers."""
    return ["--no-sandbox"] if os.geteuid() == 0 else []
