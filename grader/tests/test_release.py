"""The release step: nbgrader's own result, nothing of the instructor's left, sources never overwritten."""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import ClearHiddenTests, ClearSolutions, ComputeChecksums
from traitlets.config import Config

from grader.authoring.master import read_master, write_canonical
from grader.authoring.release import (
    ClearSolutionsPerTodo,
    RemoveInstructorCells,
    load_source,
    release,
    release_notebook,
    release_preprocessors,
)
from grader.errors import GraderError
from grader.tests.demo_course import make_course, settings_of

PS1 = Path(__file__).parent / "cases" / "assignment" / "ps1" / "ps1.ipynb"


def stock_release(root: Path, source: str, preprocessors: list | None) -> str:
    """Run nbgrader's own generate_assignment on one notebook, with its gradebook."""
    (root / "source" / "ps1").mkdir(parents=True)
    (root / "source" / "ps1" / "ps1.ipynb").write_text(source, "utf-8")
    config = Config()
    config.CourseDirectory.root = str(root)
    config.CourseDirectory.assignment_id = "ps1"
    config.CourseDirectory.db_url = f"sqlite:///{root}/gradebook.db"
    if preprocessors:
        config.GenerateAssignment.preprocessors = preprocessors
    GenerateAssignment(coursedir=CourseDirectory(config=config), config=config).start()
    return (root / "release" / "ps1" / "ps1.ipynb").read_text("utf-8")


@pytest.fixture(autouse=True)
def nbgrader_finds_alembic(monkeypatch: pytest.MonkeyPatch) -> None:
    """nbgrader calls `alembic` by its bare name when it makes a gradebook."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def test_same_bytes_as_stock_nbgrader(tmp_path: Path) -> None:
    """Without stubs and instructor-only cells, ours is exactly what unconfigured nbgrader makes."""
    ours = write_canonical(release_notebook(load_source(PS1), "ps1"))
    assert ours == stock_release(tmp_path, PS1.read_text("utf-8"), None)


def test_same_bytes_as_nbgrader_with_our_preprocessors(tmp_path: Path) -> None:
    """A chapter, through nbgrader's application as formgrader runs it, with our configuration."""
    source = read_master(make_course(tmp_path / "course"), settings_of(tmp_path / "course"))
    theirs = stock_release(tmp_path / "nbgrader", write_canonical(source), release_preprocessors())
    assert write_canonical(release_notebook(source, "ps1")) == theirs


def test_only_one_entry_of_nbgraders_list_is_replaced() -> None:
    """A list written by hand that omits ClearHiddenTests leaks every hidden test."""
    default = GenerateAssignment.class_traits()["preprocessors"].default()
    ours = release_preprocessors()
    assert ours[0] is RemoveInstructorCells
    assert [ClearSolutions if entry is ClearSolutionsPerTodo else entry for entry in ours[1:-1]] == default
    assert ClearHiddenTests in ours
    assert ours.index(ClearHiddenTests) < max(i for i, entry in enumerate(ours) if entry is ComputeChecksums)


def test_releases_are_told_apart_by_their_cells(tmp_path: Path) -> None:
    """A changed test is another release; a changed solution or hidden test is not, for students can't see it."""
    source = read_master(make_course(tmp_path / "course"), settings_of(tmp_path / "course"))

    def stamp(old: str, new: str) -> str:
        changed = copy.deepcopy(source)
        for cell in changed.cells:
            cell.source = cell.source.replace(old, new)
        return release_notebook(changed, "demo").metadata.course.release

    assert stamp("value * 2", "2 * value") == stamp("", "") != stamp("assert", "assert  ")


def test_released_twice_gives_the_same_bytes_and_leaves_the_source_alone(tmp_path: Path) -> None:
    source = PS1.read_bytes()
    first = release(PS1, tmp_path / "a").read_bytes()
    assert release(PS1, tmp_path / "b").read_bytes() == first
    assert PS1.read_bytes() == source


