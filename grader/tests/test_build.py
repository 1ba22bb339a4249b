"""Building a chapter: the same bytes each time, outputs reused, edits by hand never lost."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import sys
from pathlib import Path

import nbformat
import psutil
import pytest

from grader.authoring import build as building
from grader.authoring.build import Chapter, build, chapters, choose
from grader.authoring.commands import run_build
from grader.authoring.executor import execute
from grader.authoring.master import parse_master, read_master, write_canonical
from grader.authoring.settings import ROOT, CourseSettings, course
from grader.authoring.tables import unlisted
from grader.errors import GraderError
from grader.tests.demo_course import CHAPTER, edit, make_course, settings_of


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course that was built once; tests work on copies."""
    root = tmp_path_factory.mktemp("course")
    make_course(root)
    settings_of(root)
    build(root=root)
    return root


@pytest.fixture
def tree(built: Path, tmp_path: Path) -> Path:
    """A copy of the built course."""
    return Path(shutil.copytree(built, tmp_path / "course"))


@pytest.fixture
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make executing anything an error."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was executed")

    monkeypatch.setattr(building, "execute", refuse)
    monkeypatch.setattr("grader.authoring.checks.check_by_running", refuse)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def cell(root: Path, name: str, edition: str = "instructor") -> nbformat.NotebookNode:
    notebook = nbformat.read(getattr(Chapter(CHAPTER, root), edition), as_version=4)
    return next(c for c in notebook.cells if c.id == name)


def test_building_again_changes_no_byte_and_runs_nothing(tree: Path, no_run: None) -> None:
    before = files(tree)
    assert build(root=tree) == []
    assert build(root=tree, check_only=True) == []
    assert files(tree) == before


def test_a_clone_without_outputs_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """The build depends on the master alone, not on what an earlier build left."""
    make_course(tmp_path)
    build(root=tmp_path)
    assert files(tmp_path) == files(built)


def test_the_editions_hold_what_they_should(built: Path) -> None:
    chapter = Chapter(CHAPTER, built)
    instructor, student = chapter.instructor.read_text("utf-8"), chapter.student.read_text("utf-8")
    assert "measured 3" in instructor and "measured 3" not in student
    for secret in ("scaled_2 = [", "[-7, 91]", "multiplies with a comprehension", "MARKER", "BEGIN "):
        assert secret not in student
    assert "raise NotImplementedError('请先完成 TODO 2：乘以 3')" in student
    metadata = json.loads(student)["metadata"]
    assert re.fullmatch("[0-9a-f]{16}", metadata["course"].pop("release"))
    assert metadata["course"] == {"chapter": CHAPTER, "version": "2.3.4"}
    assert "version" not in metadata["language_info"]


@pytest.mark.parametrize("edition", ["instructor", "student"])
def test_editions_are_canonical_valid_and_free_of_jupytext(built: Path, edition: str) -> None:
    text = getattr(Chapter(CHAPTER, built), edition).read_text("utf-8")
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert write_canonical(notebook) == text
    for left_over in ("jupytext", "lines_to_next_cell", '"slug"', '"include"', '"sample"'):
        assert left_over not in text


def test_cell_ids_are_the_slugs_and_grade_ids(built: Path) -> None:
    notebook = nbformat.read(Chapter(CHAPTER, built).student, as_version=4)
    assert [c.id for c in notebook.cells][:5] == ["title", "settings", "todo1", "todo1_values", "todo2"]


def test_metadata_that_results_need_reaches_the_student_edition(built: Path) -> None:
    metadata = cell(built, "todo2_values", "student").metadata
    assert (metadata.title, metadata.todo, metadata.step) == ("结果乘以 3", 2, "步骤 2")
    assert metadata.nbgrader.points == 30
    assert cell(built, "settings", "student").metadata.tags == ["settings"]


