"""Guards decode_notebook: every file becomes a valid notebook without outputs, or one plain reason."""

from __future__ import annotations

import gzip
import io
import json
import zipfile

import nbformat
import pytest

from grader.intake import decode_notebook
from grader.intake.decode import MAX_BYTES
from grader.tests.rebuild_support import RELU, SUBMISSIONS, cell, manifest, release, solved

CHINESE = "# 求和：只要正数\n" + RELU


def notebook_text(**changes) -> str:
    return json.dumps({**solved(), **changes}, ensure_ascii=False)


def with_source(source) -> dict:
    notebook = solved()
    notebook["cells"][1]["source"] = source
    return notebook


def read(data) -> tuple[dict, list[str]]:
    """Decode what must be readable; the notebook is valid and JSON can hold it."""
    raw = data if isinstance(data, bytes) else (data if isinstance(data, str) else json.dumps(data)).encode()
    decoded = decode_notebook(raw, "ps1.ipynb")
    assert decoded.problem is None, decoded.problem
    nbformat.validate(decoded.notebook)
    json.dumps(decoded.notebook, allow_nan=False).encode()
    return decoded.notebook, decoded.notes


def refused(data: bytes | str) -> str:
    decoded = decode_notebook(data if isinstance(data, bytes) else data.encode(), "ps1.ipynb")
    assert decoded.notebook is None
    return decoded.problem


@pytest.mark.parametrize(
    "case", [c for c in manifest() if c["name"].startswith(("fmt_", "struct_", "base_"))], ids=lambda c: c["name"]
)
def test_every_case_is_read_or_refused_with_a_reason(case):
    decoded = decode_notebook((SUBMISSIONS / f"{case['name']}.ipynb").read_bytes(), case["submit_as"])
    if case["name"] in ("fmt_truncated_json", "fmt_html_saved_as_ipynb"):
        assert decoded.notebook is None and "：请" in decoded.problem
    else:
        nbformat.validate(decoded.notebook)
        assert "def relu_sum" in "".join(c["source"] for c in decoded.notebook["cells"])


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "gbk", "gb18030"],
)
def test_encodings_keep_the_chinese_text(encoding):
    notebook, _ = read(json.dumps(with_source(CHINESE), ensure_ascii=False).encode(encoding))
    assert notebook["cells"][1]["source"] == CHINESE


def test_western_code_page_is_not_taken_for_chinese():
    source = "# référence à côté\né = 'été'\n" + RELU
    notebook, notes = read(json.dumps(with_source(source), ensure_ascii=False).encode("cp1252"))
    assert notebook["cells"][1]["source"] == source
    assert any("Windows-1252" in note for note in notes)


def test_utf8_with_one_broken_byte_stays_utf8():
    raw = json.dumps(with_source(CHINESE), ensure_ascii=False).encode().replace("要".encode(), b"\xe8\xa6", 1)
    notebook, _ = read(raw)
    assert "求和" in notebook["cells"][1]["source"] and RELU in notebook["cells"][1]["source"]


@pytest.mark.parametrize("ending", ["\r\n", "\r", "\x85"])
def test_line_ends_become_newlines(ending):
    notebook, _ = read(with_source(RELU.replace("\n", ending)))
    assert notebook["cells"][1]["source"] == RELU


def test_a_unicode_separator_inside_a_string_is_kept():
    source = 'mark = "a\u2028b"\n'
    assert read(with_source(source))[0]["cells"][1]["source"] == source


@pytest.mark.parametrize("lines", [RELU.splitlines(keepends=True), RELU.rstrip("\n").split("\n")], ids=["kept", "lost"])
def test_source_as_a_list_of_lines(lines):
    assert read(with_source(lines))[0]["cells"][1]["source"].rstrip("\n") == RELU.rstrip("\n")


@pytest.mark.parametrize("source", [None, 3, ["a = 1\n", None, 2], {"a": 1}])
def test_source_of_a_wrong_type_never_stops_the_reading(source):
    assert isinstance(read(with_source(source))[0]["cells"][1]["source"], str)


def test_nul_and_lone_surrogates_are_replaced():
    raw = notebook_text().replace("def relu_sum", "\\ud800\\u0000def relu_sum", 1)
    notebook, notes = read(raw)
    assert "\x00" not in notebook["cells"][1]["source"] and any("Unicode" in note for note in notes)


