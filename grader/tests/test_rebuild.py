"""Guards rebuild: the student's code lands in its question, and every test stays the instructor's."""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.nbgraderformat import MetadataValidator
from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearOutput,
    ClearSolutions,
    ComputeChecksums,
    LockCells,
    OverwriteCells,
    SaveCells,
)

from grader.intake import decode_notebook
from grader.rebuild import rebuild
from grader.tests.rebuild_support import (
    MEAN,
    RELU,
    SUBMISSIONS,
    cell,
    code,
    hand_in,
    manifest,
    own_cells,
    release,
    release_of,
    run_students_code,
    solved,
    source,
    text,
)

REFERENCE = ("sum(x if x > 0 else 0 for x in xs)", "sum(x * x for x in xs) / len(xs) if len(xs)", "BEGIN SOLUTION")
TESTS = ("q1_visible", "q1_hidden", "q2_test")


def check_instructors_part(rebuilt, assignment: str = "ps1") -> None:
    """What holds for every rebuilt notebook: valid, every instructor cell once and in order, tests as in the source."""
    nbformat.validate(rebuilt.notebook)
    MetadataValidator().validate_nb(nbformat.from_dict(copy.deepcopy(rebuilt.notebook)))
    original = source(assignment)
    kept = [c for c in rebuilt.notebook["cells"] if "grader" not in c["metadata"]]
    assert [c["id"] for c in kept] == [c["id"] for c in original["cells"]]
    for mine, theirs in zip(kept, original["cells"], strict=True):
        meta = theirs["metadata"].get("nbgrader", {})
        assert mine["cell_type"] == theirs["cell_type"]
        assert {key: mine["metadata"].get("nbgrader", {}).get(key) for key in meta} == meta
        if meta.get("grade"):
            assert mine["source"] == theirs["source"]
    for c in rebuilt.notebook["cells"]:
        if "grader" in c["metadata"]:
            assert c["metadata"] == {"grader": {"origin": "student"}}


def works(rebuilt) -> None:
    """Both questions count as answered and the student's cells, run in order, define working functions."""
    check_instructors_part(rebuilt)
    assert rebuilt.attempted == {"q1": True, "q2": True}
    for grade_id, name in (("q1", "relu_sum"), ("q2", "mean_sq")):
        assert f"{name}" in cell(rebuilt.notebook, grade_id)["source"]
    defined = run_students_code(rebuilt)
    assert defined["relu_sum"]([1, -2, 3]) == 4 and defined["mean_sq"]([1, 2, 3]) == pytest.approx(14 / 3)


@pytest.mark.parametrize("case", manifest(), ids=lambda c: c["name"])
def test_every_case_is_rebuilt(case):
    decoded = decode_notebook((SUBMISSIONS / f"{case['name']}.ipynb").read_bytes(), case["submit_as"])
    if decoded.notebook is None:
        assert decoded.problem
        return
    kind = case["assignment"]
    rebuilt = rebuild(source(kind), release(kind), decoded.notebook)
    check_instructors_part(rebuilt, kind)
    assert all(done == (case["name"] != "base_untouched") for done in rebuilt.attempted.values())
    if case["name"].startswith(("struct_", "fmt_")):
        works(rebuilt)
        assert own_cells(rebuilt) == []
    flags = {"struct_points_changed": {"points_changed"}, "cheat_edited_tests_fixed_checksum": {"tests_edited"}}
    assert {flag.kind for flag in rebuilt.flags} == flags.get(case["name"], set())


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("struct_deleted_visible_test_cell", "q1_visible"),
        ("struct_deleted_hidden_test_cell", "q1_hidden"),
        ("struct_duplicated_test_cell", "q1_visible"),
        ("struct_split_solution_cell", "q1"),
        ("struct_moved_test_cell_above_solution", "移动"),
        ("struct_moved_solution_cell_to_end", "移动"),
        ("struct_all_cell_metadata_stripped", "标记"),
        ("struct_all_metadata_and_ids_lost", "标记"),
        ("struct_renamed_grade_id", "标记"),
        ("base_correct", None),
        ("fmt_crlf_sources", None),
    ],
)
def test_repairs_are_noted_and_only_repairs(name, word):
    notes = rebuild(
        source(), release(), decode_notebook((SUBMISSIONS / f"{name}.ipynb").read_bytes(), "x").notebook
    ).notes
    assert any(word in note for note in notes) if word else notes == ()


