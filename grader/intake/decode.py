"""Any bytes → a valid nbformat 4.5 notebook without outputs, or one plain reason.

A submitted notebook is read for its code only: outputs, widget state and unknown keys are dropped here,
so nothing that follows has to bear their size or trust their shape.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import warnings
from math import isfinite
from typing import Any, NamedTuple

from grader.intake.jsontext import has_conflict_markers, parse_json
from grader.intake.sniff import sniff_bytes, sniff_text
from grader.intake.textcodec import clean_characters, decode_text
from grader.model import Notebook

MAX_BYTES = 100 << 20
MAX_CELLS = 5_000
MAX_SOURCE = 5_000_000  # characters of all cells together
MAX_METADATA = 20_000  # characters of one cell's metadata as JSON

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_NEWLINES = re.compile(r"\r\n?")
_ODD_NEWLINES = re.compile("[\x85\u2028\u2029]")
_FENCE = re.compile(r"^[ \t]*(```|~~~)", re.MULTILINE)
_CODE_LINE = re.compile(r"^(def|class)\s+\w+.*:\s*(#.*)?$", re.MULTILINE)


class Decoded(NamedTuple):
    """``notebook`` is None exactly when ``problem`` says why, in plain words with a remedy."""

    notebook: Notebook | None
    problem: str | None
    notes: list[str]


def too_large(size: int) -> str:
    """The reason for a file above the cap; ``size`` in bytes."""
    return (
        f"文件有 {size / 2**20:.0f} MB，超过上限 {MAX_BYTES >> 20} MB（file too large）："
        "请清除全部输出（Clear All Outputs），保存后再提交"
    )


def decode_notebook(data: bytes, name: str) -> Decoded:
    """Read ``data``, handed in as ``name``. Never raises and never hangs."""
    try:
        return _decode(data, name)
    except (RecursionError, MemoryError):
        return Decoded(None, "文件结构过于复杂（too complex），无法读取：请在 Jupyter 里清除输出、重新保存后再提交", [])
    except Exception as error:  # the last line of defence: one file must not stop a class
        reason = f"无法读取（{type(error).__name__}）：请在 Jupyter 里重新保存后再提交"
        return Decoded(None, reason, [])


def _decode(data: bytes, name: str) -> Decoded:
    if len(data) > MAX_BYTES:
        return Decoded(None, too_large(len(data)), [])
    problem = sniff_bytes(data)
    if problem:
        return Decoded(None, problem, [])
    text, encoding = decode_text(data)
    notes = [f"文件编码为 {encoding}，已转换为 UTF-8"] if encoding else []
    problem = sniff_text(text)
    if problem:
        return Decoded(None, problem, notes)
    value, problem, json_notes = parse_json(text)
    del text  # with 30 MB of outputs this is the largest thing in memory
    notes += json_notes
    if problem:
        return Decoded(None, problem, notes)
    return _from_value(value, notes)


def _from_value(value: Any, notes: list[str]) -> Decoded:
    value, wrapped = _unwrap(value)
    notes += wrapped
    cells = _find_cells(value)
    if cells is None:
        return Decoded(None, _no_notebook(value), notes)
    if len(cells) > MAX_CELLS:
        reason = f"单元格太多（{len(cells)} 个，上限 {MAX_CELLS}，too many cells）：请只保留作业需要的单元"
        return Decoded(None, reason, notes)
    builder = _Builder(notes)
    notebook = builder.build(value, cells)
    if sum(len(cell["source"]) for cell in notebook["cells"]) > MAX_SOURCE:
        return Decoded(None, "代码文字太长（source too long）：请删去粘贴在单元里的数据，保存后再提交", notes)
    if not notebook["cells"]:
        return Decoded(None, "notebook 里一个单元格也没有（no cells）：请确认提交的是写好的作业", notes)
    if not any(_may_hold_answer(cell) for cell in notebook["cells"]):
        return Decoded(None, "notebook 里没有代码单元（no code cells）：请确认提交的是写好的作业", notes)
    return Decoded(notebook, None, notes)


def _unwrap(value: Any) -> tuple[Any, list[str]]:
    """A notebook inside a JSON string, or in the envelope of Jupyter's contents API."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        inner, problem, _ = parse_json(value)
        if problem is None and isinstance(inner, dict):
            return inner, ["notebook 被多包了一层引号，已取出"]
    if isinstance(value, dict) and "cells" not in value and isinstance(value.get("content"), dict):
        return value["content"], ["notebook 被包在 Jupyter 的传输格式里，已取出"]
    return value, []


