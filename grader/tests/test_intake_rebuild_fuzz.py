"""Guards the promise "never raises, never leaks" of decode and rebuild with random damage.

Short here; ``FUZZ_EXAMPLES`` sets the number of examples for a long run.
"""

from __future__ import annotations

import copy
import json
import os

import nbformat
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from grader.intake import decode_notebook
from grader.rebuild import rebuild
from grader.tests.rebuild_support import MEAN, RELU, release, solved, source

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "120"))
QUICK = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
GOOD = json.dumps(solved()).encode()
TESTS = {c["id"]: c["source"] for c in source()["cells"] if c["metadata"].get("nbgrader", {}).get("grade")}
REFERENCE = ("sum(x if x > 0 else 0 for x in xs)", "sum(x * x for x in xs) / len(xs) if len(xs)", "BEGIN SOLUTION")

plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)


def check_decoded(data: bytes) -> None:
    decoded = decode_notebook(data, "x.ipynb")
    if decoded.notebook is None:
        assert decoded.problem and "\n" not in decoded.problem
        return
    assert decoded.problem is None
    nbformat.validate(decoded.notebook)
    json.dumps(decoded.notebook, allow_nan=False, ensure_ascii=False).encode()
    check_rebuilt(decoded.notebook)


def check_rebuilt(submitted) -> None:
    rebuilt = rebuild(source(), release(), submitted)
    nbformat.validate(rebuilt.notebook)
    found = [
        (c["id"], c["source"]) for c in rebuilt.notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade")
    ]
    assert found == list(TESTS.items())
    everything = "\n".join(c["source"] for c in rebuilt.notebook["cells"])
    assert not any(text in everything for text in REFERENCE)


@QUICK
@given(st.binary(max_size=400))
@example(b"\xff\xfe")
@example(b"\xfe\xff\x00")
@example(b'{"cells": [{"source": "\\ud800"}]}')
def test_random_bytes(data):
    check_decoded(data)


@QUICK
@given(
    st.lists(
        st.tuples(st.integers(0, len(GOOD) - 1), st.binary(max_size=4), st.integers(0, 40)), min_size=1, max_size=4
    )
)
def test_damaged_bytes_of_a_notebook(damages):
    data = GOOD
    for at, new, cut in damages:
        data = data[:at] + new + data[at + cut :]
    check_decoded(data)


@QUICK
@given(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32", "gb18030"]), st.text(max_size=30), st.integers(0, 20))
def test_any_text_in_any_encoding(encoding, text, cut):
    notebook = solved()
    notebook["cells"][1]["source"] = text
    data = json.dumps(notebook, ensure_ascii=False).encode(encoding, "replace")
    check_decoded(data[: len(data) - cut])


paths = st.lists(
    st.sampled_from(
        ["cells", 0, 1, 2, "metadata", "source", "nbgrader", "grade_id", "points", "id", "cell_type", "tags"]
    ),
    min_size=1,
    max_size=5,
)


@QUICK
@given(st.lists(st.tuples(paths, values), min_size=1, max_size=4))
def test_values_of_any_shape_anywhere(changes):
    notebook = json.loads(GOOD)
    for path, value in changes:
        place = notebook
        for step in path[:-1]:
            inside = step in place if isinstance(place, dict) else step in range(len(place))
            place = place[step] if inside and isinstance(place[step], (dict, list)) else place
        if isinstance(place, dict):
            place[str(path[-1])] = value
        elif isinstance(place, list) and place:
            place[0] = value
    check_decoded(json.dumps(notebook).encode())


def _drop(cells, at, other):
    del cells[at]


def _duplicate(cells, at, other):
    cells.insert(other, copy.deepcopy(cells[at]))


def _swap(cells, at, other):
    other %= len(cells)
    cells[at], cells[other] = cells[other], cells[at]


def _split(cells, at, other):
    second = copy.deepcopy(cells[at])
    cut = other * 7 % (len(second["source"]) + 1)
    cells[at]["source"], second["source"] = second["source"][:cut], second["source"][cut:]
    cells.insert(at + 1, second)


def _merge(cells, at, other):
    if at + 1 < len(cells):
        cells[at]["source"] += "\n" + cells.pop(at + 1)["source"]


def _strip(cells, at, other):
    cells[at]["metadata"] = {}


def _strip_all(cells, at, other):
    for cell in cells:
        cell["metadata"] = {}
        cell["id"] = f"new-{id(cell)}"


def _retype(cells, at, other):
    kind = ("code", "markdown", "raw")[other % 3]
    cells[at] = {key: cells[at][key] for key in ("id", "metadata", "source") if key in cells[at]} | {"cell_type": kind}


def _empty(cells, at, other):
    cells[at]["source"] = ""


def _steal_mark(cells, at, other):
    cells[at]["metadata"] = copy.deepcopy(cells[other % len(cells)]["metadata"])


def _steal_text(cells, at, other):
    cells[at]["source"] = cells[other % len(cells)]["source"]


def _stub(cells, at, other):
    stubs = [cell["source"] for cell in release()["cells"]]
    cells[at]["source"] = stubs[other % len(stubs)]


def _own(cells, at, other):
    texts = (RELU, MEAN, "x = 1", "%%bash\nls", "def f(:", RELU + MEAN, "```python\n" + RELU + "```")
    cells.insert(at, {"cell_type": "code", "metadata": {}, "source": texts[other % len(texts)]})


MOVES = (_drop, _duplicate, _swap, _split, _merge)
MARKS = (_strip, _strip_all, _retype, _steal_mark)
TEXTS = (_empty, _steal_text, _stub, _own)
OPERATIONS = MOVES + MARKS + TEXTS


@settings(QUICK, max_examples=EXAMPLES * 3)
@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 12), st.integers(0, 12)), max_size=12))
def test_random_operations_on_cells(steps):
    notebook = solved()
    cells = notebook["cells"]
    for operation, at, other in steps:
        if cells:
            operation(cells, at % len(cells), other)
    check_decoded(json.dumps(notebook).encode())
    check_rebuilt(json.loads(json.dumps({**notebook, "cells": [{"id": f"c{n}", **c} for n, c in enumerate(cells)]})))
