"""Text to a JSON value, forgiving what people and tools do to notebooks, never hanging on it."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_ELEMENTS = 6_000_000  # brackets and commas outside strings; each becomes an object in memory
MAX_REPAIR = 5_000_000  # characters; longer texts are not worth the second try

# Every pattern here is linear on any input: an unclosed string or comment runs to the end instead of failing
# and being tried again from each later character.
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_STRING = re.compile(r'"[^"]*"?')
_REPAIRS = re.compile(r'("[^"\\]*(?:\\(?:.|\Z)[^"\\]*)*(?:"|\Z))|//[^\n]*|/\*.*?(?:\*/|\Z)|,(?=\s*[\]}])', re.DOTALL)
_CONFLICT = re.compile(r"^[ \t]*(<{7}|>{7})( |$)", re.MULTILINE)

TRUNCATED = "文件不完整，JSON 在中途断了（truncated JSON）：请回到原来的编辑器重新保存，完整上传后再提交"
CONFLICT = (
    "文件里有 Git 合并冲突标记 <<<<<<< / >>>>>>>（merge conflict markers），不是有效的 notebook："
    "请先解决冲突，重新保存后再提交"
)
TOO_DEEP = "JSON 嵌套太深（nested too deeply），不像 notebook：请在 Jupyter 里重新保存后再提交"
TOO_COMPLEX = "notebook 的输出太复杂（too many JSON elements）：请清除全部输出（Clear All Outputs），保存后再提交"


def parse_json(text: str) -> tuple[Any, str | None, list[str]]:
    """Parse ``text``; return the value, the problem in plain words (then the value is None) and notes."""
    if _too_complex(text):
        return None, TOO_COMPLEX, []
    try:
        return _parse(text)
    except RecursionError:
        return None, TOO_DEEP, []
    except MemoryError:
        return None, TOO_COMPLEX, []
    except ValueError as error:  # e.g. an integer with more digits than Python converts
        return None, f"不是有效的 JSON（invalid JSON：{str(error)[:80]}）：请在 Jupyter 里重新保存后再提交", []


def has_conflict_markers(text: str) -> bool:
    """True when both ends of a Git merge conflict stand at the start of lines."""
    found = {match.group(1)[0] for match in _CONFLICT.finditer(text)}
    return found == {"<", ">"}


def _parse(text: str) -> tuple[Any, str | None, list[str]]:
    decoder = json.JSONDecoder(strict=False)
    body = text.lstrip("\ufeff\0 \t\r\n")
    try:
        value, end = decoder.raw_decode(body)
    except json.JSONDecodeError as error:
        return _parse_repaired(decoder, body, error)
    notes = ["JSON 之后的多余内容已忽略"] if body[end:].strip("\0 \t\r\n\x1a") else []
    return value, None, notes


def _parse_repaired(
    decoder: json.JSONDecoder, body: str, error: json.JSONDecodeError
) -> tuple[Any, str | None, list[str]]:
    """Second try without comments and trailing commas; else say what is wrong."""
    if has_conflict_markers(body):
        return None, CONFLICT, []
    repaired = _REPAIRS.sub(lambda match: match.group(1) or "", body) if len(body) <= MAX_REPAIR else body
    if repaired != body:
        try:
            value, _ = decoder.raw_decode(repaired)
            return value, None, ["JSON 里的注释或多余逗号已去掉"]
        except json.JSONDecodeError:
            pass
    end = len(body.rstrip())
    if error.msg.startswith("Unterminated string") or error.pos >= (end if body[end - 1] == "}" else end - 5):
        return None, TRUNCATED, []
    remedy = "请不要用文本编辑器改 .ipynb，在 Jupyter 里重新保存后再提交"
    return None, f"不是有效的 JSON（invalid JSON，第 {error.lineno} 行）：{remedy}", []


def _too_complex(text: str) -> bool:
    """Count what becomes objects; strings are only looked into when the quick count is high."""
    if _structure(text) <= MAX_ELEMENTS:
        return False
    return _structure(_STRING.sub("", _ESCAPE.sub("", text))) > MAX_ELEMENTS


def _structure(text: str) -> int:
    return text.count("[") + text.count("{") + text.count(",")
