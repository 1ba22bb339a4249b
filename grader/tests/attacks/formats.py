"""Files that programs, editors, browsers and transfers damage. Where the answers can be read, they count."""

# ruff: noqa: E501 (sources of notebooks)

from __future__ import annotations

import gzip
import io
import json
import zipfile
from typing import Any

from grader.model import Notebook
from grader.tests.attacks.case import MEAN, RELU, Registry, answers, cell_of, dump, good

case = Registry("format", quiet=True)
unreadable = {"score": None, "status": "unreadable"}


@case("fmt_gb18030", "saved in GB18030 by a Chinese editor", 10)
def _() -> bytes:
    nb = answers("# 对正数求和\n" + RELU)
    return json.dumps(nb, ensure_ascii=False).encode("gb18030")


@case("fmt_utf16_no_mark", "UTF-16 big-endian without a byte order mark", 10)
def _() -> bytes:
    return dump(good()).decode().encode("utf-16-be")


@case("fmt_nbformat3", "nbformat 3 with worksheets, input and heading cells", 10)
def _() -> Notebook:
    cells: list[dict[str, Any]] = [{"cell_type": "heading", "level": 1, "source": "ps1", "metadata": {}}]
    for cell in good()["cells"]:
        if cell["cell_type"] == "code":
            cells.append(
                {
                    "cell_type": "code",
                    "language": "python",
                    "input": cell["source"],
                    "outputs": [],
                    "metadata": cell["metadata"],
                    "collapsed": False,
                }
            )
    return {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": "ps1"}, "worksheets": [{"cells": cells}]}


@case("fmt_lines_without_ends", "sources as lists of lines that lost their line ends", 10)
def _() -> Notebook:
    nb = good()
    for cell in nb["cells"]:
        cell["source"] = cell["source"].split("\n")
    return nb


@case("fmt_trailing_zeros", "padded with zero bytes by a broken transfer", 10)
def _() -> bytes:
    return dump(good()) + b"\0" * 4096


@case("fmt_not_a_number", "NaN and Infinity in outputs and metadata", 10)
def _() -> bytes:
    nb = good()
    nb["metadata"]["widgets"] = {"value": float("nan")}
    cell_of(nb, "q1")["outputs"] = [
        {
            "output_type": "execute_result",
            "data": {"application/json": float("inf")},
            "metadata": {},
            "execution_count": 1,
        }
    ]
    return json.dumps(nb).encode()


@case("fmt_null_fields", "metadata, outputs and language null", 10)
def _() -> Notebook:
    nb = good()
    nb["metadata"] = None
    for cell in nb["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = None
    nb["cells"][0]["metadata"] = None
    return nb


@case("fmt_ids_out_of_range", "cell ids that are numbers, too long or hold spaces", 10)
def _() -> Notebook:
    nb = good()
    for cell, bad in zip(nb["cells"], (1, "x" * 300, "a b", "", None, "é<>"), strict=True):
        cell["id"] = bad
    return nb


@case("fmt_unknown_cell_kinds", "cells of kinds that nbformat does not know", 10)
def _() -> Notebook:
    nb = good()
    nb["cells"][0:0] = [{"cell_type": "sql", "metadata": {}, "source": "SELECT 1"}, {"cell_type": "visualization"}]
    return nb


@case("fmt_return_only", "old Mac line ends in every source", 10)
def _() -> Notebook:
    nb = good()
    for cell in nb["cells"]:
        cell["source"] = cell["source"].replace("\n", "\r")
    return nb


@case("fmt_lone_surrogate", "half an emoji in a comment", 10)
def _() -> bytes:
    return json.dumps(answers(RELU + "  # \ud83d")).encode()


@case("fmt_mark_in_source", "a byte order mark at the start of a cell's text", 10)
def _() -> Notebook:
    return answers("\ufeff" + RELU)


@case("fmt_deep_metadata", "metadata nested 150 deep by a broken extension", 10)
def _() -> bytes:
    deep = '{"a":' * 150 + "1" + "}" * 150
    return dump(good()).replace(b'"language_info":', b'"deep": ' + deep.encode() + b', "language_info":', 1)


@case("fmt_picture_of_20_mb", "an output picture of 20 MB", 10)
def _() -> Notebook:
    nb = good()
    cell_of(nb, "q2")["outputs"] = [
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * 20_000_000}}
    ]
    return nb


@case("fmt_unknown_outputs", "outputs of a kind that nbformat does not know, and broken ones", 10)
def _() -> Notebook:
    nb = good()
    cell_of(nb, "q1")["outputs"] = [{"output_type": "update"}, {}, {"output_type": "stream", "text": 3}, "text", None]
    return nb


@case("fmt_script_language", "kernel of another language in the metadata, Python in the cells", 10)
def _() -> Notebook:
    nb = good()
    nb["metadata"] = {
        "kernelspec": {"name": "ir", "language": "R", "display_name": "R"},
        "language_info": {"name": "R"},
    }
    return nb


@case("fmt_encoding_cookie", "a coding line of another encoding above the answer", 10)
def _() -> Notebook:
    return answers("# -*- coding: gbk -*-\n" + RELU)


@case("fmt_form_feeds", "form feeds, vertical tabs and line separators between statements", 10)
def _() -> Notebook:
    return answers("\f\n" + RELU + "\n\f\n# a\u2028b\u0085c\n", MEAN)


@case("fmt_empty_file", "an empty file", **unreadable)
def _() -> bytes:
    return b""


@case("fmt_zip_named_ipynb", "a zip renamed to .ipynb", **unreadable)
def _() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("ps1.ipynb", dump(good()))
    return buffer.getvalue()


@case("fmt_gzip_named_ipynb", "a gzip renamed to .ipynb", **unreadable)
def _() -> bytes:
    return gzip.compress(dump(good()))


@case("fmt_pdf_named_ipynb", "a PDF renamed to .ipynb", **unreadable)
def _() -> bytes:
    return b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF"


@case("fmt_json_of_another_kind", "valid JSON that is no notebook", **unreadable)
def _() -> bytes:
    return b'[{"name": "package.json"}, 1, null]'


@case("fmt_download_page", "a JSON error message of a file service", **unreadable)
def _() -> bytes:
    return b'{"error": {"code": 403, "message": "The download quota for this file has been exceeded"}}'


@case("fmt_other_notebook", "a notebook of another course", **unreadable)
def _() -> Notebook:
    nb = good()
    nb["cells"] = [
        {
            "cell_type": "code",
            "metadata": {},
            "source": "import pandas as pd\ndf = pd.DataFrame()",
            "outputs": [],
            "execution_count": None,
            "id": "a",
        }
    ]
    return nb


@case("fmt_million_brackets", "a million opening brackets", **unreadable)
def _() -> bytes:
    return b"[" * 1_000_000


@case("fmt_random_bytes", "noise of a broken disk", **unreadable)
def _() -> bytes:
    return bytes((i * 197 + i // 7) % 256 for i in range(50_000))