def positions(notebook) -> dict[str, int]:
    found = {}
    for index, c in enumerate(notebook["cells"]):
        grade_id = (c["metadata"].get("nbgrader") or {}).get("grade_id")
        if grade_id:
            found[grade_id] = index
    return found


def drop(notebook, *grade_ids):
    notebook["cells"] = [
        c for c in notebook["cells"] if (c["metadata"].get("nbgrader") or {}).get("grade_id") not in grade_ids
    ]


def insert_after(notebook, grade_id, *cells):
    at = positions(notebook)[grade_id] + 1
    notebook["cells"][at:at] = cells


def stub(grade_id):
    return cell(release(), grade_id)["source"]


def answer_in_new_cell_stub_left(nb):
    cell(nb, "q1")["source"] = stub("q1")
    insert_after(nb, "q1", code(RELU))


def answer_at_the_end_stub_left(nb):
    cell(nb, "q1")["source"] = stub("q1")
    nb["cells"].append(code(RELU))


def answer_above_the_stub(nb):
    cell(nb, "q1")["source"] = stub("q1")
    nb["cells"].insert(1, code(RELU))


def emptied_and_answered_below(nb):
    cell(nb, "q1")["source"] = ""
    nb["cells"].append(code(RELU))


def commented_out_and_answered_below(nb):
    cell(nb, "q1")["source"] = "# " + stub("q1").replace("\n", "\n# ")
    nb["cells"].append(code(RELU))


def stub_copied_below_with_mark(nb):
    copied = copy.deepcopy(cell(nb, "q1"))
    cell(nb, "q1")["source"] = stub("q1")
    insert_after(nb, "q1", copied)


def stub_kept_below_with_mark(nb):
    copied = copy.deepcopy(cell(nb, "q1"))
    copied["source"] = stub("q1")
    insert_after(nb, "q1", copied)


def wrong_try_then_right_copy(nb):
    copied = copy.deepcopy(cell(nb, "q1"))
    cell(nb, "q1")["source"] = "def relu_sum(xs):\n    return -1\n"
    insert_after(nb, "q1", copied)


def broken_try_then_right_copy(nb):
    copied = copy.deepcopy(cell(nb, "q1"))
    cell(nb, "q1")["source"] = "def relu_sum(xs)\n    return -1\n"
    insert_after(nb, "q1", copied)


def crashing_try_then_right_copy(nb):
    copied = copy.deepcopy(cell(nb, "q1"))
    cell(nb, "q1")["source"] = "def relu_sum(xs):\n    return -1\n1 / 0\n"
    insert_after(nb, "q1", copied)


def split_inside_the_function_with_mark(nb):
    first = cell(nb, "q1")
    second = copy.deepcopy(first)
    first["source"], second["source"] = (
        "def relu_sum(xs):\n    total = sum(max(x, 0) for x in xs)",
        "    return total\n",
    )
    insert_after(nb, "q1", second)


def split_inside_the_function_without_mark(nb):
    cell(nb, "q1")["source"] = "def relu_sum(xs):\n    total = sum(max(x, 0) for x in xs)"
    insert_after(nb, "q1", code("    return total\n"))


def split_helper_and_function(nb):
    first = cell(nb, "q1")
    second = copy.deepcopy(first)
    first["source"] = "def positive(x):\n    return max(x, 0)\n"
    second["source"] = "def relu_sum(xs):\n    return sum(map(positive, xs))\n"
    insert_after(nb, "q1", second)


def merged_both_questions(nb):
    cell(nb, "q1")["source"] = RELU + "\n\n" + MEAN
    drop(nb, "q2")


def merged_both_questions_stub_left(nb):
    cell(nb, "q1")["source"] = RELU + "\n\n" + MEAN
    cell(nb, "q2")["source"] = stub("q2")


def merged_into_the_second(nb):
    cell(nb, "q2")["source"] = "import math\n\n" + RELU + MEAN
    drop(nb, "q1")


def merged_solution_and_test(nb):
    cell(nb, "q1")["source"] += "\n" + cell(nb, "q1_visible")["source"]
    drop(nb, "q1_visible")


def merged_everything(nb):
    whole = "\n".join(c["source"] for c in nb["cells"] if c["cell_type"] == "code")
    nb["cells"] = [code(whole)]


def pasted_into_the_test(nb):
    cell(nb, "q1_visible")["source"] = RELU + cell(nb, "q1_visible")["source"]
    drop(nb, "q1")


