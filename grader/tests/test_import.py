"""Edits made in solutions/*.ipynb go into the master, and nothing else changes there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from grader.authoring.build import Chapter, build
from grader.authoring.importer import import_edits
from grader.authoring.master import format_header, parse_master, read_master
from grader.errors import GraderError
from grader.tests.demo_course import CHAPTER, edit, make_course, settings_of

Change = Callable[[nbformat.NotebookNode], None]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("course")
    make_course(root)
    settings_of(root)
    build(root=root)
    return root


@pytest.fixture
def tree(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "course"))


def cell(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    return next(c for c in notebook.cells if c.id == name)


def import_change(tree: Path, change: Change) -> str:
    """Edit the instructor's notebook as a person would, import it, and return the master's new text."""
    path = Chapter(CHAPTER, tree).instructor
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    nbformat.write(notebook, path)
    return import_edits(path, root=tree).read_text("utf-8")


def diff(tree: Path, built: Path) -> tuple[list[str], list[str]]:
    """(lines that went, lines that came) in the master, blank lines left out."""
    import difflib

    old, new = (Chapter(CHAPTER, root).master.read_text("utf-8").splitlines() for root in (built, tree))
    lines = [line for line in difflib.ndiff(old, new) if line[2:].strip()]
    return [x[2:] for x in lines if x.startswith("- ")], [x[2:] for x in lines if x.startswith("+ ")]


def test_without_edits_the_master_keeps_every_byte(tree: Path, built: Path) -> None:
    import_change(tree, lambda notebook: None)
    assert Chapter(CHAPTER, tree).master.read_bytes() == Chapter(CHAPTER, built).master.read_bytes()


def test_a_code_edit_changes_these_lines_only_and_builds(tree: Path, built: Path) -> None:
    def change(notebook) -> None:
        cell(notebook, "todo1").source = cell(notebook, "todo1").source.replace("value * 2", "2 * value")

    import_change(tree, change)
    assert diff(tree, built) == (
        ["    scaled_2 = [value * 2 for value in values]"],
        ["    scaled_2 = [2 * value for value in values]"],
    )
    written = build(root=tree)
    assert Chapter(CHAPTER, tree).instructor in written
    assert build(root=tree) == []


def test_placeholders_survive_an_edit_of_the_text_around_them(tree: Path, built: Path) -> None:
    def change(notebook) -> None:
        title = cell(notebook, "title")
        title.source = (
            title.source.replace(", version 2.3.4", ", release 2.3.4").replace("Next:", "Then:") + "\n\nA new line."
        )

    import_change(tree, change)
    assert diff(tree, built) == (
        [
            "# [Colab]({{colab}}) and [ModelScope]({{modelscope}}), version {{version}}.",
            "# Next: {{chapter:10_later|第 10 章}}. Back to [the title](#demo--演示).",
        ],
        [
            "# [Colab]({{colab}}) and [ModelScope]({{modelscope}}), release {{version}}.",
            "# Then: {{chapter:10_later|第 10 章}}. Back to [the title](#demo--演示).",
            "#",
            "# A new line.",
        ],
    )


def test_an_edited_text_reads_the_same_when_built_again(tree: Path) -> None:
    def change(notebook) -> None:
        cell(notebook, "title").source = cell(notebook, "title").source.replace("Three boxes", "Four boxes")

    import_change(tree, change)
    edited = nbformat.read(Chapter(CHAPTER, tree).instructor, as_version=4)
    again = read_master(Chapter(CHAPTER, tree).master, settings_of(tree))
    assert [c.source for c in again.cells] == [c.source for c in edited.cells]


def test_nbgrader_metadata_makes_the_round_trip(tree: Path, built: Path) -> None:
    """Points set in nbgrader's Create Assignment panel."""

    def change(notebook) -> None:
        cell(notebook, "todo1_values").metadata.nbgrader.points = 35
        cell(notebook, "todo2_values").metadata.nbgrader.points = 25
        cell(notebook, "todo1").metadata.title = "加倍"

    import_change(tree, change)
    gone, came = diff(tree, built)
    assert len(gone) == len(came) == 3
    assert came[0].startswith('# %% 加倍 todo=1 stub="请先完成 TODO 1：乘以 2" nbgrader={')
    assert '"points": 35' in came[1] and "结果乘以 2 todo=1 step=" in came[1]
    source = read_master(Chapter(CHAPTER, tree).master, settings_of(tree))
    assert cell(source, "todo2_values").metadata.nbgrader.points == 25


def test_tags_are_added_and_removed(tree: Path) -> None:
    def change(notebook) -> None:
        cell(notebook, "plot").metadata.tags = ["plot", "nbval-ignore-output"]
        del cell(notebook, "settings").metadata["tags"]

    master = import_change(tree, change)
    assert '# %% 画图 slug="plot" tags=["plot", "nbval-ignore-output"]' in master
    assert '# %% 设置 slug="settings"\n' in master


