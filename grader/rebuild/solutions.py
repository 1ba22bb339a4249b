"""The student's code for each solution cell: chosen among copies, joined from parts, found where it was put."""

from __future__ import annotations

from dataclasses import dataclass, field

from grader.rebuild.code import code_in_text, extract, is_blank, own_names, parse, same_code, tokens, without_late_stub
from grader.rebuild.matching import Piece, is_attempt, join_texts, match_similar, take
from grader.rebuild.template import Slot


@dataclass
class Answers:
    """``text`` by slot index; ``last`` is the place in the student's notebook where that code ends."""

    text: dict[int, str] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)  # pieces whose text went into a solution cell as it is
    notes: list[str] = field(default_factory=list)

    def add(self, slot: Slot, text: str, pieces: list[Piece], *, whole: bool) -> None:
        cleaned = without_late_stub(text, slot.release) if slot.is_code else text
        if cleaned != text:
            self.notes.append(f"“{slot.label}”的答案下面又有一份未填写的原题，已忽略后者")
            text = cleaned
        self.text[slot.index] = text
        self.last[slot.index] = max(piece.index for piece in pieces)
        if whole:
            self.used.update(piece.index for piece in pieces)


def answer(slots: list[Slot], pieces: list[Piece]) -> Answers:
    """Find the student's code for every solution cell; a slot without any is not in the result."""
    answers = Answers()
    solutions = [slot for slot in slots if slot.kind == "solution"]
    by_index = {piece.index: piece for piece in pieces}
    for slot in solutions:
        _from_own(slot, [by_index[index] for index in slot.taken], answers)
    for search in (_from_free_cells, _from_shared_cells):
        for slot in solutions:
            if slot.index not in answers.text and slot.names:
                search(slot, slots, pieces, answers)
    missing = [slot for slot in solutions if slot.index not in answers.text]
    match_similar(missing, slots, pieces)
    for slot in missing:
        _from_own(slot, [by_index[index] for index in slot.taken], answers)
    return answers


def _from_own(slot: Slot, own: list[Piece], answers: Answers) -> None:
    """The cells that carry the slot's mark: one, several copies, or the parts of a split."""
    attempts = [piece for piece in own if is_attempt(slot, piece.text)]
    if not attempts:
        return
    text, used = _combine(slot, _without_repeats(attempts))
    answers.add(slot, text, used, whole=True)
    codes = {tokens(piece.text) for piece in used}
    answers.used.update(piece.index for piece in own if tokens(piece.text) in codes)
    if len(used) > 1:
        answers.notes.append(f"“{slot.label}”的代码分在 {len(used)} 个单元里，已按顺序合并")
    elif len(own) > 1:
        answers.notes.append(f"“{slot.label}”有 {len(own)} 个同名单元，采用写了代码的最后一个")
    if slot.is_code and any(not piece.is_code for piece in used):
        answers.notes.append(f"“{slot.label}”的单元类型被改成了文本，已改回代码")
    if any(piece.how == "similarity" for piece in used):
        answers.notes.append(f"“{slot.label}”的单元丢了标记，已按内容相似认出")


def _without_repeats(pieces: list[Piece]) -> list[Piece]:
    """Of pieces with the same code, the last."""
    kept: dict[tuple[str, ...], Piece] = {}
    for piece in pieces:
        code = tokens(piece.text)
        kept.pop(code, None)
        kept[code] = piece
    return list(kept.values())


def _combine(slot: Slot, pieces: list[Piece]) -> tuple[str, list[Piece]]:
    """One text out of several attempts, with the meaning that running them in order has."""
    if len(pieces) == 1:
        return pieces[0].text, pieces
    if slot.is_code and all(parse(piece.text) is not None for piece in pieces):
        pieces = _last_definitions(slot, pieces)
    elif slot.is_code and parse(join_texts([piece.text for piece in pieces])) is None:
        sound = [piece for piece in pieces if parse(piece.text) is not None and own_names(piece.text) & slot.names]
        pieces = _last_definitions(slot, sound) if sound else pieces
    return join_texts([piece.text for piece in pieces]), pieces


def _last_definitions(slot: Slot, pieces: list[Piece]) -> list[Piece]:
    """For each name of the slot the last piece that defines it; all pieces if none defines any."""
    winners = {}
    for piece in pieces:
        for name in own_names(piece.text) & slot.names:
            winners[name] = piece.index
    return [piece for piece in pieces if piece.index in winners.values()] or pieces


def _from_free_cells(slot: Slot, slots: list[Slot], pieces: list[Piece], answers: Answers) -> None:
    """Code cells that belong to no question yet: the student's own, or a left-over copy of another slot."""
    found = [piece for piece in pieces if _is_free(piece, slots, answers) and _answers(slot, piece.text)]
    if not found:
        return
    text, used = _combine(slot, _without_repeats(found))
    lost_mark = not slot.taken
    for piece in used:
        if piece.slot is None:
            take(slot, piece, "names")
    answers.add(slot, text, used, whole=True)
    if lost_mark:
        answers.notes.append(f"“{slot.label}”的单元丢了标记，已按定义的名字认出")
    else:
        answers.notes.append(f"“{slot.label}”的答案写在另一个单元里（第 {used[-1].index + 1} 个），已归到该题")


def _is_free(piece: Piece, slots: list[Slot], answers: Answers) -> bool:
    if not piece.is_code or piece.index in answers.used:
        return False
    return piece.slot is None or slots[piece.slot].kind == "solution"


def _answers(slot: Slot, text: str) -> bool:
    """True where ``text`` defines a name of the slot with more than the stub."""
    if not own_names(text) & slot.names:
        return False
    return _more_than_stub(slot, extract(text, slot.names))


def _more_than_stub(slot: Slot, found: str | None) -> bool:
    if found is None or not is_attempt(slot, found):
        return False
    stub = extract(slot.release, slot.names)
    return stub is None or not same_code(_without_imports(found), _without_imports(stub))


def _without_imports(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(line for line in lines if not line.startswith(("import ", "from ")))


def _from_shared_cells(slot: Slot, slots: list[Slot], pieces: list[Piece], answers: Answers) -> None:
    """Cells that are there for something else: another question, a text, a test, a given cell."""
    for places, whole in ((_other_code, False), (_texts, True)):
        for piece in reversed(pieces):
            text = places(piece, slots)
            if text is None or not own_names(text) & slot.names:
                continue
            found = text if whole else extract(text, slot.names)
            if found and _more_than_stub(slot, extract(found, slot.names)):
                answers.add(slot, found, [piece], whole=False)
                where = "文本单元" if whole else "单元"
                answers.notes.append(f"“{slot.label}”的答案写在第 {piece.index + 1} 个{where}里，已归到该题")
                return


def _other_code(piece: Piece, slots: list[Slot]) -> str | None:
    """The student's text of a code cell that is not simply the instructor's."""
    if not piece.is_code or is_blank(piece.text):
        return None
    if piece.slot is not None and same_code(piece.text, slots[piece.slot].full):
        return None
    return piece.text


def _texts(piece: Piece, slots: list[Slot]) -> str | None:
    """Code in a text cell of the student's own, or in one whose kind was changed."""
    if piece.is_code or (piece.slot is not None and slots[piece.slot].kind == "text" and piece.how == "text"):
        return None
    return code_in_text(piece.text)
