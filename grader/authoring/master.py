"""A chapter's master (jupytext ``py:percent``) read into a notebook; the format is in solutions/README.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat.notebooknode import NotebookNode

from grader.authoring.settings import CourseSettings, course
from grader.errors import GraderError

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
# Without a version, so that building with another Python changes nothing.
LANGUAGE_INFO = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}
SAMPLE_NAME = "RECORDED_SAMPLE"
# What only the master and the build need; the rest of a cell's metadata goes into the notebook.
BUILD_KEYS = frozenset({"slug", "include", "sample"})
# What jupytext adds while reading.
JUPYTEXT_KEYS = frozenset({"lines_to_next_cell", "lines_to_end_of_cell_marker", "cell_marker"})
CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
HEADER = re.compile(r"# %%(\s|$)")
PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_]+)\s*(?::([^{}]*))?\}\}")


@dataclass
class MasterCell:
    """One cell of a master.

    Attributes:
        line: 1-based line of its header.
        header: that line.
        body: the lines below it as they stand, without the blank lines at the end.
        blank: number of blank lines at the end.
        cell_id: the notebook's cell id, from ``slug`` or the ``grade_id``.
        cell_type: code, markdown or raw.
        source: the body as jupytext reads it, before includes, samples and placeholders.
        metadata: as the header gives it, with ``title``.
    """

    line: int
    header: str
    body: list[str]
    blank: int
    cell_id: str = ""
    cell_type: str = "code"
    source: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class Master:
    """A chapter's master: its path, the lines before the first cell, and the cells."""

    path: Path
    preamble: list[str]
    cells: list[MasterCell]

    @property
    def chapter(self) -> str:
        """The chapter's name, that of the file."""
        return self.path.stem

    def where(self, cell: MasterCell) -> str:
        """Subject of an error about a cell."""
        return f"{self.path.name}, line {cell.line}" + (f", cell {cell.cell_id}" if cell.cell_id else "")


def parse_master(path: Path) -> Master:
    """Read a master and give every cell its id.

    Raises:
        GraderError: unreadable file, text before the first cell, a header that is no valid metadata, a cell
            without or with a used id; each names the line.
    """
    import jupytext

    text = _read_text(path)
    preamble, cells = _split(text)
    notebook = jupytext.reads(text, fmt="py:percent")
    stray = [line for line in _without_yaml_header(preamble) if line.strip()]
    if stray or not cells:
        raise GraderError(path.name, "there is text before the first cell" if stray else "it has no cell",
                          "begin every cell with a `# %%` line")  # fmt: skip
    if len(notebook.cells) != len(cells):
        raise GraderError(path.name, "its cells can't be told apart", "look for a `# %%` line inside a string")
    master = Master(path, preamble, cells)
    for cell, parsed in zip(cells, notebook.cells, strict=True):
        cell.cell_type, cell.source, cell.metadata = (
            parsed.cell_type,
            parsed.source,
            {key: value for key, value in parsed.metadata.items() if key not in JUPYTEXT_KEYS},
        )
        _check_header(master, cell)
    _assign_ids(master)
    return master


