"""Guards the one-click promise: every badge, link and image leads to a file of this tree, and one setting moves all."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from grader.authoring.build import build
from grader.authoring.settings import CourseSettings, course
from grader.authoring.tables import READMES
from grader.tests.demo_course import make_course

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = course()
CHAPTERS = sorted(path.stem for path in ROOT.glob("notebooks/*/*.ipynb"))
NOTEBOOKS = [f"{folder}/{name}/{name}.ipynb" for folder in ("notebooks", "solutions") for name in CHAPTERS]
PAGES = [*READMES, *NOTEBOOKS]
ADDRESS = re.compile(r"https?://[^\s<>\"'`)\]，。；）]+")
MARKDOWN_LINK = re.compile(r"\]\(([^)\s]+)\)")
IMAGE = re.compile(r"!\[([^\]]*)\]\([^)]+\)")
HTML_IMAGE = re.compile(r"<img\b[^>]*>")


@cache
def text_of(path: Path) -> str:
    """What a reader sees: a page, or the Markdown cells of a notebook."""
    if path.suffix != ".ipynb":
        return path.read_text("utf-8")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def own_paths(text: str, settings: CourseSettings) -> list[str]:
    """Paths in this tree that absolute addresses of the text name."""
    found = []
    for address in ADDRESS.findall(text):
        for prefix in settings.prefixes():
            if address.startswith(prefix):
                found.append(unquote(urlsplit(address.removeprefix(prefix)).path))
    return found


def test_there_is_something_to_check():
    assert "04_execution_dispatch" in CHAPTERS
    assert len(own_paths(text_of(ROOT / "README.md"), SETTINGS)) >= 2 * len(CHAPTERS)


@pytest.mark.parametrize("page", PAGES)
def test_every_address_into_the_tree_names_a_file(page):
    paths = own_paths(text_of(ROOT / page), SETTINGS)
    assert [path for path in paths if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_address_of_the_course_is_written_another_way(page):
    """Another branch, or a repository under github.com/ORG that is not this one, would be a slip."""
    slips = [
        address
        for address in ADDRESS.findall(text_of(ROOT / page))
        if f"/{SETTINGS.org}/" in address and not address.startswith(SETTINGS.prefixes())
    ]
    assert slips == []


@pytest.mark.parametrize("name", CHAPTERS)
@pytest.mark.parametrize("folder", ["notebooks", "solutions"])
def test_a_notebook_opens_itself_in_colab_and_modelscope(folder, name):
    """The instructor's edition leads to the student's: with answers in it nobody would practise."""
    cells = json.loads((ROOT / folder / name / f"{name}.ipynb").read_text("utf-8"))["cells"]
    head, student = "".join(cells[0]["source"]), f"notebooks/{name}/{name}.ipynb"
    assert f"]({SETTINGS.colab(student)})" in head
    assert f"]({SETTINGS.modelscope(student)})" in head


@pytest.mark.parametrize("page", READMES)
@pytest.mark.parametrize("name", CHAPTERS)
def test_the_table_has_both_badges_for_every_chapter(page, name):
    student = f"notebooks/{name}/{name}.ipynb"
    rows = [line for line in text_of(ROOT / page).splitlines() if line.startswith("| ") and f"{name}.ipynb" in line]
    assert len(rows) == 1
    assert SETTINGS.colab(student) in rows[0] and SETTINGS.modelscope(student) in rows[0]


@pytest.mark.parametrize("page", sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("[!.]*/**/README.md")))
def test_relative_links_lead_to_files(page):
    assert_relative_links(ROOT / page)


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_relative_links_of_the_front_pages_lead_to_files(page):
    assert_relative_links(ROOT / page)


def assert_relative_links(path: Path) -> None:
    targets = [t for t in MARKDOWN_LINK.findall(text_of(path)) if not t.startswith(("http", "#", "mailto:", "{{"))]
    missing = [t for t in targets if not (path.parent / unquote(t.split("#")[0])).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_every_image_has_a_text_for_those_who_do_not_see_it(page):
    text = text_of(ROOT / page)
    assert [alt for alt in IMAGE.findall(text) if not alt.strip()] == []
    assert [tag for tag in HTML_IMAGE.findall(text) if not re.search(r'\balt="[^"]+"', tag)] == []


def test_one_setting_changes_every_link(tmp_path):
    for name in ("notebooks", "solutions", "assets"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "sample_class"))
    for name in ("README.md", "README.zh-CN.md"):
        shutil.copy(ROOT / name, tmp_path)
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for key, value in {"org": "a-school", "repo": "our-course", "branch": "autumn"}.items():
        project, count = re.subn(rf'^{key} = ".*"$', f'{key} = "{value}"', project, flags=re.MULTILINE)
        assert count == 1
    (tmp_path / "pyproject.toml").write_text(project, "utf-8")
    moved = course(tmp_path)
    build(CHAPTERS, root=tmp_path)
    for page in PAGES:
        before, after = text_of(ROOT / page), text_of(tmp_path / page)
        assert own_paths(after, moved) == own_paths(before, SETTINGS), page
        assert own_paths(after, SETTINGS) == [], page
        assert moved.notice is None


@pytest.mark.parametrize("org", ["ORG", "a-school"])
def test_the_build_says_in_one_line_while_the_setting_is_a_placeholder(tmp_path, org):
    make_course(tmp_path)
    (tmp_path / "assets" / "figures").mkdir(exist_ok=True)
    project = (tmp_path / "pyproject.toml").read_text("utf-8").replace('org = "lab"', f'org = "{org}"')
    (tmp_path / "pyproject.toml").write_text(project, "utf-8")
    shutil.copytree(ROOT / "grader", tmp_path / "grader", ignore=shutil.ignore_patterns("tests", "__pycache__"))
    # From that folder, so that its own grader is run on its own tree.
    done = subprocess.run([sys.executable, "-m", "grader", "build"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    notices = [line for line in done.stderr.splitlines() if line.startswith("notice: ")]
    if org == "ORG":
        (notice,) = notices
        assert "placeholders" in notice and "pyproject.toml" in notice and "→" in notice
    else:
        assert notices == []
