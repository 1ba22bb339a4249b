"""Which of the student's cells belongs to which cell of the instructor's notebook.

From the surest sign to the weakest: grade_id, id, the very same text, the names that a cell defines,
similarity. Later signs only place cells that the earlier ones left over.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from grader.model import Notebook
from grader.rebuild.code import code_in_text, is_blank, own_names, parse, parse_unindented, same_code, squeeze
from grader.rebuild.template import Slot

_SIMILAR = 0.6  # a student's edit of a given cell or a stub
_SIMILAR_TEST = 0.75  # tests resemble each other: ask for more
_MAX_COMPARED = 200  # cells that are compared by similarity, and
_MAX_TEXT = 4_000  # how many of their characters


@dataclass
class Piece:
    """One cell of the student's notebook. ``text`` is its code, found again where the cell was retyped."""

    index: int
    cell: dict[str, Any]
    text: str
    slot: int | None = None
    how: str = ""

    @property
    def is_code(self) -> bool:
        return self.cell["cell_type"] == "code"

    @property
    def nbgrader(self) -> dict[str, Any]:
        found = self.cell["metadata"].get("nbgrader")
        return found if isinstance(found, dict) else {}


def read_pieces(submitted: Notebook) -> tuple[list[Piece], list[str]]:
    """The student's cells, with those joined that a split tore in the middle of a statement."""
    pieces: list[Piece] = []
    notes: list[str] = []
    for index, cell in enumerate(submitted["cells"]):
        piece = Piece(index, cell, cell["source"])
        if pieces and _continues(pieces[-1], piece):
            pieces[-1].text = _join([pieces[-1].text, piece.text])
            notes.append(f"第 {index + 1} 个单元是上一单元被拆开的后半段，已拼回")
        else:
            pieces.append(piece)
    return pieces, notes


def _continues(before: Piece, piece: Piece) -> bool:
    """True where ``piece`` only makes sense as the rest of the cell before it."""
    if not (before.is_code and piece.is_code) or is_blank(piece.text) or is_blank(before.text):
        return False
    own, other = piece.nbgrader.get("grade_id"), before.nbgrader.get("grade_id")
    if own and own != other:
        return False
    if parse_unindented(piece.text) is not None or piece.text.lstrip().startswith("%%"):
        return False
    alone = parse(piece.text)
    if alone is not None and any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in alone.body):
        return False  # a whole cell that is indented by accident
    first_line = next(line for line in piece.text.split("\n") if line.strip())
    if not first_line[0].isspace() and parse(before.text) is not None:
        return False
    return parse_unindented(_join([before.text, piece.text])) is not None


def _join(texts: list[str]) -> str:
    """The texts below each other; single line ends, so that a torn statement fits together."""
    return "".join(text if text.endswith("\n") else text + "\n" for text in texts[:-1]) + texts[-1]


join_texts = _join


def match(slots: list[Slot], pieces: list[Piece]) -> None:
    """Set ``piece.slot`` and ``slot.taken`` by grade_id, id, text, and similarity for all but solution cells."""
    by_grade_id = {slot.grade_id: slot for slot in slots if slot.grade_id}
    for piece in pieces:
        slot = by_grade_id.get(piece.nbgrader.get("grade_id"))
        if slot is not None:
            take(slot, piece, "grade_id")
    _match_ids(slots, pieces)
    _match_texts(slots, pieces)
    match_similar([slot for slot in slots if slot.kind != "solution"], slots, pieces)


def take(slot: Slot, piece: Piece, how: str) -> None:
    """Note that ``piece`` belongs to ``slot``; a solution in a text cell gets its code back."""
    piece.slot, piece.how = slot.index, how
    slot.taken.append(piece.index)
    slot.taken.sort()
    if slot.is_code and not piece.is_code and squeeze(piece.text) != squeeze(slot.release):
        piece.text = code_in_text(piece.text) or piece.text


def is_attempt(slot: Slot, text: str) -> bool:
    """True where ``text`` holds more than the stub, blank space and comments."""
    if not slot.is_code:
        return bool(text.strip()) and squeeze(text) != squeeze(slot.release)
    return not is_blank(text) and not same_code(text, slot.release)


def _match_ids(slots: list[Slot], pieces: list[Piece]) -> None:
    by_id = {slot.cell["id"]: slot for slot in slots if slot.cell.get("id")}
    for piece in pieces:
        if piece.slot is not None:
            continue
        slot = by_id.get(piece.cell.get("id"))
        if slot is not None and not slot.taken and not _defines_other(slot, slots, piece):
            take(slot, piece, "id")


def _defines_other(slot: Slot, slots: list[Slot], piece: Piece) -> bool:
    """True where the piece answers another question and not this one."""
    names = own_names(piece.text) if piece.is_code else frozenset()
    if names & slot.names:
        return False
    return any(names & other.names for other in slots if other is not slot)


def _match_texts(slots: list[Slot], pieces: list[Piece]) -> None:
    by_text: dict[str, list[Slot]] = {}
    for slot in slots:
        for text in {squeeze(slot.release), squeeze(slot.full)} - {""}:
            by_text.setdefault(text, []).append(slot)
    for piece in pieces:
        if piece.slot is not None:
            continue
        found = by_text.get(squeeze(piece.text))
        if found:
            take(next((slot for slot in found if not slot.taken), found[0]), piece, "text")


def match_similar(wanted: list[Slot], slots: list[Slot], pieces: list[Piece]) -> None:
    """Give every code slot of ``wanted`` that has nothing yet the most similar of the left-over code cells."""
    open_slots = [slot for slot in wanted if slot.is_code and not slot.taken and not is_blank(slot.release)]
    free = [piece for piece in pieces if piece.slot is None and piece.is_code and not is_blank(piece.text)]
    pairs = []
    for slot in open_slots:
        for piece in free[:_MAX_COMPARED]:
            if _defines_other(slot, slots, piece):
                continue
            ratio = _similarity(slot.release, piece.text)
            if ratio >= (_SIMILAR_TEST if slot.kind == "test" else _SIMILAR):
                pairs.append((-ratio, slot.index, piece.index, slot, piece))
    for _, _, _, slot, piece in sorted(pairs, key=lambda pair: pair[:3]):
        if not slot.taken and piece.slot is None:
            take(slot, piece, "similarity")


def _similarity(first: str, second: str) -> float:
    """0 to 1; 0 as soon as a cheap bound shows that the texts are not similar."""
    matcher = SequenceMatcher(None, first[:_MAX_TEXT], second[:_MAX_TEXT], autojunk=False)
    if matcher.real_quick_ratio() < _SIMILAR or matcher.quick_ratio() < _SIMILAR:
        return 0.0
    return matcher.ratio()
