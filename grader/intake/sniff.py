"""What a file that is no notebook really is, in words a student understands."""

from __future__ import annotations

import ast
import re

_AGAIN = "请提交 .ipynb 文件本身"
_MAGIC = (
    (b"\x1f\x8b", "gzip 压缩包（gzip archive）", "请解压后提交里面的 .ipynb"),
    (b"Rar!", "RAR 压缩包（RAR archive）", "请解压后提交里面的 .ipynb"),
    (b"7z\xbc\xaf\x27\x1c", "7z 压缩包（7z archive）", "请解压后提交里面的 .ipynb"),
    (b"%PDF", "PDF 文件（PDF）", _AGAIN + "，不要导出成 PDF"),
    (b"\x89PNG", "图片（PNG image）", _AGAIN + "，不要截图"),
    (b"\xff\xd8\xff", "图片（JPEG image）", _AGAIN + "，不要截图"),
    (b"{\\rtf", "RTF 文档（rich text）", _AGAIN),
    (b"\xd0\xcf\x11\xe0", "旧版 Office 文档（Office document）", _AGAIN),
    (b"bplist", "苹果网页存档（webarchive）", _AGAIN),
    (b"SQLite format 3", "数据库文件（SQLite）", _AGAIN),
    (b"\x7fELF", "可执行文件（executable）", _AGAIN),
    (b"MZ", "可执行文件（executable）", _AGAIN),
)
_HTML = re.compile(r"<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)


def sniff_bytes(data: bytes) -> str | None:
    """The reason why these bytes can't be a notebook, from their first bytes."""
    if not data:
        return "文件是空的（empty file）：请重新导出并上传 .ipynb"
    if data.startswith(b"PK\x03\x04") or data.startswith(b"PK\x05\x06"):
        return _zip_reason(data)
    for magic, kind, remedy in _MAGIC:
        if data.startswith(magic):
            return f"这是{kind}，不是 notebook：{remedy}"
    return None


def _zip_reason(data: bytes) -> str:
    head = data[:4096]
    for marker, kind in ((b"word/", "Word 文档（docx）"), (b"xl/", "Excel 表格（xlsx）"), (b"ppt/", "PPT（pptx）")):
        if marker in head or marker in data[-65536:]:
            return f"这是 {kind}，不是 notebook：{_AGAIN}"
    return "这是改了后缀名的 zip 压缩包（zip archive），不是 notebook：请解压后提交里面的 .ipynb"


def sniff_text(text: str) -> str | None:
    """The reason why this text, which is no JSON object, can't be a notebook."""
    start = text.lstrip("\ufeff\0 \t\r\n")[:4096]
    if not start:
        return "文件是空的，只有空白（blank file）：请重新导出并上传 .ipynb"
    if start[0] in "{[" and not start.startswith("[InternetShortcut]"):
        return None
    if start[0] == "<" and _HTML.search(start):
        return "这是网页（HTML，可能是登录页），不是 notebook：请登录后用 File → Download 下载 .ipynb 再提交"
    if start.startswith("<") and not start.startswith("<<<<<<<"):
        return f"这是 XML / 网页片段（XML），不是 notebook：{_AGAIN}"
    if start.startswith("version https://git-lfs"):
        return "这是 Git LFS 指针（Git LFS pointer），不是 notebook：请用 git lfs pull 取得原文件再提交"
    if "[InternetShortcut]" in start or re.match(r"https?://\S+\s*$", text.strip()[:500]):
        return "这只是一个网址（link），不是 notebook：请下载 .ipynb 文件再提交"
    if looks_like_python(text):
        return "这是 Python 脚本（.py / percent script），不是 notebook：请提交 .ipynb，或用 jupytext --to ipynb 转换"
    if start[0] in '"<':
        return None  # a notebook inside a string, or a merge conflict: the parser says more
    return f"这是普通文本或未知格式（plain text or unknown format），不是 notebook：{_AGAIN}"


def looks_like_python(text: str) -> bool:
    """True for a script: percent cells, or code that parses and does something."""
    sample = text[:200_000]
    if re.search(r"^# %%", sample, re.MULTILINE):
        return True
    if not re.search(r"^[ \t]*(def|class|import|from|print|for|if|[A-Za-z_]\w*\s*=)", sample, re.MULTILINE):
        return False
    try:
        return bool(ast.parse(sample).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