def test_nbformat_3_is_upgraded():
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Aufgabe", "metadata": {}},
        {
            "cell_type": "code",
            "input": RELU.splitlines(keepends=True),
            "language": "python",
            "outputs": [],
            "prompt_number": 3,
        },
    ]
    old = {
        "nbformat": 3,
        "nbformat_minor": 0,
        "metadata": {"name": ""},
        "worksheets": [{"cells": cells, "metadata": {}}],
    }
    notebook, _ = read(old)
    assert [c["cell_type"] for c in notebook["cells"]] == ["markdown", "code"]
    assert notebook["cells"][0]["source"] == "## Aufgabe" and notebook["cells"][1]["source"] == RELU


def strip(key):
    def change(notebook):
        for c in notebook["cells"]:
            c.pop(key, None)

    return change


@pytest.mark.parametrize("key", ["id", "outputs", "execution_count", "metadata"])
def test_missing_keys_of_cells(key):
    notebook = solved()
    strip(key)(notebook)
    assert len(read(notebook)[0]["cells"]) == len(notebook["cells"])


@pytest.mark.parametrize("key", ["metadata", "nbformat", "nbformat_minor"])
def test_missing_keys_of_the_notebook(key):
    notebook = dict(solved())
    del notebook[key]
    assert len(read(notebook)[0]["cells"]) == 6


def test_ids_in_the_metadata_are_used():
    notebook = solved()
    for number, c in enumerate(notebook["cells"]):
        del c["id"]
        c["metadata"]["id"] = f"colab{number}"
    assert [c["id"] for c in read(notebook)[0]["cells"]] == [f"colab{n}" for n in range(6)]


@pytest.mark.parametrize("bad", ["", "has space", "x" * 65, "é", 7, None])
def test_ill_formed_ids_are_replaced(bad):
    notebook = solved()
    notebook["cells"][2]["id"] = bad
    ids = [c["id"] for c in read(notebook)[0]["cells"]]
    assert len(set(ids)) == 6 and bad not in ids


def test_a_retyped_or_unknown_cell_keeps_its_text():
    notebook = solved()
    notebook["cells"][1]["cell_type"] = "Code"
    notebook["cells"][2]["cell_type"] = "sql"
    notebook["cells"][3] = {"cell_type": "raw", "source": "x"}
    kinds = [c["cell_type"] for c in read(notebook)[0]["cells"]]
    assert kinds[1:4] == ["code", "code", "raw"]


def test_unknown_keys_widgets_and_broken_attachments_are_dropped():
    notebook = solved()
    notebook["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {"a": {"no": "state"}}}
    notebook["cells"][0] |= {"attachments": {"a.png": {"image/png": 7}}, "jukit_cell_id": "x"}
    notebook["cells"][1]["vscode"] = {"languageId": "python"}
    notebook["extra"] = 1
    read(notebook)


def test_good_attachments_are_kept():
    notebook = solved()
    notebook["cells"][0]["attachments"] = {"a.png": {"image/png": "aGk="}}
    assert read(notebook)[0]["cells"][0]["attachments"] == {"a.png": {"image/png": "aGk="}}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "x" * 10**6, {"a": {"b": []}}, [[[]]]])
def test_hostile_metadata_never_stops_the_reading(value):
    notebook = solved()
    cell(notebook, "q1_visible")["metadata"]["nbgrader"]["points"] = value
    cell(notebook, "q1_visible")["metadata"]["tags"] = value
    notebook["metadata"]["kernelspec"] = value
    assert len(read(notebook)[0]["cells"]) == 6


def test_thirty_megabytes_of_output_are_dropped():
    text = notebook_text().replace(
        '"outputs": []',
        '"outputs": [{"output_type": "stream", "name": "stdout", "text": "' + "1, " * 10_000_000 + '"}]',
        1,
    )
    assert len(text) > 30_000_000
    assert len(json.dumps(read(text)[0])) < 10_000


@pytest.mark.parametrize("tail", ["\n\n", "\x00\x00\x00", "}", "\nfoo", '{"cells": []}'])
def test_garbage_behind_the_json_is_ignored(tail):
    assert len(read(notebook_text() + tail)[0]["cells"]) == 6


def test_trailing_commas_comments_and_nan():
    text = notebook_text().replace('"nbformat": 4', '/* saved by hand */ "x": NaN, // y\n "nbformat": 4')
    assert len(read(text.rstrip("}") + ",}")[0]["cells"]) == 6


@pytest.mark.parametrize(
    "wrap", [json.dumps, lambda text: json.dumps({"type": "notebook", "content": json.loads(text)})]
)
def test_a_notebook_inside_an_envelope(wrap):
    assert len(read(wrap(notebook_text()))[0]["cells"]) == 6


def test_conflict_markers_inside_a_cell_are_noted():
    source = "<<<<<<< HEAD\na = 1\n=======\na = 2\n>>>>>>> theirs\n"
    _, notes = read(with_source(source))
    assert any("合并冲突" in note for note in notes)