def pasted_into_the_test_stub_left(nb):
    helper = "def positive(x):\n    return max(x, 0)\n"
    answer = "def relu_sum(xs):\n    return sum(map(positive, xs))\n"
    cell(nb, "q1_visible")["source"] = helper + answer + cell(nb, "q1_visible")["source"]
    cell(nb, "q1")["source"] = stub("q1")


def retyped(kind):
    def change(nb):
        c = cell(nb, "q1")
        c["cell_type"] = kind
        del c["outputs"], c["execution_count"]

    return change


def fenced_markdown(nb):
    retyped("markdown")(nb)
    cell(nb, "q1")["source"] = "My answer:\n\n```python\n" + RELU + "```\n\nDone."


def markdown_without_mark(nb):
    drop(nb, "q1")
    nb["cells"].insert(1, text("```\n" + RELU + "```"))


def markdown_with_prose_before(nb):
    drop(nb, "q1")
    nb["cells"].append(text("Here it comes:\n" + RELU))


def retyped_test(nb):
    c = cell(nb, "q2_test")
    c["cell_type"] = "raw"
    del c["outputs"], c["execution_count"]


def all_tests_deleted(nb):
    drop(nb, *TESTS)


def only_the_answers(nb):
    nb["cells"] = [code(MEAN), code(RELU)]


def reversed_order(nb):
    nb["cells"].reverse()


def shuffled_without_marks(nb):
    for c in nb["cells"]:
        c["metadata"] = {}
        c.pop("id")
    nb["cells"] = nb["cells"][::-1]


def marks_of_the_questions_swapped(nb):
    cell(nb, "q1")["source"], cell(nb, "q2")["source"] = MEAN, RELU


def second_question_in_a_copy_of_the_first(nb):
    copied = copy.deepcopy(cell(nb, "q1"))
    copied["source"] = MEAN
    drop(nb, "q2")
    insert_after(nb, "q1", copied)


def answer_through_an_alias(nb):
    cell(nb, "q1")["source"] = stub("q1")
    nb["cells"] += [code(RELU.replace("relu_sum", "mine")), code("relu_sum = mine\n")]


def grade_ids_renamed(nb):
    for number, c in enumerate(nb["cells"]):
        if "nbgrader" in c["metadata"]:
            c["metadata"]["nbgrader"]["grade_id"] = f"cell-{number}"


def ids_of_another_export(nb):
    grade_ids_renamed(nb)
    for number, c in enumerate(nb["cells"]):
        c["id"] = f"fresh{number}"


def stub_below_in_the_same_cell(nb):
    cell(nb, "q1")["source"] = RELU + "\n" + stub("q1") + "print('end')\n"


def whole_cell_indented(nb):
    drop(nb, "q1")
    nb["cells"].append(code("    " + MEAN.replace("\n", "\n    ")))
    cell(nb, "q2")["source"] = stub("q2")
    nb["cells"].append(code(RELU))


def helper_needed_while_defining_moved(nb):
    answer = "LIMIT = floor()\ndef relu_sum(xs):\n    return sum(max(x, LIMIT) for x in xs)\n"
    moved = copy.deepcopy(cell(nb, "q1"))
    moved["source"] = answer
    drop(nb, "q1")
    nb["cells"] += [code("def floor():\n    return 0\n"), moved]