def _find_cells(value: Any) -> list[Any] | None:
    """The list of cells of any nbformat from 2 to 4, or None."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("cells"), list):
        return value["cells"]
    sheets = value.get("worksheets")
    if isinstance(sheets, list) and all(isinstance(sheet, dict) for sheet in sheets):
        found = [sheet["cells"] for sheet in sheets if isinstance(sheet.get("cells"), list)]
        if found:
            return [cell for cells in found for cell in cells]
    return None


def _no_notebook(value: Any) -> str:
    kind = {list: "一个列表（list）", dict: "没有 cells 的对象（no cells）"}.get(type(value), "一个单独的值（value）")
    return f"是有效的 JSON，但不是 notebook，而是{kind}：请提交 Jupyter 保存的 .ipynb 文件"


def _may_hold_answer(cell: dict[str, Any]) -> bool:
    """Code, a cell that nbgrader knows, or text in which code can be found again."""
    if cell["cell_type"] == "code" or "nbgrader" in cell["metadata"]:
        return True
    return bool(_FENCE.search(cell["source"]) or _CODE_LINE.search(cell["source"]))


class _Builder:
    """Builds the clean notebook and collects notes, each once."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def build(self, value: dict[str, Any], cells: list[Any]) -> Notebook:
        major, minor = value.get("nbformat"), value.get("nbformat_minor")
        if major != 4 or not isinstance(minor, int) or not 0 <= minor <= 5:
            shown = ".".join(str(part)[:8] for part in (major, minor) if part is not None) or "未注明"
            self._note(f"nbformat 版本为 {shown}，已按 4.5 读取")
        clean = [self._cell(cell) for cell in cells if isinstance(cell, dict)]
        if len(clean) < len(cells):
            self._note("有不是单元格的条目，已忽略")
        self._set_ids(clean, [cell for cell in cells if isinstance(cell, dict)])
        if any(has_conflict_markers(cell["source"]) for cell in clean):
            self._note("单元格里留有 Git 合并冲突标记（merge conflict markers），这样的代码不能运行，请检查")
        return {"cells": clean, "metadata": _notebook_metadata(value), "nbformat": 4, "nbformat_minor": 5}

    def _cell(self, cell: dict[str, Any]) -> dict[str, Any]:
        metadata = _cell_metadata(cell.get("metadata"))
        kind, source = self._kind(cell, metadata), self._source(cell)
        if isinstance(cell.get("cell_type"), str) and cell["cell_type"].lower() == "heading":
            level = cell.get("level")
            source = "#" * (level if isinstance(level, int) and 1 <= level <= 6 else 1) + " " + source
        clean: dict[str, Any] = {"cell_type": kind, "id": "", "metadata": metadata, "source": source}
        if kind == "code":
            clean |= {"execution_count": None, "outputs": []}
        elif attachments := _attachments(cell.get("attachments")):
            clean["attachments"] = attachments
        return clean

    def _kind(self, cell: dict[str, Any], metadata: dict[str, Any]) -> str:
        given = cell.get("cell_type")
        kind = given.strip().lower() if isinstance(given, str) else ""
        if kind in ("code", "markdown", "raw"):
            return kind
        if kind in ("heading", "html", "plaintext"):
            return "markdown"
        self._note("有单元格缺少类型或类型不认识，已按内容判断")
        looks_run = "outputs" in cell or "execution_count" in cell or "prompt_number" in cell or "input" in cell
        return "code" if looks_run or "nbgrader" in metadata else "raw"

    def _source(self, cell: dict[str, Any]) -> str:
        raw = next((cell[key] for key in ("source", "input", "text") if cell.get(key) is not None), "")
        if isinstance(raw, list):
            lines = [line for line in raw if isinstance(line, str)]
            if len(lines) > 1 and not any(line.endswith(("\n", "\r")) for line in lines[:-1]):
                self._note("源代码的各行之间缺少换行，已补上")
                text = "\n".join(lines)
            else:
                text = "".join(lines)
        else:
            text = raw if isinstance(raw, str) else ""
        cleaned = clean_characters(text)
        if cleaned != text:
            self._note("源代码里有无法保存的字符（NUL 或残缺的 Unicode），已替换")
        return _unify_newlines(cleaned.removeprefix("\ufeff"))

    def _set_ids(self, clean: list[dict[str, Any]], original: list[dict[str, Any]]) -> None:
        """Give every cell a valid id of its own. An id that several cells share tells nothing: none keeps it."""
        wanted = [_wanted_id(cell) for cell in original]
        counts: dict[str, int] = {}
        for cell_id in wanted:
            if cell_id:
                counts[cell_id] = counts.get(cell_id, 0) + 1
        if any(count > 1 for count in counts.values()):
            self._note("有重复的单元格 id，已重新编号")
        used = {cell_id for cell_id, count in counts.items() if count == 1}
        for index, (cell, cell_id) in enumerate(zip(clean, wanted, strict=True)):
            if not cell_id or counts[cell_id] > 1:
                cell_id = _new_id(index, cell["source"], used)
                used.add(cell_id)
            cell["id"] = cell_id