def test_new_removed_and_moved_cells(tree: Path) -> None:
    def change(notebook) -> None:
        new = nbformat.v4.new_markdown_cell("A **new** text", id="fresh-1", metadata={"tags": ["summary"]})
        notebook.cells.insert(1, new)
        notebook.cells = [c for c in notebook.cells if c.id != "explain-3"]
        notebook.cells.append(notebook.cells.pop(2))

    import_change(tree, change)
    master = parse_master(Chapter(CHAPTER, tree).master)
    names = [c.cell_id for c in master.cells]
    assert names[:3] == ["title", "fresh-1", "todo1"] and names[-1] == "settings" and "explain-3" not in names
    assert (master.cells[1].header, master.cells[1].body) == (
        '# %% [markdown] slug="fresh-1" tags=["summary"]',
        ["# A **new** text"],
    )


def test_the_sample_line_stays_out_of_the_master(tree: Path, built: Path) -> None:
    def change(notebook) -> None:
        reader = cell(notebook, "reader")
        reader.source = reader.source.replace("import json", "import json  # to read")

    import_change(tree, change)
    assert diff(tree, built) == (["import json"], ["import json  # to read"])


def test_a_magic_stays_a_comment_in_the_master(tree: Path) -> None:
    def change(notebook) -> None:
        cell(notebook, "settings").source += "\n%matplotlib inline"

    assert "\n# %matplotlib inline\n" in import_change(tree, change)


def _edit_include(notebook) -> None:
    cell(notebook, "experiment").source += "\nprint(1)"


def _edit_sample(notebook) -> None:
    cell(notebook, "reader").source = cell(notebook, "reader").source.replace("1.5", "1.6")


def _attach(notebook) -> None:
    cell(notebook, "title")["attachments"] = {"x.png": {"image/png": "aGk="}}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_edit_include, "assets/cells/measure.py"),
        (_edit_sample, "assets/samples/demo.json"),
        (_attach, "assets/figures"),
    ],
)
def test_what_the_master_cannot_take_is_refused_and_names_the_file(tree: Path, change: Change, named: str) -> None:
    before = Chapter(CHAPTER, tree).master.read_bytes()
    with pytest.raises(GraderError) as error:
        import_change(tree, change)
    assert named in error.value.remedy
    assert Chapter(CHAPTER, tree).master.read_bytes() == before


def test_the_masters_own_later_edits_are_kept(tree: Path) -> None:
    master = Chapter(CHAPTER, tree).master
    edit(
        master,
        'Multiply every value."""\n    ### BEGIN SOLUTION\n    scaled_3',
        'Treble."""\n    ### BEGIN SOLUTION\n    scaled_3',
    )
    edit(master, '# %% 设置 slug="settings"', '# %% [markdown] slug="later"\n# Later.\n\n# %% 设置 slug="settings"')

    def change(notebook) -> None:
        cell(notebook, "todo1").source = cell(notebook, "todo1").source.replace("value * 2", "2 * value")

    text = import_change(tree, change)
    assert '"""Treble."""' in text and "[2 * value for" in text
    assert [c.cell_id for c in parse_master(master).cells][:3] == ["title", "later", "settings"]


def test_a_cell_edited_on_both_sides_is_a_conflict(tree: Path) -> None:
    master = Chapter(CHAPTER, tree).master
    edit(
        master,
        "for value in values]\n    ### END SOLUTION\n    return scaled_2",
        "for value in list(values)]\n    ### END SOLUTION\n    return scaled_2",
    )
    before = master.read_bytes()

    def change(notebook) -> None:
        cell(notebook, "todo1").source = cell(notebook, "todo1").source.replace("value * 2", "2 * value")

    with pytest.raises(GraderError, match="cell todo1: it was edited in the notebook and in the master"):
        import_change(tree, change)
    assert master.read_bytes() == before


def test_only_a_built_chapter_can_be_imported(tree: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "other.ipynb", Chapter(CHAPTER, tree).student):
        with pytest.raises(GraderError, match="no chapter of this course"):
            import_edits(path, root=tree)


@pytest.mark.parametrize("root", [None, Path(__file__).resolve().parents[2]])
def test_headers_are_written_as_they_are_read(tree: Path, root: Path | None) -> None:
    """For the demo and every chapter: an import that touches a header changes only what was edited."""
    masters = sorted((root or tree).glob("solutions/*/*.py"))
    assert masters
    for path in masters:
        for c in parse_master(path).cells:
            assert format_header(c.cell_type, c.metadata) == c.header, f"{path.name}, line {c.line}"