DAMAGES = [
    answer_in_new_cell_stub_left, answer_at_the_end_stub_left, answer_above_the_stub, emptied_and_answered_below,
    commented_out_and_answered_below, stub_copied_below_with_mark, stub_kept_below_with_mark, wrong_try_then_right_copy,
    broken_try_then_right_copy, crashing_try_then_right_copy, split_inside_the_function_with_mark,
    split_inside_the_function_without_mark, split_helper_and_function, merged_both_questions,
    merged_both_questions_stub_left, merged_into_the_second, merged_solution_and_test, merged_everything,
    pasted_into_the_test, pasted_into_the_test_stub_left, retyped("markdown"), retyped("raw"), fenced_markdown,
    markdown_without_mark, markdown_with_prose_before, retyped_test, all_tests_deleted, only_the_answers,
    reversed_order, shuffled_without_marks, second_question_in_a_copy_of_the_first,
    stub_below_in_the_same_cell, answer_through_an_alias, grade_ids_renamed,
    ids_of_another_export, helper_needed_while_defining_moved,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_damage_costs_no_points_and_is_noted(damage):
    notebook = solved()
    damage(notebook)
    rebuilt = hand_in(notebook)
    works(rebuilt)
    assert rebuilt.notes


def test_nbgrader_accepts_the_result(tmp_path, monkeypatch):
    """OverwriteCells finds every cell of the gradebook in it, and changes no source."""
    scripts = Path(sys.executable).parent  # nbgrader calls alembic by its bare name
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")
    resources = {"nbgrader": {"notebook": "ps1", "assignment": "ps1", "db_url": f"sqlite:///{tmp_path}/g.db"}}
    with Gradebook(resources["nbgrader"]["db_url"]) as gradebook:
        gradebook.add_assignment("ps1")
    original = source()
    for step in (LockCells, ClearSolutions, ClearOutput, CheckCellMetadata, ComputeChecksums, SaveCells):
        original, _ = step().preprocess(original, resources)
    damaged = solved()
    drop(damaged, "q1_hidden", "q1")
    damaged["cells"].append(code(RELU))
    rebuilt = nbformat.from_dict(hand_in(damaged).notebook)
    before = [c["source"] for c in rebuilt["cells"]]
    after, _ = OverwriteCells().preprocess(copy.deepcopy(rebuilt), resources)
    assert [c["source"] for c in after["cells"]] == before
    assert set(positions(after)) == {"q1", "q2", *TESTS}


def test_an_indented_cell_is_code_as_ipython_takes_it():
    notebook = solved()
    whole_cell_indented(notebook)
    rebuilt = hand_in(notebook)
    assert rebuilt.attempted == {"q1": True, "q2": True}
    assert cell(rebuilt.notebook, "q2")["source"].startswith("    def mean_sq")


def test_answers_in_each_others_cells_still_define_both():
    notebook = solved()
    marks_of_the_questions_swapped(notebook)
    defined = run_students_code(hand_in(notebook))
    assert defined["relu_sum"]([1, -2]) == 1 and defined["mean_sq"]([2]) == 4


def test_magics_stay_where_they_are():
    notebook = solved()
    cell(notebook, "q1")["source"] = "%%time\n" + RELU
    insert_after(notebook, "q1", code("%%bash\necho hi"), code("!pip install x"))
    rebuilt = hand_in(notebook)
    check_instructors_part(rebuilt)
    assert cell(rebuilt.notebook, "q1")["source"] == "%%time\n" + RELU and rebuilt.attempted["q1"]
    assert own_cells(rebuilt) == ["%%bash\necho hi", "!pip install x"]


def test_own_cells_keep_their_place_and_lose_every_mark():
    notebook = solved()
    forged = {"grade_id": "q9", "grade": True, "points": 50, "solution": False, "locked": True, "schema_version": 3}
    insert_after(notebook, "q1", code("helper = 1", nbgrader=forged, tags=["settings"]))
    notebook["cells"].append(code("last = 2"))
    rebuilt = hand_in(notebook)
    check_instructors_part(rebuilt)
    order = [c["source"] for c in rebuilt.notebook["cells"]]
    assert order.index("helper = 1") == order.index(RELU) + 1 and order[-1] == "last = 2"


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s + "\n\n",
        lambda s: s.replace("\n", "\r\n"),
        lambda s: s.rstrip("\n"),
        lambda s: s.replace("([1, -2, 3])", "(\n    [1, -2, 3],\n)"),
        lambda s: s.replace("# visible test (2 points)", "# I read this"),
        lambda s: s.replace(" == ", "  ==  "),
        lambda s: "",
    ],
)
def test_formatting_of_a_test_is_no_edit(change):
    notebook = solved()
    cell(notebook, "q1_visible")["source"] = change(cell(notebook, "q1_visible")["source"])
    assert hand_in(notebook).flags == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda s: "pass\n",
        lambda s: s.replace("== 4", "== 5"),
        lambda s: s.replace("assert", "# assert"),
        lambda s: s + "print('passed')\n",
        lambda s: "def assert_(x): pass\n" + s,
    ],
)
def test_an_edited_test_is_flagged_and_replaced(change):
    notebook = solved()
    cell(notebook, "q1_visible")["source"] = change(cell(notebook, "q1_visible")["source"])
    rebuilt = hand_in(notebook)
    works(rebuilt)
    assert [flag.kind for flag in rebuilt.flags] == ["tests_edited"]
    assert own_cells(rebuilt) == []


def test_the_instructors_own_notebook_is_a_hand_in_without_flags():
    rebuilt = hand_in(source())
    check_instructors_part(rebuilt)
    assert rebuilt.flags == () and all(rebuilt.attempted.values())