def test_placeholders_become_addresses_or_plain_text(built: Path) -> None:
    text = cell(built, "title").source
    assert "https://colab.research.google.com/github/lab/kit/blob/main/notebooks/09_demo/09_demo.ipynb" in text
    assert "https://modelscope.cn/notebook/share/github/lab/kit/blob/main/notebooks/09_demo/09_demo.ipynb" in text
    assert "https://raw.githubusercontent.com/lab/kit/main/assets/figures/09_boxes.svg" in text
    assert "version 2.3.4" in text
    assert "Next: 第 10 章." in text


def test_a_link_to_a_chapter_appears_once_that_chapter_exists(tree: Path) -> None:
    later = tree / "solutions" / "10_later" / "10_later.py"
    later.parent.mkdir()
    later.write_text("", "utf-8")
    text = read_master(Chapter(CHAPTER, tree).master, settings_of(tree)).cells[0].source
    assert "[第 10 章](https://github.com/lab/kit/blob/main/notebooks/10_later/10_later.ipynb)" in text


def test_included_cell_and_recorded_sample_are_filled_in(built: Path) -> None:
    assert cell(built, "experiment", "student").source == 'measured = len("abc")\nprint("measured", measured)'
    assert (
        cell(built, "reader").source == "import json\nRECORDED_SAMPLE = json.loads(r'''{\"名\":[1.5,2],\"b\":null}''')"
    )
    assert cell(built, "plot").outputs[0].text == "['b', '名']\n"


def test_prose_edits_do_not_execute(tree: Path, no_run: None) -> None:
    edit(Chapter(CHAPTER, tree).master, "# # Demo | 演示", "# # Demo | 演示\n#\n# One more line.")
    written = build(root=tree)
    assert len(written) == 2
    assert "measured 3" in Chapter(CHAPTER, tree).instructor.read_text("utf-8")
    assert build(root=tree) == []


def test_code_edits_execute_again(tree: Path) -> None:
    (tree / "assets/cells/measure.py").write_text('print("measured", 4)\n', "utf-8")
    assert build(root=tree, check_only=True) == [Chapter(CHAPTER, tree).instructor, Chapter(CHAPTER, tree).student]
    build(root=tree)
    assert cell(tree, "experiment").outputs[0].text == "measured 4\n"


def test_check_writes_nothing(tree: Path, no_run: None) -> None:
    edit(Chapter(CHAPTER, tree).master, 'print("mode", RUN_MODE)', 'print("runs", RUN_MODE)')
    before = files(tree)
    assert build(root=tree, check_only=True)
    assert files(tree) == before


@pytest.mark.parametrize("edition", ["instructor", "student"])
def test_check_reports_a_missing_edition(tree: Path, edition: str) -> None:
    path = getattr(Chapter(CHAPTER, tree), edition)
    path.unlink()
    assert path in build(root=tree, check_only=True)


def test_a_student_notebook_changed_by_hand_is_reported_and_made_again(tree: Path, no_run: None) -> None:
    student = Chapter(CHAPTER, tree).student
    original = student.read_bytes()
    student.write_bytes(original.replace(b"Three boxes", b"Four boxes"))
    assert build(root=tree, check_only=True) == [student]
    build(root=tree)
    assert student.read_bytes() == original


def hand_edit(tree: Path, change) -> Path:
    path = Chapter(CHAPTER, tree).instructor
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    path.write_text(nbformat.writes(notebook), "utf-8")
    return path


def _edit_source(notebook) -> None:
    notebook.cells[1].source += "\nprint('more')"


def _edit_points(notebook) -> None:
    next(c for c in notebook.cells if c.id == "todo1_values").metadata.nbgrader.points = 31


def _remove_cell(notebook) -> None:
    del notebook.cells[1]


def _add_cell(notebook) -> None:
    notebook.cells.append(nbformat.v4.new_markdown_cell("new"))


def _move_cell(notebook) -> None:
    notebook.cells[0], notebook.cells[1] = notebook.cells[1], notebook.cells[0]


