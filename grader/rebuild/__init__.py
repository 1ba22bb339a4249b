"""Rebuild: the student's code in the instructor's copy.

The result holds the instructor's tests and locked cells, the student's solutions, and never a
reference solution. Each repair is noted; changed tests and points are flagged.
"""

from __future__ import annotations

import copy
from typing import Any

from grader.model import Flag, Notebook, Rebuilt
from grader.rebuild.code import defined_names, eager_names, is_blank, parse, same_code, squeeze, used_names
from grader.rebuild.matching import Piece, is_attempt, match, read_pieces
from grader.rebuild.solutions import Answers, answer
from grader.rebuild.template import FROM_STUDENT, Slot, build_slots

__all__ = ["rebuild"]

_MAX_NOTES = 30


def rebuild(source: Notebook, release: Notebook, submitted: Notebook) -> Rebuilt:
    """Put the student's code into the instructor's notebook.

    Args:
        source: the instructor's copy, with hidden tests and solutions.
        release: the student's edition that was made from it.
        submitted: what the student handed in, as ``decode_notebook`` returns it.
    """
    slots = build_slots(source, release)
    pieces, notes = read_pieces(submitted)
    match(slots, pieces)
    answers = answer(slots, pieces)
    notes += answers.notes
    texts = _given_texts(slots, pieces, answers, notes)
    texts.update(answers.text)
    flags = _flags(slots, pieces)
    if flags and _other_release(release, submitted):
        flags = _summed(flags)
        notes.append("提交的文件自称来自另一版发布：测试和分值一律以当前的教师版本为准")
    notes += _damage_notes(slots, pieces)
    extras = _extras(slots, pieces, answers)
    anchors = _anchors(slots, pieces, extras, answers)
    cells = _assemble(slots, texts, extras, anchors)
    _keep_images(slots, pieces, cells)
    attempted = {
        slot.grade_id: slot.index in answers.text for slot in slots if slot.kind == "solution" and slot.grade_id
    }
    notebook = {
        "cells": cells,
        "metadata": copy.deepcopy({key: source["metadata"][key] for key in _KEPT if key in source["metadata"]}),
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return Rebuilt(notebook, attempted, _shorten(notes), tuple(flags))


def _other_release(release: Notebook, submitted: Notebook) -> bool:
    """Whether the file says that it was made from another release than ours; the student can write there anything."""
    course = submitted.get("metadata", {}).get("course")
    stamp = course.get("release") if isinstance(course, dict) else None
    ours = release["metadata"].get("course", {}).get("release")
    return ours is not None and isinstance(stamp, str) and stamp != ours


def _summed(flags: list[Flag]) -> list[Flag]:
    """One flag of each kind: tests of another release differ in many cells, and nobody edited them."""
    kinds = list(dict.fromkeys(flag.kind for flag in flags))
    counts = {kind: sum(flag.kind == kind for flag in flags) for kind in kinds}
    return [Flag(kind, f"{counts[kind]} 个单元与当前版本不同；文件自称来自另一版发布") for kind in kinds]


_KEPT = ("kernelspec", "language_info", "course")


def _shorten(notes: list[str]) -> tuple[str, ...]:
    unique = list(dict.fromkeys(notes))
    if len(unique) > _MAX_NOTES:
        unique = [*unique[:_MAX_NOTES], f"另有 {len(unique) - _MAX_NOTES} 处修复"]
    return tuple(unique)


def _own(slot: Slot, pieces: list[Piece]) -> list[Piece]:
    taken = set(slot.taken)
    return [piece for piece in pieces if piece.index in taken]


def _given_texts(slots: list[Slot], pieces: list[Piece], answers: Answers, notes: list[str]) -> dict[int, str]:
    """The student's text of given cells; a deleted or emptied one comes from the release."""
    texts = {}
    for slot in slots:
        if slot.kind != "given" or is_blank(slot.release):
            continue
        own = [piece for piece in _own(slot, pieces) if _is_usable(piece)]
        if own:
            texts[slot.index] = own[0].text
            answers.used.add(own[0].index)
        else:
            notes.append(f"给定的代码单元“{slot.label}”被删除或清空，已补回")
    return texts


def _is_usable(piece: Piece) -> bool:
    """Code; a cell turned into text only where its text still is code."""
    return not is_blank(piece.text) and (piece.is_code or parse(piece.text) is not None)


def _flags(slots: list[Slot], pieces: list[Piece]) -> list[Flag]:
    flags = []
    for slot in slots:
        own = _own(slot, pieces)
        if slot.kind in ("test", "locked") and slot.is_code and _is_edited(slot, own):
            kind = "测试单元" if slot.kind == "test" else "锁定单元"
            flags.append(Flag("tests_edited", f"{kind}“{slot.label}”与下发的不同，已用教师版本"))
        for piece in own:
            points = piece.nbgrader.get("points")
            if isinstance(points, (int, float)) and piece.nbgrader.get("grade") is True and points != slot.points:
                wanted = "无" if slot.points is None else f"{slot.points:g}"
                flags.append(
                    Flag("points_changed", f"单元“{slot.label}”的分值被改为 {points}（应为 {wanted}），已忽略")
                )
                break
    return flags


def _is_edited(slot: Slot, own: list[Piece]) -> bool:
    """True where the student has a copy of the cell with other code, and none as it was given out."""
    filled = [piece for piece in own if piece.text.strip()]
    return bool(filled) and not any(_is_intact(slot, piece) for piece in filled)


def _is_intact(slot: Slot, piece: Piece) -> bool:
    if squeeze(piece.text) in (squeeze(slot.release), squeeze(slot.full)):
        return True
    return same_code(piece.text, slot.release) or same_code(piece.text, slot.full)


def _damage_notes(slots: list[Slot], pieces: list[Piece]) -> list[str]:
    """What happened to the instructor's own cells: deleted, doubled, retyped, moved, marks lost."""
    notes = []
    lost = 0
    for slot in slots:
        own = _own(slot, pieces)
        if slot.kind in ("test", "locked") and slot.is_code:
            if not any(piece.text.strip() for piece in own):
                notes.append(
                    f"{'测试' if slot.kind == 'test' else '锁定'}单元“{slot.label}”被删除或清空，已用教师版本补回"
                )
            elif len(own) > 1:
                notes.append(f"单元“{slot.label}”出现了 {len(own)} 次，只保留教师版本一份")
            elif not own[0].is_code:
                notes.append(f"单元“{slot.label}”的类型被改成了文本，已改回代码")
        if slot.kind == "solution" and not own:
            notes.append(f"答题单元“{slot.label}”被删除，已补回")
        lost += any(piece.how in ("id", "text", "similarity") for piece in own) and bool(slot.grade_id)
    if lost:
        notes.append(f"{lost} 个单元丢了 nbgrader 标记，已按编号、内容认回")
    if _is_moved(slots):
        notes.append("有单元被移动过，已按原来的顺序评分")
    return notes


def _is_moved(slots: list[Slot]) -> bool:
    order = [slot.taken[0] for slot in slots if slot.taken and slot.grade_id]
    return order != sorted(order)


def _extras(slots: list[Slot], pieces: list[Piece], answers: Answers) -> list[Piece]:
    """The student's own code cells: all that is no copy of an instructor's cell and not in a solution cell."""
    return [piece for piece in pieces if _is_extra(piece, slots, answers)]


def _is_extra(piece: Piece, slots: list[Slot], answers: Answers) -> bool:
    if not piece.is_code or is_blank(piece.text) or piece.index in answers.used:
        return False
    if piece.slot is None:
        return True
    slot = slots[piece.slot]
    if slot.kind == "solution":
        return is_attempt(slot, piece.text)
    if slot.kind == "given":
        return not same_code(piece.text, slot.release)
    return False


def _anchors(slots: list[Slot], pieces: list[Piece], extras: list[Piece], answers: Answers) -> dict[int, int]:
    """After which slot (-1: before all) each extra cell stands.

    An extra follows everything that it followed in the student's notebook. Where a solution cell goes
    up to its place, the student's cells that it needs go up with it.
    """
    anchors: dict[int, int] = {}
    extra_indexes = {piece.index for piece in extras}
    reached = -1
    for piece in pieces:
        if piece.index in extra_indexes:
            anchors[piece.index] = reached
        elif piece.slot is not None:
            reached = max(reached, piece.slot)
    defines = {piece.index: defined_names(piece.text) for piece in extras}
    needs = {piece.index: used_names(piece.text) for piece in extras}
    for slot in slots:
        if slot.index in answers.text:
            names = eager_names(answers.text[slot.index])
            _pull_up(names, answers.last[slot.index], slot.index - 1, anchors, defines, needs)
    return anchors


def _pull_up(
    names: frozenset[str],
    before: int,
    anchor: int,
    anchors: dict[int, int],
    defines: dict[int, frozenset[str]],
    needs: dict[int, frozenset[str]],
) -> None:
    """Move the extras above ``before`` that define ``names`` (and what those need) up to ``anchor``."""
    queue = [(names, before)]
    while queue:
        wanted, limit = queue.pop()
        for index, found in defines.items():
            if index < limit and anchors[index] > anchor and found & wanted:
                anchors[index] = anchor
                queue.append((needs[index], index))


def _assemble(
    slots: list[Slot], texts: dict[int, str], extras: list[Piece], anchors: dict[int, int]
) -> list[dict[str, Any]]:
    used_ids = {slot.cell["id"] for slot in slots if slot.cell.get("id")}
    after: dict[int, list[Piece]] = {}
    for piece in extras:
        after.setdefault(anchors[piece.index], []).append(piece)
    cells = [_student_cell(piece, used_ids) for piece in after.get(-1, [])]
    for slot in slots:
        text = texts.get(slot.index, slot.source) if slot.kind in FROM_STUDENT else slot.source
        cells.append(_slot_cell(slot, text, used_ids))
        cells += [_student_cell(piece, used_ids) for piece in after.get(slot.index, [])]
    return cells


def _keep_images(slots: list[Slot], pieces: list[Piece], cells: list[dict[str, Any]]) -> None:
    """Give written answers their pasted images back."""
    by_id = {cell["id"]: cell for cell in cells}
    for slot in slots:
        if slot.kind == "solution" and not slot.is_code:
            found = [piece.cell["attachments"] for piece in _own(slot, pieces) if piece.cell.get("attachments")]
            if found and slot.cell.get("id"):
                by_id[slot.cell["id"]]["attachments"] = {
                    name: data for images in found for name, data in images.items()
                }


def _slot_cell(slot: Slot, text: str, used_ids: set[str]) -> dict[str, Any]:
    cell = {**slot.cell}
    if not cell.get("id"):
        cell["id"] = _fresh_id(f"cell-{slot.index}", used_ids)
    cell["source"] = text
    if slot.is_code:
        cell |= {"execution_count": None, "outputs": []}
    return cell


def _student_cell(piece: Piece, used_ids: set[str]) -> dict[str, Any]:
    """An extra cell: its text and nothing else of it, so that no mark of the student's survives."""
    return {
        "cell_type": "code",
        "id": _fresh_id(f"student-{piece.index}", used_ids),
        "metadata": {"grader": {"origin": "student"}},
        "execution_count": None,
        "outputs": [],
        "source": piece.text,
    }


def _fresh_id(wanted: str, used: set[str]) -> str:
    while wanted in used:
        wanted += "x"
    used.add(wanted)
    return wanted
