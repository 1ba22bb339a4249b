"""Guards the pages that we make: readable on desktop and phone, light and dark, accessible, from no other server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from grader.cli import main
from grader.tests.browser.support import CHAPTER, DESKTOP, PATIENCE_MS, PHONE, ROOT, shot

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600)]
SAMPLE = ROOT / "assets" / "sample_class" / CHAPTER
# a syntax error, repaired cells, edited tests, full marks, a file that is no notebook
STUDENTS = ("zhang_wei", "zhao_min", "zhou_jie", "朱玲", "xu_ting")
PAGES = {"report": "report.html", **{who: f"feedback/{who}/{CHAPTER}.html" for who in STUDENTS}}
QUICK = ("report", "zhang_wei")  # what CI looks at
WINDOWS = {"desktop": DESKTOP, "phone": PHONE}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The out folder of a class of five, with its report."""
    folder = tmp_path_factory.mktemp("pages")
    for who in STUDENTS:
        shutil.copytree(SAMPLE / who, folder / "class" / who)
    out = folder / "out"
    assert main(["grade", str(folder / "class"), "--assignment", CHAPTER, "--out", str(out)]) == 0
    assert main(["report", str(out)]) == 0
    return out


@pytest.fixture(params=[(window, theme) for window in WINDOWS for theme in ("light", "dark")], ids="-".join)
def view(request: pytest.FixtureRequest, browser: Browser) -> Iterator[tuple[Page, str]]:
    """A page in a window of this size and theme, and the view's name."""
    window, theme = request.param
    context = browser.new_context(viewport=WINDOWS[window], color_scheme=theme)
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page(), f"{window}_{theme}"
    context.close()


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PAGES])
def test_a_page_is_readable_and_accessible(graded: Path, view: tuple[Page, str], name: str) -> None:
    page, how = view
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((graded / PAGES[name]).as_uri())
    expect(page.locator("h1")).to_have_count(1)
    for fold in page.locator("details").all():  # what is folded is read too
        fold.evaluate("fold => fold.open = true")
    shot(page, f"page_{name}_{how}", full_page=True)
    size = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert size[0] <= size[1], f"the page scrolls sideways: {size[0]} px in a window of {size[1]}"
    spilled = "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.innerText)"
    assert page.locator("th, td").evaluate_all(spilled) == [], "text runs out of its column"
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_a_feedback_page_is_reached_by_keyboard_and_prints_on_white(graded: Path, browser: Browser) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto((graded / PAGES["zhang_wei"]).as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body"), "Tab reaches nothing"
    page.emulate_media(media="print")
    shot(page, "page_zhang_wei_print", full_page=True)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)"), background
    page.close()