def zipped(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "x")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "空"),
        (b" \r\n\t ", "空白"),
        (b"\xef\xbb\xbf", "空白"),
        (b"\x00" * 100, "空白"),
        (notebook_text().encode()[:1000], "truncated"),
        (notebook_text().encode("utf-16")[:2000], "truncated"),
        (notebook_text().encode()[:-1], "truncated"),
        (b"  <!DOCTYPE html>\n<html><body>Sign in</body></html>", "HTML"),
        (b"<!-- saved --><html>", "HTML"),
        (b'<?xml version="1.0"?><a/>', "XML"),
        (zipped("ps1.ipynb"), "zip"),
        (zipped("word/document.xml"), "Word"),
        (zipped("xl/workbook.xml"), "Excel"),
        (gzip.compress(b"{}", mtime=0), "gzip"),
        (b"Rar!\x1a\x07\x00", "RAR"),
        (b"7z\xbc\xaf\x27\x1c\x00", "7z"),
        (b"%PDF-1.7\n", "PDF"),
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"{\\rtf1 hello}", "RTF"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "LFS"),
        (b"[InternetShortcut]\nURL=https://x.org/a.ipynb\n", "link"),
        (b"https://colab.research.google.com/drive/abc\n", "link"),
        (b"# %% [markdown]\n# # title\n# %%\nx = 1\n", "Python"),
        (RELU.encode(), "Python"),
        ("作业写完了，请老师查收".encode(), "文本"),
        (bytes(range(256)) * 10, "请"),
        (b"[]", "list"),
        (b"[1, 2", "truncated"),
        (b"3", "请"),
        (b"null", "请"),
        (b"{}", "no cells"),
        (b'{"cells": {}}', "no cells"),
        (b'{"worksheets": [1]}', "no cells"),
        (b'{"cells": []}', "no cells"),
        (b'{"cells": [3, null]}', "no cells"),
        (b'{"score": 10, "comments": ["nbgrader feedback"]}', "no cells"),
        (b'{"cells": [{"cell_type": "markdown", "source": "hello"}]}', "no code cells"),
        (b"[" * 200_000, "deeply"),
        (b'{"a":' * 200_000, "deeply"),
        (b'{"cells":[' + b"{}," * 7_000_000 + b"{}]}", "too many"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "JSON"),
        (b'{"cells": [{]}', "第 1 行"),
        (b'{"cells": [' + b'{"cell_type": "code", "source": ""},' * 6000 + b"{}]}", "too many cells"),
        (json.dumps({"cells": [{"cell_type": "code", "source": "x" * 6_000_000}]}).encode(), "too long"),
    ],
)
def test_what_is_no_notebook_gets_one_plain_reason(data, word):
    problem = refused(data)
    assert word in problem
    assert "请" in problem and "\n" not in problem and "Traceback" not in problem


def test_merge_conflict_names_itself():
    text = json.dumps(solved(), indent=1)
    line = ' "nbformat": 4,'
    broken = text.replace(line, f"<<<<<<< HEAD\n{line}\n=======\n{line}\n>>>>>>> branch", 1)
    assert broken != text and "merge conflict" in refused(broken)
    assert "merge conflict" in refused("<<<<<<< HEAD\n" + text + "\n=======\n>>>>>>> b\n")


def test_a_file_above_the_cap_is_refused_before_it_is_parsed():
    assert "too large" in refused(b" " * (MAX_BYTES + 1))


@pytest.mark.parametrize(
    "data",
    [
        b'{"cells":[' + b'\\"' * 3_000_000,
        b"{" + b"/*" * 1_000_000,
        b"{" + b"\n" * 2_000_000 + b"<",
        b"x" + b"\n" * 300_000,
        b"<!---->" * 600 + b"!",
        b'{"' + b"\\" * 2_000_001,
        b'"' * 3_000_000,
    ],
    ids=["escapes", "comments", "newlines", "script", "html", "backslashes", "quotes"],
)
@pytest.mark.timeout(60)
def test_no_pattern_hangs_on_hostile_text(data):
    assert refused(data)


def test_text_cells_with_code_are_no_empty_hand_in():
    notebook, _ = read({"cells": [{"cell_type": "markdown", "source": "```python\n" + RELU + "```"}]})
    assert notebook["cells"][0]["cell_type"] == "markdown"


def test_the_same_bytes_give_the_same_notebook():
    notebook = release()
    strip("id")(notebook)
    data = json.dumps(notebook).encode()
    assert decode_notebook(data, "a.ipynb") == decode_notebook(data, "b.ipynb")