def to_notebook(master: Master, settings: CourseSettings | None = None) -> NotebookNode:
    """The instructor's notebook without outputs: includes, samples and placeholders filled in.

    Args:
        settings: by default those of the tree that this package lies in.

    Raises:
        GraderError: a file named in the master does not exist, or a placeholder is unknown; names the cell.
    """
    settings = settings or course()
    cells = [_notebook_cell(master, cell, settings) for cell in master.cells]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata = nbformat.from_dict(
        {
            "course": {"chapter": master.chapter, "version": settings.version},
            "kernelspec": KERNELSPEC,
            "language_info": LANGUAGE_INFO,
        }
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def read_master(path: Path, settings: CourseSettings | None = None) -> NotebookNode:
    """``parse_master`` and ``to_notebook`` in one."""
    return to_notebook(parse_master(path), settings)


def write_canonical(notebook: NotebookNode) -> str:
    """The notebook as JSON text: the one form in which the build writes notebooks (that of nbconvert)."""
    text = nbformat.writes(notebook, version=4)
    return text if text.endswith("\n") else text + "\n"


def expand(text: str, chapter: str, settings: CourseSettings, where: str) -> str:
    """Replace the placeholders of a text cell.

    Raises:
        GraderError: an unknown placeholder, or a file that is not in the tree.
    """
    return PLACEHOLDER.sub(lambda match: _value(match, chapter, settings, where), text)


def expansions(text: str, chapter: str, settings: CourseSettings, where: str) -> Iterator[tuple[str, str]]:
    """Yield (placeholder, what it becomes) for every placeholder in the text."""
    for match in PLACEHOLDER.finditer(text):
        yield match.group(0), _value(match, chapter, settings, where)


def sample_line(master: Master, cell: MasterCell, settings: CourseSettings) -> str:
    """The line that holds the recorded sample of a cell with ``sample``."""
    path = settings.root / cell.metadata["sample"]
    try:
        content = json.loads(_read_text(path, master.where(cell)))
    except ValueError as error:
        raise GraderError(master.where(cell), f"sample {cell.metadata['sample']} is no JSON: {error}",
                          "record it again") from error  # fmt: skip
    compact = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    if "'''" in compact:
        raise GraderError(master.where(cell), "the sample holds ''' and can't be inlined", "change that text")
    return f"{SAMPLE_NAME} = json.loads(r'''{compact}''')"


def include_source(master: Master, cell: MasterCell, settings: CourseSettings) -> str:
    """The source of a cell with ``include``."""
    return _read_text(settings.root / cell.metadata["include"], master.where(cell)).rstrip("\n")


def format_header(cell_type: str, metadata: dict[str, Any]) -> str:
    """The ``# %%`` line of a cell; Chinese stays readable, keys keep their order."""
    parts = ["# %%"]
    if metadata.get("title"):
        parts.append(metadata["title"])
    if cell_type != "code":
        parts.append(f"[{cell_type}]")
    parts += [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in metadata.items() if key != "title"]
    return " ".join(parts)


def format_body(cell_type: str, source: str) -> list[str]:
    """The lines of a cell's body: text commented out, magics commented out."""
    import jupytext

    new = nbformat.v4.new_code_cell if cell_type == "code" else nbformat.v4.new_markdown_cell
    notebook = nbformat.v4.new_notebook(cells=[new(source)])
    notebook.metadata["jupytext"] = {"notebook_metadata_filter": "-all", "cell_metadata_filter": "-all"}
    lines = jupytext.writes(notebook, fmt="py:percent").rstrip("\n").split("\n")
    return lines[next(i for i, line in enumerate(lines) if HEADER.match(line)) + 1 :]


def _read_text(path: Path, subject: str | None = None) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise GraderError(subject or str(path), f"{path.name} is no UTF-8 text", "save it as UTF-8") from error
    except OSError as error:
        cause = f"{path} cannot be read ({error.strerror})"
        raise GraderError(subject or str(path), cause, "correct the path or add the file") from error


def _split(text: str) -> tuple[list[str], list[MasterCell]]:
    """Cut the text at its header lines, but not at those inside a multi-line string (as jupytext does)."""
    from jupytext.stringparser import StringParser

    preamble: list[str] = []
    cells: list[MasterCell] = []
    parser = StringParser("python")
    for number, line in enumerate(text.splitlines(), start=1):
        if not parser.is_quoted() and HEADER.match(line):
            cells.append(MasterCell(number, line, [], 0))
            parser = StringParser("python")
            continue
        parser.read_line(line)
        (cells[-1].body if cells else preamble).append(line)
    for cell in cells:
        while cell.body and not cell.body[-1].strip():
            cell.body.pop()
            cell.blank += 1
    return preamble, cells


def _without_yaml_header(preamble: list[str]) -> list[str]:
    marks = [index for index, line in enumerate(preamble) if line.strip() == "# ---"]
    return preamble[marks[1] + 1 :] if len(marks) > 1 else preamble


def _check_header(master: Master, cell: MasterCell) -> None:
    if "incorrectly_encoded_metadata" in cell.metadata or None in cell.metadata.values():
        remedy = 'write it as: # %% title key="text" tags=["a"] nbgrader={"grade": false, …}'
        raise GraderError(master.where(cell), "the header is no valid metadata", remedy)
    if "include" in cell.metadata and (cell.source.strip() or "sample" in cell.metadata):
        raise GraderError(master.where(cell), "a cell with `include` has a body of its own",
                          "leave it empty, or drop `include`")  # fmt: skip


def _assign_ids(master: Master) -> None:
    used: dict[str, MasterCell] = {}
    for cell in master.cells:
        nbgrader = cell.metadata.get("nbgrader")
        grade_id = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
        name = cell.metadata.get("slug") or grade_id
        if not name:
            raise GraderError(master.where(cell), "the cell has neither a slug nor a grade_id",
                              'add slug="…" to its header')  # fmt: skip
        if not isinstance(name, str) or not CELL_ID.fullmatch(name):
            raise GraderError(master.where(cell), f"{name!r} can't be a cell id",
                              "use 1 to 64 of the characters A-Z a-z 0-9 _ -")  # fmt: skip
        if name in used:
            raise GraderError(master.where(cell), f"the slug or grade_id {name!r} is that of line {used[name].line}",
                              "give every cell its own")  # fmt: skip
        used[name] = cell
        cell.cell_id = name


def _notebook_cell(master: Master, cell: MasterCell, settings: CourseSettings) -> NotebookNode:
    source = cell.source
    if "include" in cell.metadata:
        source = include_source(master, cell, settings)
    if "sample" in cell.metadata:
        source = "\n".join([*([source] if source.strip() else []), sample_line(master, cell, settings)])
    if cell.cell_type != "code":
        source = expand(source, master.chapter, settings, master.where(cell))
    metadata = {key: value for key, value in cell.metadata.items() if key not in BUILD_KEYS}
    new = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}.get(
        cell.cell_type, nbformat.v4.new_raw_cell
    )
    return new(source, id=cell.cell_id, metadata=nbformat.from_dict(metadata))