@pytest.mark.parametrize("change", [_edit_source, _edit_points, _remove_cell, _add_cell, _move_cell])
def test_an_edit_by_hand_stops_the_build_and_is_kept(tree: Path, change) -> None:
    path = hand_edit(tree, change)
    before = path.read_bytes()
    for check_only in (False, True):
        with pytest.raises(GraderError, match="edited by hand") as error:
            build(root=tree, check_only=check_only)
        assert "python -m grader import solutions/09_demo/09_demo.ipynb" in error.value.remedy
    assert path.read_bytes() == before


def test_opening_and_saving_in_jupyterlab_is_no_edit(tree: Path, no_run: None) -> None:
    original = Chapter(CHAPTER, tree).instructor.read_bytes()

    def save(notebook) -> None:
        notebook.metadata.kernelspec.display_name = "Python 3 (ipykernel)"
        notebook.metadata.language_info.version = "3.11.7"
        notebook.cells[1].metadata["scrolled"] = True

    hand_edit(tree, save)
    build(root=tree)
    assert Chapter(CHAPTER, tree).instructor.read_bytes() == original


def test_outputs_of_another_run_are_not_reused(tree: Path) -> None:
    """Someone ran one cell in JupyterLab and saved: the outputs are no longer those of a run from top to bottom."""
    original = Chapter(CHAPTER, tree).instructor.read_bytes()

    def run_again(notebook) -> None:
        notebook.cells[1].execution_count = 17

    hand_edit(tree, run_again)
    build(root=tree)
    assert Chapter(CHAPTER, tree).instructor.read_bytes() == original


def test_another_file_in_the_release_folder_is_refused(tree: Path) -> None:
    (Chapter(CHAPTER, tree).student.parent / "09_demo.py").write_text("answer", "utf-8")
    with pytest.raises(GraderError, match="another file: 09_demo.py"):
        build(root=tree)


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ('slug="settings" tags', "tags", "line 18.*neither a slug nor a grade_id"),
        ('slug="plot"', 'slug="reader"', r"'reader' is that of line \d+"),
        ('slug="plot"', 'slug="the plot"', "can't be a cell id"),
        ('slug="plot"', "slug=plot", "no valid metadata"),
        ("{{raw:assets/figures/09_boxes.svg}}", "{{raw:assets/figures/gone.svg}}", "no file assets/figures/gone.svg"),
        ("{{version}}", "{{verson}}", "no placeholder"),
        ("assets/cells/measure.py", "assets/cells/gone.py", "gone.py cannot be read"),
        ("assets/samples/demo.json", "assets/cells/measure.py", "is no JSON"),
        ('tags=["experiment"]\n', 'tags=["experiment"]\nx = 1\n', "`include` has a body"),
        ('# %% [markdown] slug="title"', 'x = 1\n# %% [markdown] slug="title"', "text before the first cell"),
    ],
)
def test_a_wrong_master_names_line_or_cell(tmp_path: Path, old: str, new: str, cause: str) -> None:
    master = make_course(tmp_path)
    edit(master, old, new)
    with pytest.raises(GraderError, match=cause) as error:
        read_master(master, settings_of(tmp_path))
    assert "09_demo.py" in error.value.subject and error.value.remedy


def test_a_header_inside_a_string_is_no_cell(tmp_path: Path) -> None:
    master = make_course(tmp_path)
    count = len(parse_master(master).cells)
    edit(master, "import json\n", 'import json\n\nTEXT = """\n# %% no cell\n"""\n')
    assert len(parse_master(master).cells) == count


def test_a_failing_cell_is_named_and_nothing_is_written(tree: Path) -> None:
    before = files(tree)
    (tree / "assets/cells/measure.py").write_text("1 / 0\n", "utf-8")
    with pytest.raises(GraderError, match="ZeroDivisionError") as error:
        build(root=tree)
    assert "experiment" in error.value.subject
    assert {**files(tree), "assets/cells/measure.py": b""} == {**before, "assets/cells/measure.py": b""}