@pytest.mark.parametrize(
    ("answer", "attempted"),
    [
        ("{stub}", False),
        ("{stub}\n\n\n", False),
        ("# my name is Amy\n{stub}", False),
        ("", False),
        ("# TODO\n", False),
        ("def relu_sum(xs):\n    pass\n", True),
        ("def relu_sum(xs)\n    return 1", True),
        ("print('hi')", True),
    ],
)
def test_attempted(answer, attempted):
    notebook = release()
    cell(notebook, "q1")["source"] = answer.format(stub=stub("q1"))
    rebuilt = hand_in(notebook)
    check_instructors_part(rebuilt)
    assert rebuilt.attempted == {"q1": attempted, "q2": False}
    if not attempted:
        assert cell(rebuilt.notebook, "q1")["source"] == stub("q1")


@pytest.mark.parametrize(
    "cells",
    [[], [code("x = 1")], [text("```python\ny = 2\n```")], [code(RELU)]],
    ids=["none", "other code", "text", "answer"],
)
def test_no_reference_solution_ever_comes_back(cells):
    rebuilt = rebuild(source(), release(), {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    check_instructors_part(rebuilt)
    everything = "\n".join(c["source"] for c in rebuilt.notebook["cells"])
    assert not any(piece in everything for piece in REFERENCE)


def test_line_numbers_of_the_student_are_kept():
    notebook = solved()
    answer = "\n\n# first\n" + RELU + "\n\n"
    cell(notebook, "q1")["source"] = answer
    assert cell(hand_in(notebook).notebook, "q1")["source"] == answer


def rich_source():
    """A source with every kind of cell."""
    notebook = source()
    mark = {"schema_version": 3, "task": False, "grade": False, "solution": False, "locked": True}
    cells = notebook["cells"]
    cells.insert(1, code("import math\nSCALE = 2\n"))
    cells.insert(2, code("def probe(f):\n    return f([1])\n", nbgrader={**mark, "grade_id": "probe"}))
    cells.insert(4, text("The answer is sum(x if x > 0 else 0 for x in xs)."))
    cells[4]["metadata"]["tags"] = ["instructor-only"]
    cells.insert(5, code("check = sum(x * x for x in [1])", tags=["instructor-only"]))
    cells.append(code("RUN_MODE = 'dry_run'\n", tags=["settings"]))
    essay = text("### BEGIN SOLUTION\nBecause of caching.\n### END SOLUTION")
    essay["metadata"]["nbgrader"] = {
        **mark,
        "locked": False,
        "solution": True,
        "grade": True,
        "points": 4,
        "grade_id": "why",
    }
    cells.append(essay)
    for number, c in enumerate(cells):
        c["id"] = c["id"] if c["id"].startswith(("c-", "intro")) else f"rich-{number}"
    released = release_of(notebook)
    released["cells"] = [c for c in released["cells"] if "instructor-only" not in c["metadata"].get("tags", [])]
    return notebook, released


def by_start(rebuilt, start):
    return [c["source"] for c in rebuilt.notebook["cells"] if c["source"].startswith(start)]


def test_every_kind_of_cell_comes_from_the_right_side():
    original, released = rich_source()
    submitted = copy.deepcopy(released)
    submitted["cells"][1]["source"] = "import math\nSCALE = 3\n"
    cell(submitted, "probe")["source"] = "def probe(f):\n    return 'forged'\n"
    submitted["cells"][-2]["source"] = "RUN_MODE = 'real_gpu'\n"
    cell(submitted, "why")["source"] = "Because I measured it."
    cell(submitted, "why")["attachments"] = {"a.png": {"image/png": "aGk="}}
    rebuilt = rebuild(original, released, submitted)
    nbformat.validate(rebuilt.notebook)
    assert by_start(rebuilt, "import math") == ["import math\nSCALE = 3\n"]
    assert cell(rebuilt.notebook, "probe")["source"] == "def probe(f):\n    return f([1])\n"
    assert by_start(rebuilt, "RUN_MODE") == ["RUN_MODE = 'dry_run'\n"]
    assert cell(rebuilt.notebook, "why")["source"] == "Because I measured it."
    assert "attachments" in cell(rebuilt.notebook, "why")
    assert not by_start(rebuilt, "The answer") and not by_start(rebuilt, "check =")
    assert [flag.kind for flag in rebuilt.flags] == ["tests_edited"]
    assert rebuilt.attempted == {"q1": False, "q2": False, "why": True}


def test_the_id_alone_finds_a_rewritten_given_cell():
    original, released = rich_source()
    submitted = copy.deepcopy(released)
    submitted["cells"][1]["source"] = "from math import *\nfactor = [10, 20]\n"
    rebuilt = rebuild(original, released, submitted)
    assert by_start(rebuilt, "from math") and not by_start(rebuilt, "import math") and own_cells(rebuilt) == []


def test_an_instructor_only_cell_with_a_mark_stays_away():
    original, released = rich_source()
    mark = {"schema_version": 3, "task": False, "grade": False, "solution": True, "locked": False, "grade_id": "model"}
    original["cells"].insert(3, code("model_answer = 4", nbgrader=mark, tags=["instructor-only"]))
    rebuilt = rebuild(original, released, released)
    assert not by_start(rebuilt, "model_answer") and "model" not in rebuilt.attempted


@pytest.mark.parametrize("how", ["deleted", "emptied", "prose"])
def test_a_lost_given_cell_comes_from_the_release(how):
    original, released = rich_source()
    submitted = copy.deepcopy(released)
    if how == "deleted":
        del submitted["cells"][1]
    else:
        submitted["cells"][1]["source"] = ""
    if how == "prose":
        submitted["cells"][1] = {**text("I removed this on purpose!"), "id": submitted["cells"][1]["id"]}
    rebuilt = rebuild(original, released, submitted)
    assert by_start(rebuilt, "import math") == ["import math\nSCALE = 2\n"]
    assert any("给定" in note for note in rebuilt.notes)


def test_an_older_release_still_finds_its_questions():
    notebook = solved()
    cell(notebook, "q1_visible")["source"] = "assert relu_sum([1]) == 1\n"
    drop(notebook, "q1_hidden")
    notebook["cells"].insert(0, text("Version 0.9"))
    works(hand_in(notebook))


def test_points_and_forged_grades_are_flagged():
    notebook = solved()
    cell(notebook, "q2_test")["metadata"]["nbgrader"]["points"] = 500
    cell(notebook, "q1")["metadata"]["nbgrader"] |= {"grade": True, "points": 90}
    rebuilt = hand_in(notebook)
    works(rebuilt)
    assert sorted(flag.kind for flag in rebuilt.flags) == ["points_changed", "points_changed"]


@pytest.mark.parametrize(
    "hostile",
    ["(" * 5000, "x" + ".a" * 50_000, "-" * 100_000 + "1", "\n" * 50_000, " " * 90_000, "'''" * 999, "%%" * 5000,
     "? " * 50_000, "\\\n" * 30_000, "def relu_sum(xs):\n" + " if 1:\n" * 200, "\x0c\x1b[2J", "lambda:" * 20_000],
    ids=lambda text: repr(text[:6]),
)  # fmt: skip
@pytest.mark.timeout(60)
def test_hostile_code_stops_nothing(hostile):
    notebook = solved()
    cell(notebook, "q1")["source"] = hostile
    notebook["cells"].insert(1, code(hostile))
    notebook["cells"].append(text(hostile))
    check_instructors_part(hand_in(notebook))


@pytest.mark.timeout(100)
def test_thousands_of_cells_take_no_minutes():
    notebook = solved()
    notebook["cells"] += [code(f"def relu_sum_{n}(xs):\n    return {n} + sum(xs)\n") for n in range(3000)]
    rebuilt = hand_in(notebook)
    works(rebuilt)
    assert len(own_cells(rebuilt)) == 3000


def test_a_hand_in_made_from_an_older_release_is_no_crowd_of_flags():
    """Its tests differ from ours because we changed them; one flag of each kind says so."""
    ours, submitted = release(), solved()
    for notebook, stamp in ((ours, "new"), (submitted, "old")):
        notebook["metadata"]["course"] = {"chapter": "ps1", "release": stamp}
    for grade_id in ("q1_visible", "q2_test"):
        cell(submitted, grade_id)["source"] = "assert relu_sum([1]) == 1"
        cell(submitted, grade_id)["metadata"]["nbgrader"]["points"] = 1
    rebuilt = rebuild(source(), ours, submitted)
    works(rebuilt)
    assert sorted(flag.kind for flag in rebuilt.flags) == ["points_changed", "tests_edited"]
    assert any("另一版发布" in note for note in rebuilt.notes)
    submitted["metadata"]["course"]["release"] = "new"
    flags = rebuild(source(), ours, submitted).flags
    assert sorted(flag.kind for flag in flags) == ["points_changed"] * 2 + ["tests_edited"] * 2