def _value(match: re.Match[str], chapter: str, settings: CourseSettings, where: str) -> str:
    name, argument = match.group(1), (match.group(2) or "").strip()
    student = f"notebooks/{chapter}/{chapter}.ipynb"
    if name in ("colab", "modelscope") and not argument:
        return getattr(settings, name)(student)
    if name == "version" and not argument:
        return settings.version
    if name in ("raw", "blob") and argument:
        if not exists_in_tree(argument, settings):
            raise GraderError(
                where, f"{match.group(0)}: there is no file {argument}", "correct the path or add the file"
            )
        return getattr(settings, name)(argument)
    target, _, text = argument.replace("\\|", "|").partition("|")
    if name == "chapter" and text.strip():
        target, text = target.strip(), text.strip()
        if not (settings.root / "solutions" / target / f"{target}.py").is_file():
            return text
        return f"[{text}]({settings.blob(f'notebooks/{target}/{target}.ipynb')})"
    raise GraderError(where, f"{match.group(0)} is no placeholder", "see the list in solutions/README.md")


def exists_in_tree(path: str, settings: CourseSettings) -> bool:
    """Whether the repository holds this file or folder, or the build makes it from a master."""
    if ".." in Path(path).parts:
        return False
    if (settings.root / path).exists():
        return True
    parts = Path(path).parts
    if len(parts) != 3 or parts[0] not in ("notebooks", "solutions") or not path.endswith(".ipynb"):
        return False
    return (settings.root / "solutions" / parts[1] / f"{Path(path).stem}.py").is_file()