def _wanted_id(cell: dict[str, Any]) -> str | None:
    """The cell's id, or the one that Colab and VS Code keep in the metadata."""
    metadata = cell.get("metadata")
    inner = metadata if isinstance(metadata, dict) else {}
    for value in (cell.get("id"), inner.get("id")):
        if isinstance(value, str) and _ID.match(value):
            return value
    return None


def _new_id(index: int, source: str, used: set[str]) -> str:
    """Deterministic, so that the same file gives the same notebook."""
    digest = hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:8]
    candidate = f"intake-{index}-{digest}"
    while candidate in used:
        candidate += "x"
    return candidate


def _unify_newlines(text: str) -> str:
    """CRLF and CR become LF. NEL and the Unicode separators too, unless the code only works with them in a string."""
    text = _NEWLINES.sub("\n", text)
    if not _ODD_NEWLINES.search(text) or _parses(text):
        return text
    return _ODD_NEWLINES.sub("\n", text)


def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _cell_metadata(metadata: Any) -> dict[str, Any]:
    """Keep what rebuild reads: nbgrader's entries, tags, the id. All of it plain and small."""
    if not isinstance(metadata, dict):
        return {}
    clean: dict[str, Any] = {}
    nbgrader = metadata.get("nbgrader")
    if isinstance(nbgrader, dict) and isinstance(nbgrader.get("grade_id"), str):
        clean["nbgrader"] = {
            clean_characters(key)[:100]: clean_characters(value)[:500] if isinstance(value, str) else value
            for key, value in list(nbgrader.items())[:30]
            if isinstance(value, (str, bool, int)) or value is None or (isinstance(value, float) and isfinite(value))
        }
    tags = metadata.get("tags")
    if isinstance(tags, list):
        clean["tags"] = sorted({clean_characters(tag)[:100] for tag in tags if isinstance(tag, str)})[:50]
    return clean if _small(clean) else {}


def _small(value: Any) -> bool:
    try:
        return len(json.dumps(value, allow_nan=False)) <= MAX_METADATA
    except (TypeError, ValueError, RecursionError):
        return False


def _notebook_metadata(value: dict[str, Any]) -> dict[str, Any]:
    """Keep the language, the kernel's name and the course entry; widget state and the rest are dropped."""
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        return {}
    clean: dict[str, Any] = {}
    for name, fields in (("kernelspec", ("name", "display_name", "language")), ("language_info", ("name", "version"))):
        entry = metadata.get(name)
        if isinstance(entry, dict):
            texts = {key: clean_characters(entry[key])[:200] for key in fields if isinstance(entry.get(key), str)}
            if "name" in texts:
                clean[name] = {"display_name": texts["name"]} | texts if name == "kernelspec" else texts
    course = metadata.get("course")
    if isinstance(course, dict) and _small(course):
        clean["course"] = json.loads(clean_characters(json.dumps(course, ensure_ascii=False)))
    return clean


def _attachments(value: Any) -> dict[str, dict[str, str]]:
    """Images of a written answer, where they have the form that nbformat allows."""
    if not isinstance(value, dict):
        return {}
    clean = {}
    for name, bundle in value.items():
        if isinstance(bundle, dict) and bundle and all(isinstance(data, str) for data in bundle.values()):
            clean[clean_characters(name)] = {clean_characters(mime): clean_characters(bundle[mime]) for mime in bundle}
    return clean