def test_an_output_with_an_address_is_refused(tree: Path) -> None:
    """nbval compares outputs strictly; an address differs at every run."""
    (tree / "assets/cells/measure.py").write_text("object()\n", "utf-8")
    with pytest.raises(GraderError, match="memory address"):
        build(root=tree)


def test_cells_run_with_this_python_in_an_empty_folder_and_the_kernel_ends() -> None:
    code = "import os, sys\n(sys.executable, os.listdir(), os.getpid())"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    execute(notebook, "x")
    executable, listing, pid = ast.literal_eval(notebook.cells[0].outputs[0].data["text/plain"])
    assert (executable, listing) == (sys.executable, [])
    assert not psutil.pid_exists(pid)
    assert "execution" not in notebook.cells[0].metadata


def test_chapters_are_chosen_by_name_or_number(built: Path) -> None:
    for name in ("09_demo", "9", "09", "09_demo/"):
        assert [chapter.name for chapter in choose([name], built)] == [CHAPTER]
    with pytest.raises(GraderError, match="no such chapter.*09_demo"):
        choose(["11"], built)


def test_the_notice_stays_while_the_repository_is_a_placeholder(tmp_path: Path) -> None:
    assert CourseSettings("ORG", "kit", "main", "1", tmp_path).notice
    assert CourseSettings("lab", "kit", "main", "1", tmp_path).notice is None


def test_a_missing_setting_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1"\n[tool.course]\norg = "a"\n', "utf-8")
    with pytest.raises(GraderError, match="no `repo`"):
        course(tmp_path)


SERIES = """[[chapter]]
folder = "09_demo"
en = "Demo"
zh = "演示"
learn_en = "To scale"
learn_zh = "缩放"
minutes = 5
needs = []
[[chapter]]
folder = "10_later"
en = "Later"
zh = "以后"
learn_en = "More"
learn_zh = "更多"
minutes = 7
needs = ["09_demo"]
"""


def test_tables_of_chapters_are_filled_in_and_checked(tree: Path, no_run: None) -> None:
    """Links only where there is a notebook; what people wrote around the table stays."""
    readme = tree / "notebooks" / "README.md"
    readme.write_text(
        "# 课程\n\n<!-- chapters: made by the build from solutions/series.toml -->\n<!-- end of chapters -->\n尾\n"
    )
    (tree / "solutions" / "series.toml").write_text(SERIES, "utf-8")
    assert build(root=tree, check_only=True) == [readme]
    assert build(root=tree) == [readme] and build(root=tree) == []
    text = readme.read_text("utf-8")
    assert text.startswith("# 课程\n") and text.endswith("<!-- end of chapters -->\n尾\n")
    assert "| 9 | [演示](09_demo/09_demo.ipynb) | 缩放 | 5 | – | [![在 Colab 打开第 9 章](" in text
    assert "| 10 | 以后 | 更多 | 7 | 9 | 编写中 |" in text


def test_a_chapter_in_no_table_is_noticed(tree: Path) -> None:
    settings = settings_of(tree)
    assert unlisted(settings) is None
    series = tree / "solutions" / "series.toml"
    series.write_text(SERIES.replace(CHAPTER, "07_other"), "utf-8")
    assert f"notice: {CHAPTER}: not in solutions/series.toml" in unlisted(settings)
    series.write_text(SERIES, "utf-8")
    assert unlisted(settings) is None


def test_a_series_that_lacks_a_key_is_refused(tree: Path) -> None:
    (tree / "solutions" / "series.toml").write_text(SERIES.replace('zh = "以后"\n', ""), "utf-8")
    with pytest.raises(GraderError, match="chapter 2: `zh` is missing"):
        build(root=tree)


def test_the_course_itself_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    """What lies in the repository is what its masters give; the exit code is what CI reads."""
    assert chapters(), "no chapter has a master"
    code = run_build(argparse.Namespace(chapters=[], check=True))
    shown = capsys.readouterr().out
    assert code == 0, shown
    assert all(chapter.student.is_file() for chapter in chapters(ROOT))