def test_the_release_holds_the_notebook_only(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    for name, data in {"ps1.ipynb": PS1.read_bytes(), "ps1.py": b"answers", "key.csv": b"1"}.items():
        (folder / name).write_bytes(data)
    release(folder / "ps1.ipynb", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["ps1.ipynb"]


def test_a_release_has_no_solution_hidden_test_or_output(tmp_path: Path) -> None:
    notebook = load_source(PS1)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = 3
            cell.outputs = [nbformat.v4.new_output("stream", text="SECRET_CANARY_HIDDEN_TEST")]
    text = write_canonical(release_notebook(notebook, "ps1"))
    for secret in ("SECRET_CANARY_HIDDEN_TEST", "isclose", "x if x > 0", "assertEqual", "BEGIN", "END HIDDEN"):
        assert secret not in text
    assert "assert relu_sum([1, -2, 3]) == 4" in text
    assert all(cell.outputs == [] and cell.execution_count is None
               for cell in nbformat.reads(text, 4).cells if cell.cell_type == "code")  # fmt: skip


def test_a_cell_with_a_stub_raises_its_own_message_others_the_stock_one() -> None:
    notebook = load_source(PS1)
    next(c for c in notebook.cells if c.id == "c-q2").metadata["stub"] = 'it\'s "TODO 2"'
    cells = {c.id: c for c in release_notebook(notebook, "ps1").cells}
    assert cells["c-q1"].source.endswith("    # YOUR CODE HERE\n    raise NotImplementedError()\n")
    namespace: dict = {}
    exec(cells["c-q2"].source, namespace)
    with pytest.raises(NotImplementedError, match='^it\'s "TODO 2"$'):
        namespace["mean_sq"]([])
    assert "stub" not in cells["c-q2"].metadata


def test_instructor_only_cells_are_removed() -> None:
    notebook = load_source(PS1)
    notebook.cells[0].metadata["tags"] = ["x", "instructor-only"]
    released = release_notebook(notebook, "ps1")
    assert [c.id for c in released.cells] == [c.id for c in notebook.cells[1:]]


def test_checksums_are_those_of_the_released_cells() -> None:
    """nbgrader tells an untouched answer by the checksum: it must be of the cell without its solution."""
    from nbgrader.utils import compute_checksum

    for cell in release_notebook(load_source(PS1), "ps1").cells:
        if "nbgrader" in cell.metadata:
            assert cell.metadata.nbgrader.checksum == compute_checksum(cell)


def test_a_master_is_a_source_too(tmp_path: Path) -> None:
    master = Path(__file__).resolve().parents[2] / "solutions" / "04_execution_dispatch" / "04_execution_dispatch.py"
    if not master.exists():
        pytest.fail("chapter 4 has no master")
    notebook = load_source(master)
    assert notebook.metadata.course.chapter == "04_execution_dispatch"


def test_a_different_notebook_is_replaced_only_with_force(tmp_path: Path) -> None:
    target = tmp_path / "ps1.ipynb"
    release(PS1, tmp_path)
    released = target.read_bytes()
    release(PS1, tmp_path)  # the same again: nothing would be lost
    target.write_bytes(b"{}")
    with pytest.raises(GraderError, match="--force"):
        release(PS1, tmp_path)
    assert target.read_bytes() == b"{}"
    release(PS1, tmp_path, force=True)
    assert target.read_bytes() == released


def test_the_source_is_never_overwritten(tmp_path: Path) -> None:
    source = tmp_path / "ps1.ipynb"
    source.write_bytes(PS1.read_bytes())
    with pytest.raises(GraderError, match="its own source"):
        release(source, tmp_path, force=True)
    assert source.read_bytes() == PS1.read_bytes()


@pytest.mark.parametrize(
    ("content", "cause"),
    [(None, "cannot be read"), (b"<html>", "no JSON"), (b"[]", "without nbformat"), (b"\xff\xfe{}", "no JSON"),
     (b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "no valid notebook")],
)  # fmt: skip
def test_what_is_no_notebook_gets_one_clear_line(tmp_path: Path, content: bytes | None, cause: str) -> None:
    source = tmp_path / "x.ipynb"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(GraderError, match=cause) as error:
        release(source, tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_an_out_folder_that_is_a_file_gets_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("", "utf-8")
    with pytest.raises(GraderError, match="cannot be written"):
        release(PS1, tmp_path / "out")


@pytest.mark.parametrize("ids", ["missing", "duplicate"])
def test_cells_without_their_own_id_get_the_same_one_each_time(tmp_path: Path, ids: str) -> None:
    notebook = json.loads(PS1.read_text("utf-8"))
    for cell in notebook["cells"]:
        if ids == "missing":
            del cell["id"]
        else:
            cell["id"] = "same"
    source = tmp_path / "ps1.ipynb"
    source.write_text(json.dumps(notebook), "utf-8")
    first = release(source, tmp_path / "a").read_bytes()
    assert release(source, tmp_path / "b").read_bytes() == first
    assert len({cell["id"] for cell in json.loads(first)["cells"]}) == len(notebook["cells"])


def test_nbgraders_own_refusal_names_the_notebook() -> None:
    notebook = load_source(PS1)
    notebook.cells[1].metadata.nbgrader["schema_version"] = 2
    with pytest.raises(GraderError, match="ps1.ipynb.*schema version"):
        release_notebook(notebook, "ps1")
