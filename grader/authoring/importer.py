"""Taking edits that were made in solutions/*.ipynb (JupyterLab) back into the master.

A three-way merge by cell: the record of the last build says which cells the notebook changed and which the master
changed since. Cells that only one side changed are taken from it; both sides is a conflict. Within a text cell the
placeholders of unedited lines stay as the master has them.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from pathlib import Path

from grader.authoring.build import EDITED_KEYS, Chapter, cell_record
from grader.authoring.master import (
    CELL_ID,
    SAMPLE_NAME,
    Master,
    MasterCell,
    expand,
    expansions,
    format_body,
    format_header,
    parse_master,
    sample_line,
    to_notebook,
)
from grader.authoring.release import load_source
from grader.authoring.settings import ROOT, CourseSettings, course
from grader.errors import GraderError
from grader.files import write_atomic


def import_edits(notebook: Path, *, root: Path = ROOT) -> Path:
    """Write the edits of a hand-edited instructor's edition into its master.

    Args:
        notebook: ``solutions/NN_name/NN_name.ipynb``.

    Returns:
        the master.

    Raises:
        GraderError: the file is no built chapter, a cell was changed on both sides, or an edit can't be taken over
            (an included cell, an attachment); nothing is written then.
    """
    notebook = Path(notebook)
    chapter = Chapter(notebook.stem, root)
    if not chapter.master.is_file() or notebook.resolve() != chapter.instructor.resolve():
        raise GraderError(str(notebook), "is no chapter of this course", "give solutions/NN_name/NN_name.ipynb")
    edited = load_source(notebook)
    record = edited.metadata.get("course", {}).get("build", {}).get("cells")
    if not isinstance(record, dict):
        raise GraderError(str(notebook), "it holds no record of a build", "edit a notebook that the build has written")
    merge = _Merge(parse_master(chapter.master), record, course(root))
    text = merge.text(edited.cells)
    if text != chapter.master.read_text("utf-8"):
        write_atomic(chapter.master, text)
    return chapter.master


class _Merge:
    """One import: the master, the build's record of each cell, the settings."""

    def __init__(self, master: Master, record: dict[str, str], settings: CourseSettings) -> None:
        self.master = master
        self.record = record
        self.settings = settings
        self.cells = {cell.cell_id: cell for cell in master.cells}
        self.current = {cell.id: cell for cell in to_notebook(master, settings).cells}

    def text(self, edited: list[dict]) -> str:
        """The master's new text."""
        blocks = {cell["id"]: self._block(cell) for cell in edited if self._is_kept(cell)}
        blocks |= self._new_in_master(set(blocks))
        order = self._order([cell["id"] for cell in edited if cell["id"] in blocks], set(blocks))
        lines = list(self.master.preamble)
        for number, name in enumerate(order):
            header, body, blank = blocks[name]
            last = number == len(order) - 1
            lines += [header, *body, *[""] * (0 if last else max(1, blank))]
        return "\n".join(lines) + "\n"

    def _is_kept(self, cell: dict) -> bool:
        """A cell that the master has dropped since, and the notebook left as it was, is gone."""
        name = cell["id"]
        if name in self.cells or name not in self.record:
            return True
        if cell_record(cell) == self.record[name]:
            return False
        raise self._conflict(name, "it was edited in the notebook and removed from the master")

    def _new_in_master(self, have: set[str]) -> dict[str, tuple[str, list[str], int]]:
        """Cells of the master that the notebook doesn't hold: new since the build, or removed by hand."""
        blocks = {}
        for name, cell in self.cells.items():
            if name in have:
                continue
            if name not in self.record:
                blocks[name] = (cell.header, cell.body, cell.blank)
            elif cell_record(self.current[name]) != self.record[name]:
                raise self._conflict(name, "it was removed from the notebook and edited in the master")
        return blocks

    def _order(self, edited: list[str], names: set[str]) -> list[str]:
        """The notebook's order; cells that only the master holds stay behind their neighbour."""
        order = list(edited)
        before: str | None = None
        for name in self.cells:
            if name in names and name not in order:
                order.insert(order.index(before) + 1 if before in order else 0, name)
            before = name if name in names else before
        return order

    def _block(self, cell: dict) -> tuple[str, list[str], int]:
        name = cell["id"]
        if cell.get("attachments"):
            raise GraderError(f"{self.master.path.name}, cell {name}", "the cell has an attachment, which the master "
                              "can't hold", "save the image in assets/figures and write {{raw:…}}")  # fmt: skip
        if name not in self.cells:
            return self._new_cell(cell)
        old = self.cells[name]
        now = cell_record(cell)
        in_master = cell_record(self.current[name])
        if now in (self.record.get(name), in_master):
            return old.header, old.body, old.blank
        if in_master != self.record.get(name):
            raise self._conflict(name, "it was edited in the notebook and in the master")
        return self._header(old, cell), self._body(old, cell), old.blank

    def _new_cell(self, cell: dict) -> tuple[str, list[str], int]:
        if not CELL_ID.fullmatch(cell["id"]):
            raise GraderError(f"cell {cell['id']}", "the id can't be a slug", "use A-Z a-z 0-9 _ -, at most 64")
        metadata = {key: cell["metadata"][key] for key in ("title", *EDITED_KEYS) if key in cell["metadata"]}
        if metadata.get("nbgrader", {}).get("grade_id") != cell["id"]:
            metadata = {"slug": cell["id"], **metadata}
        return format_header(cell["cell_type"], metadata), format_body(cell["cell_type"], cell["source"]), 1

    def _header(self, old: MasterCell, cell: dict) -> str:
        before = {key: old.metadata[key] for key in EDITED_KEYS if key in old.metadata}
        after = {key: cell["metadata"][key] for key in EDITED_KEYS if key in cell["metadata"]}
        if before == after and old.cell_type == cell["cell_type"]:
            return old.header
        kept = {key: after.get(key, value) for key, value in old.metadata.items() if key not in before or key in after}
        metadata = kept | {key: value for key, value in after.items() if key not in kept}
        if not metadata.get("slug") and metadata.get("nbgrader", {}).get("grade_id") != old.cell_id:
            metadata = {"slug": old.cell_id, **metadata}
        return format_header(cell["cell_type"], metadata)

    def _body(self, old: MasterCell, cell: dict) -> list[str]:
        source = cell["source"]
        if source == self.current[old.cell_id].source and old.cell_type == cell["cell_type"]:
            return old.body
        where = self.master.where(old)
        if "include" in old.metadata:
            path = old.metadata["include"]
            raise GraderError(where, f"the cell is included from {path}", f"make the edit in {path} and build again")
        if "sample" in old.metadata:
            source = self._without_sample(old, source, where)
        if cell["cell_type"] != "code":
            source = self._with_placeholders(old, source, where)
        return format_body(cell["cell_type"], source)

    def _without_sample(self, old: MasterCell, source: str, where: str) -> str:
        own, _, last = source.rpartition("\n")
        if last != sample_line(self.master, old, self.settings) or f"{SAMPLE_NAME} =" in own:
            path = old.metadata["sample"]
            raise GraderError(where, f"the line {SAMPLE_NAME} comes from {path}",
                              f"leave it as the last line, and make the edit in {path}")  # fmt: skip
        return own

    def _with_placeholders(self, old: MasterCell, source: str, where: str) -> str:
        """The edited text with the master's placeholders in the lines that did not change, and where an address that a
        placeholder gave is still in a changed line."""
        chapter = self.master.chapter
        raw = old.source.split("\n")
        shown = [expand(line, chapter, self.settings, where) for line in raw]
        back = sorted(expansions(old.source, chapter, self.settings, where), key=lambda pair: -len(pair[1]))
        lines: list[str] = []
        edited = source.split("\n")
        for kind, start, end, new_start, new_end in SequenceMatcher(None, shown, edited, autojunk=False).get_opcodes():
            if kind == "equal":
                lines += raw[start:end]
                continue
            for line in edited[new_start:new_end]:
                for placeholder, text in back:
                    line = line.replace(text, placeholder)
                lines.append(line)
        return "\n".join(lines)

    def _conflict(self, name: str, cause: str) -> GraderError:
        return GraderError(f"{self.master.path.name}, cell {name}", cause + " since the last build",
                           "decide which holds: undo the edit on one side, then import again")  # fmt: skip
