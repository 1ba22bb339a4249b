"""Release checks: what must be refused is refused, naming cell and remedy, and good notebooks pass."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import nbformat
import pytest

from grader.authoring.checks import check_all, check_folder
from grader.authoring.checks.chapter import check_code
from grader.authoring.checks.finding import Finding, refuse
from grader.authoring.checks.leaks import check_leaks, is_distinctive
from grader.authoring.checks.links import check_links
from grader.authoring.checks.markers import check_markers, mistyped
from grader.authoring.master import read_master
from grader.authoring.release import load_source, release, release_notebook
from grader.errors import GraderError
from grader.tests.demo_course import edit, make_course, settings_of

B, E = "### BEGIN SOLUTION", "### END SOLUTION"
HB, HE = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
ASSIGNMENTS = Path(__file__).parent / "cases" / "assignment"


def code(source: str, grade_id: str | None = None, **block: object) -> nbformat.NotebookNode:
    """A code cell, with nbgrader metadata if it has a grade_id."""
    cell = nbformat.v4.new_code_cell(source)
    if grade_id:
        base = {"grade": False, "solution": False, "locked": True, "schema_version": 3, "task": False}
        cell.metadata["nbgrader"] = nbformat.from_dict({**base, "grade_id": grade_id, **block})
    return cell


def answer(source: str = "def f(x):\n    ### BEGIN SOLUTION\n    return 2 * x\n    ### END SOLUTION"):
    return code(source, "q", solution=True, locked=False)


def graded(source: str, points: object = 4, grade_id: str = "t") -> nbformat.NotebookNode:
    return code(source, grade_id, grade=True, points=points)


def text(source: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(source)


def notebook(*cells: nbformat.NotebookNode) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=list(cells))


def causes(*cells: nbformat.NotebookNode) -> str:
    return "\n".join(map(str, check_all(notebook(*cells), "nb")))


# --- the two assignments of the cases


def test_ps1_is_accepted(tmp_path: Path) -> None:
    assert release(ASSIGNMENTS / "ps1" / "ps1.ipynb", tmp_path).exists()


def test_ps2_is_refused_for_exactly_its_wrong_cells(tmp_path: Path) -> None:
    findings = check_all(load_source(ASSIGNMENTS / "ps2" / "ps1.ipynb"), "ps2")
    assert [finding.cell[0] for finding in findings] == ["c", "d", "e", "f", "g"]
    assert all(finding.cause and finding.remedy for finding in findings)
    with pytest.raises(GraderError, match="c_partial_npfloat"):
        release(ASSIGNMENTS / "ps2" / "ps1.ipynb", tmp_path)
    assert not list(tmp_path.iterdir())


# --- the last value of a graded cell

GOOD_LAST_LINES = [
    # A caught assert, a comparison and a helper that do cost points.
    "score = 0\ntry:\n    assert f(1) == 2\n    score += 4\nexcept AssertionError:\n    pass\nfloat(score)",
    "wrong = []\ntry:\n    assert f(1) == 2\nexcept AssertionError as e:\n    wrong.append(e)\nassert not wrong",
    "right = False\ntry:\n    assert f(1) == 2\n    right = True\nexcept AssertionError:\n    pass\nassert right",
    "try:\n    assert f(1) == 2\nexcept AssertionError:\n    raise AssertionError('read step 1 again')",
    "try:\n    [] < f\nexcept TypeError:\n    assert f(1) == 2",
    "assert f(1) == 2, (1, 2)",
    "def a():\n    assert f(1) == 2\n\ndef b():\n    a()\n\nfor check in (b,):\n    check()",
    "def a():\n    assert f(1) == 2\n\nglobals()['a']()",
    "def a():\n    assert f(1) == 2\n\na()\n\ndef a():\n    assert f(2) == 4\n\na()",
    "assert f(1) == 2",
    "float(sum([f(1) == 2, f(2) == 4]))",
    "ok = [f(i) == 2 * i for i in range(4)]\nfloat(sum(ok))",
    "score = 0.0\nfor i in range(4):\n    if f(i) == 2 * i:\n        score += 1.0\nscore",
    "score = 0\nif f(1) == 2:\n    score += 4\nfloat(score)",
    "max(0.0, 4.0 - float(f(0)))",
    "4.0 if f(1) == 2 else 0.0",
    "points = [2.0 if f(i) == 2 * i else 0.0 for i in (1, 2)]\nsum(points)",
    "points = []\nfor i in (1, 2):\n    points.append(2.0 * float(f(i) == 2 * i))\nsum(points)",
    "import math\nmath.fsum(1.0 for i in range(4) if f(i) == 2 * i)",
    "def check():\n    assert f(1) == 2\n\ncheck()",
    "def check():\n    return 4.0 if f(1) == 2 else 0.0\n\ncheck()",
    "def check():\n    passed = 0\n    if f(1) == 2:\n        passed += 4\n    return float(passed)\n\ncheck()",
    "import unittest\nunittest.TestCase().assertEqual(f(1), 2)",
    "assert f(1) == 2\nprint('ok')",
    "assert f(1) == 2\nx = 5",
    "assert f(1) == 2\n[1].append(2)",
    "assert f(1) == 2\nf(3);",
    "len([i for i in range(4) if f(i) == 2 * i])",
    "round(4.0 * float(f(1) == 2), 2)",
    "%matplotlib inline\nassert f(1) == 2",
]


@pytest.mark.parametrize("source", GOOD_LAST_LINES)
def test_a_test_that_nbgrader_reads_well_is_accepted(source: str) -> None:
    assert causes(answer(), graded(source)) == ""


def test_partial_credit_from_a_variable_needs_no_call() -> None:
    variable = answer("x = 0\n### BEGIN SOLUTION\nx = 3\n### END SOLUTION")
    assert causes(variable, graded("float(x == 3) * 4")) == ""


BAD_LAST_LINES = [
    ("def check():\n    assert f(1) == 2", "calls nothing"),
    ("# only a comment", "calls nothing"),
    ("import math\nLIMIT = 3", "calls nothing"),
    ("def check():\n    assert f(1) == 2\n\ncheck", "calls nothing"),
    ("def check():\n    pass\n\ncheck()", "calls nothing"),
    ("if False:\n    assert f(1) == 2", "calls nothing"),
    ("class T:\n    def test(self):\n        assert f(1) == 2", "calls nothing"),
    ("check = lambda: f(1)", "calls nothing"),
    ("assert True", "calls nothing"),
    ("print('tests follow')", "calls nothing"),
    ("def check():\n    assert f(1) == 2\n\nassert f(0) == 0\ncheck", "not called"),
    ("f(1) == 2", "bool|depends"),
    ("f(1)", "depends on the answer"),
    ("y = f(1)\ny", "depends on the answer"),
    ("bool(f(1))", "bool"),
    ("not f(0)", "bool"),
    ("'passed' if f(1) == 2 else 'FAILED'", "text"),
    ("f'{f(1)} of 2'", "a string"),
    ("1.0 if f(1) == 2 else 'FAILED'", "text"),
    ("True if f(1) == 2 else 0.0", "bool"),
    ("[f(1)]", "a list"),
    ("sum([f(1) == 2, f(2) == 4]) - 1", "negative|depends"),
    ("ok = sum([float(f(1)) == 2, float(f(2)) == 4])\nok - 1", "negative"),
    ("float(f(1)) - 2.0", "negative"),
    ("score = 4.0\nif f(1) != 2:\n    score -= 5\nscore", "negative"),
    ("float(-1 if f(1) != 2 else 4)", "negative"),
    ("def check():\n    return 'FAILED' if f(1) != 2 else None\n\ncheck()", "text"),
    ("def check():\n    return f(1) == 2\n\ncheck()", "bool|plain"),
    ("def check():\n    yield f(1)\n\nassert f(0) == 0\ncheck()", "generator"),
    ("import unittest\nunittest.TestCase().assertRaises(ValueError)", "never entered"),
    (
        "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 2)\n\n"
        "r = unittest.main(argv=[''], exit=False)",
        "without raising",
    ),
    ("float(f(1) == 2) * 4;", "semicolon"),
    ("float(f(4))", "outside 0 to 4"),
    ("float('nan') if f(1) == 2 else 0.0", "outside 0 to 4"),
    ("import fractions\nfractions.Fraction(f(1), 2)", "Fraction"),
    ("assert f(1) == 3", "the reference itself fails"),
    ("assert f(1) ==", "no valid Python"),
    ("try:\n    assert f(1) == 2\nexcept Exception:\n    print('wrong')", "caught here"),
    ("try:\n    assert f(1) == 2\nexcept AssertionError:\n    pass", "caught here"),
    (
        "def check():\n    try:\n        assert f(1) == 2\n    except (AssertionError, TypeError) as e:\n"
        "        print(e)\n\ncheck()",
        "caught here",
    ),
    ("try:\n    f('bad')\n    assert False, 'must raise'\nexcept Exception:\n    pass", "caught here"),
    ("import contextlib\nwith contextlib.suppress(AssertionError):\n    assert f(1) == 2", "suppress hides"),
    ("assert (f(1) == 2, 'twice')", "always true"),
    ("assert f(1), 2", "for its message"),
    ("import unittest\ntc = unittest.TestCase()\ntc.assertTrue(f(1), 2)", "for its message"),
    ("f(1) == 2\nassert f(2) == 4", "nothing looks at the result"),
    ("def check():\n    f(1) == 2\n\nassert f(2) == 4\ncheck()", "nothing looks at the result"),
    ("print(f(1) == 2)", "compares nothing"),
    ("got = f(1)\nprint(got)", "compares nothing"),
    ("def a():\n    assert f(1) == 2\n\ndef b():\n    assert f(2) == 4\n\na()", "b holds asserts and is never called"),
    ("def a():\n    assert f(1) == 2\n\ndef a():\n    assert f(2) == 4\n\na()", "defined twice"),
    ("import doctest\ndoctest.run_docstring_examples(f, globals())", "without raising"),
    ("import pytest\nstatus = pytest.main(['-q'])", "without raising"),
]


@pytest.mark.parametrize(("source", "cause"), BAD_LAST_LINES)
def test_a_test_that_nbgrader_misreads_is_refused(source: str, cause: str) -> None:
    findings = check_all(notebook(answer(), graded(source)), "nb")
    assert [finding.cell for finding in findings] == ["t"]
    assert any(part in findings[0].cause for part in cause.split("|")), findings[0].cause
    assert findings[0].remedy


def test_numpy_values_are_refused_by_running_the_reference() -> None:
    """What the syntax does not tell: a library's function that returns an array scalar."""
    found = causes(answer(), graded("import numpy as np\nassert f(1) == 2\nnp.mean([1.0, 2.0])"))
    assert "numpy.float64" in found


def test_a_failing_reference_is_shown_by_its_line() -> None:
    """A bare assert has no words of its own."""
    assert "AssertionError: assert f(3) == 7" in causes(answer(), graded("assert f(1) == 2\nassert f(3) == 7"))


def test_a_helper_of_an_earlier_cell_is_read_too() -> None:
    helper = code("def judge(value):\n    return 'wrong'", "helper")
    assert "text 'wrong'" in causes(answer(), helper, graded("judge(f(1))"))


def test_a_cell_graded_by_hand_may_hold_anything() -> None:
    manual = code(
        "### BEGIN SOLUTION\n'words'\n### END SOLUTION", "m", grade=True, solution=True, locked=False, points=2
    )
    assert causes(manual) == ""


def test_a_check_may_be_called_in_a_later_cell() -> None:
    first = graded("def later():\n    assert f(2) == 4\n\nassert f(1) == 2")
    assert causes(answer(), first, graded("later()", 4, "t2")) == ""


# --- what the release leaves behind


STRANDED = [
    # The stub takes the marker's indentation.
    ([answer(f"def f(x):\n{B}\n    return 2 * x\n{E}"), graded("assert f(1) == 2")], "cell q: without the removed"),
    ([answer(), graded(f"assert f(1) == 2\nif True:\n    {HB}\n    assert f(2) == 4\n    {HE}")], "cell t: without"),
    (
        [answer(), graded(f"{HB}\ndef same(a, b):\n    assert a == b\n\nsame(f(9), 18)\n{HE}\nsame(f(1), 2)")],
        "cell t: it uses same, which the release removes",
    ),
    (
        [
            answer(f"{B}\nimport math\n{E}\ndef f(x):\n    {B}\n    return math.fsum([x, x])\n    {E}"),
            graded("assert math.isclose(f(1), 2)"),
        ],
        "cell t: it uses math, which only a solution imports",
    ),
    ([answer(), code("open('data.csv')"), graded("assert f(1) == 2")], "it reads a file that students don't get"),
]


@pytest.mark.parametrize(("cells", "cause"), STRANDED)
def test_cells_that_no_answer_could_make_run_are_refused(cells: list, cause: str) -> None:
    assert cause in causes(*cells)


def test_what_students_are_asked_to_define_may_be_used() -> None:
    """A name that a solution binds is the answer; a module that the test imports too is there for every answer."""
    asked = answer(f"{B}\nimport math\nlimit = math.floor(2.5)\n{E}")
    assert causes(asked, graded("import math\nassert limit == math.floor(2.5)")) == ""
    assert causes(code("import math"), asked, graded("assert limit == math.floor(2.5)")) == ""


# --- ids and points


@pytest.mark.parametrize(
    ("points", "shown"), [(0, "0"), (-2, "-2"), (None, "missing"), (True, "True"), (float("nan"), "nan")]
)
def test_points_must_be_positive_numbers(points: object, shown: str) -> None:
    cell = graded("assert f(1) == 2", points)
    if points is None:
        del cell.metadata.nbgrader["points"]
    assert f"cell t: its points are {shown}" in causes(answer(), cell)


def test_a_grade_id_is_used_once() -> None:
    found = causes(answer(), graded("assert f(1) == 2"), graded("assert f(2) == 4"))
    assert "cell t: the grade_id 't' is used twice" in found


# --- markers

MISTYPED = [
    "### BEGIN HIDDEN TEST",
    "### BEGIN SOLUTIONS",
    "### begin solution",
    "### Begin Hidden Tests",
    "### BEGIN  SOLUTION",
    "### BEGIN_SOLUTION",
    "### BEGIN SOLUTON",
    "### BEGN SOLUTION",
    "### BEGIN HIDEN TESTS",
    "### START SOLUTION",
    "### END HIDDENTESTS",
    "### BEGIN TESTS",
    "### END SOLUTION.",
    "x = 1  ### BEGIN SOLUTION",
    "### BEGIN SOLUTION: mine",
    "### BEGINSOLUTION",
    "### BEGIN\u00a0SOLUTION",
    "### BEGIN HIDDEN\u200b TESTS",
    "\ufeff### END SOLUTION\u200b",
]


@pytest.mark.parametrize("line", MISTYPED)
def test_mistyped_markers_are_refused(line: str) -> None:
    found = [str(f) for f in check_markers(notebook(code(f"def f(x):\n    {line}\n    return 2 * x")))]
    assert found and "mistyped marker" in found[0] and "write exactly `### " in found[0]


@pytest.mark.parametrize("hashes", ["# ", "## ", "###", "#### "])
def test_any_number_of_hashes_is_a_marker(hashes: str) -> None:
    """nbgrader's own courses write them so; it looks for the words alone."""
    cell = answer(f"def f(x):\n    {hashes}BEGIN SOLUTION\n    return 2 * x\n    {hashes}END SOLUTION")
    assert check_markers(notebook(cell)) == []


@pytest.mark.parametrize(
    "line",
    [
        "# hidden tests",
        "# the solution",
        "# begin with the longest",
        "end = start + 1",
        "# Solution",
        "# hidden test (3 points)",
        "# add solution cells",
        "# tests",
        "solution = begin(1)",
        "# 在这里开始",
        "begin_solution = 1",
        "# ending",
        "# start",
    ],
)
def test_ordinary_comments_are_no_markers(line: str) -> None:
    assert mistyped(line, code=True) is None


def test_prose_about_solutions_is_no_marker() -> None:
    for line in ("## Solution", "Begin with the solution of part one.", "The end", "## Hidden tests", "# Tests"):
        assert mistyped(line, code=False) is None


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([B, "x = 1"], "without END SOLUTION"),
        (["x = 1", E], "without BEGIN SOLUTION"),
        ([E, "x = 1", B], "without BEGIN SOLUTION"),
        ([B, B, "x = 1", E], "inside a SOLUTION region"),
        ([B, HB, HE, E], "inside a SOLUTION region"),
        ([B, "x = 1", HE], "without BEGIN HIDDEN TESTS"),
        ([HB, "assert f(1)", HE], "not a graded cell"),
    ],
)
def test_markers_out_of_order_or_place_are_refused(lines: list[str], cause: str) -> None:
    assert cause in causes(answer("\n".join(lines)))


def test_a_solution_marker_in_a_test_cell_is_refused() -> None:
    assert "cell t: BEGIN SOLUTION in a cell that is not a solution cell" in causes(answer(), graded(f"{B}\nf(1)\n{E}"))


def test_markers_in_text_cells_are_refused() -> None:
    assert "not a solution cell" in causes(text(f"{B}\nthe answer\n{E}"))


# --- leaks

SECRET = "def f(xs):\n    ### BEGIN SOLUTION\n    return sum(x if x > 0 else 0 for x in xs)\n    ### END SOLUTION"
HIDDEN = "assert f([1]) == 1\n### BEGIN HIDDEN TESTS\nassert f([-5, 20, 21]) == 41\n### END HIDDEN TESTS"


def leaks(*more: nbformat.NotebookNode, change=lambda nb: None) -> str:
    source = notebook(answer(SECRET), graded(HIDDEN), *more)
    change(source)
    return "\n".join(map(str, check_leaks(source, release_notebook(source, "nb"))))


def test_a_clean_release_has_no_leak() -> None:
    assert leaks(text("Sum the positive values."), code("xs = [1, 2]\nprint(xs)")) == ""


@pytest.mark.parametrize(
    "cell",
    [
        text("Reference: `return sum(x if x > 0 else 0 for x in xs)`"),
        text("```python\nreturn sum(x if x > 0\n   else 0 for x in xs)\n```"),
        code("def g(xs):\n    return sum(x if x > 0 else 0 for x in xs)"),
        code("# assert f([-5, 20, 21]) == 41"),
        text("We also check `assert f([-5, 20, 21]) == 41`."),
    ],
)
def test_removed_text_in_any_cell_is_found(cell: nbformat.NotebookNode) -> None:
    assert "text of cell" in leaks(cell)


def test_removed_text_in_metadata_and_attachments_is_found() -> None:
    line = "assert f([-5, 20, 21]) == 41"

    def metadata(nb) -> None:
        nb.metadata["notes"] = {"todo": [line]}

    def cell_metadata(nb) -> None:
        nb.cells[1].metadata["comment"] = line

    def attachment(nb) -> None:
        nb.cells[2]["attachments"] = {"a.txt": {"text/plain": base64.b64encode(line.encode()).decode()}}

    for change in (metadata, cell_metadata, attachment):
        assert "hidden test text" in leaks(text("![words](attachment:a.txt)"), change=change)


def test_instructor_only_text_elsewhere_is_found() -> None:
    explanation = text("Longest pattern first, because a shorter one would use up its nodes.")
    explanation.metadata["tags"] = ["instructor-only"]
    copy = text("Hint: longest pattern first, because a shorter one would use up its nodes.".replace("l", "L", 1))
    assert "instructor-only text" in leaks(explanation, copy)


def test_set_up_that_a_visible_test_shares_is_no_leak() -> None:
    shared = "workload = make_workload(seq_len=128, dtype='float16')"
    source = notebook(
        answer(SECRET), graded(f"{shared}\nassert f([1]) == 1\n{HB}\n{shared}\nassert f([9, -4]) == 9\n{HE}")
    )
    assert check_leaks(source, release_notebook(source, "nb")) == []


@pytest.mark.parametrize(
    "line", ["else:", "import math", "for candidate in candidates:", "x = 1", "reasons = []", "", "return result"]
)
def test_lines_found_in_any_program_are_not_distinctive(line: str) -> None:
    assert not is_distinctive(line)


@pytest.mark.parametrize(
    "cell",
    [
        text("Hint: try f([-5, 20, 21])."),
        text("提示：输入 `[-5,20,21]` 时会怎样？"),
        text("| input |\n|---|\n| [ -5, 20, 21, ] |"),
        code("# for instance [-5, 20, 21]\nxs = [1]"),
        code("def g(xs):\n    'Like f([-5, 20, 21]).'"),
        code("assert xs, 'think of [-5, 20, 21]'"),
    ],
)
def test_a_value_of_a_hidden_test_in_a_hint_is_found(cell: nbformat.NotebookNode) -> None:
    assert "[-5,20,21]" in leaks(cell) and "a value of the hidden test in cell t" in leaks(cell)


@pytest.mark.parametrize(
    "cell",
    [
        text("[-5, 20, 21, 22] and [1, -5, 20, 21] are other lists; so is [-5, 20, 211]."),
        code("xs = [-5, 20, 21]  # students see it as data: [-5, 20, 21]"),
        text("41"),
    ],
)
def test_what_only_resembles_a_hidden_value_or_is_given_data_is_no_leak(cell: nbformat.NotebookNode) -> None:
    assert "a value of the hidden test" not in leaks(cell)


# --- links and alt texts

GOOD_TEXT = [
    "![a plot](https://example.org/x.png)",
    '<img src="https://example.org/x.png" alt="a plot">',
    "[site](https://example.org)",
    "# Part one\n[up](#Part-one)",
    '<a id="x"></a>\n[up](#x)',
    "`![](x.png)`",
    "```\n![](x.png) [a](b.md)\n```",
    "[pinned](https://github.com/lab/kit/blob/main/assets/figures/09_boxes.svg)",
    "[mail](mailto:a@example.org)",
    "[built](https://colab.research.google.com/github/lab/kit/blob/main/notebooks/09_demo/09_demo.ipynb)",
    "[![badge](https://example.org/b.svg)](https://example.org)",
    "`a[1](2)` is code",
]
BAD_TEXT = [
    ("![](https://example.org/x.png)", "no alt text"),
    ("![ ](https://example.org/x.png)", "no alt text"),
    ('<img src="https://example.org/x.png">', "no alt text"),
    ('<img alt="" src="https://example.org/x.png"/>', "no alt text"),
    ("[data](data.csv)", "relative link 'data.csv' is dead"),
    ("![plot](../x.png)", "relative link"),
    ('<a href="other.ipynb">next</a>', "relative link"),
    ("[x]\n\n[x]: notes.md", "relative link"),
    ("[x](<my notes.md>)", "relative link"),
    ("[x](/data/x.png)", "relative link"),
    ("[x](file:///x.png)", "relative link"),
    ("[x](#nowhere)", "no heading"),
    ("[gone](https://github.com/lab/kit/blob/main/assets/gone.png)", "not in this repository"),
    ("![gone](https://raw.githubusercontent.com/lab/kit/main/assets/gone.png)", "not in this repository"),
    ("[![](https://example.org/b.svg)](https://example.org)", "no alt text"),
    ("[![badge](b.svg)](https://example.org)", "relative"),
    ("![x](attachment:y.png)", "does not exist"),
    ("[x]()", "without an address"),
    ("![image.png](https://example.org/x.png)", "has only a file name for its alt text"),
    ("[x](http://localhost:8888/lab)", "can't reach"),
    ("[x](https://192.168.1.5/data)", "can't reach"),
    ("[x](htps://example.org)", "no kind of address"),
    ("[x](C:\\data\\x.png)", "relative link"),
]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("tree")
    make_course(root)
    return settings_of(root)


@pytest.mark.parametrize("source", GOOD_TEXT)
def test_good_links_and_images_pass(source: str, settings) -> None:
    assert check_links(notebook(text(source)), settings) == []


@pytest.mark.parametrize(("source", "cause"), BAD_TEXT)
def test_dead_links_and_missing_alt_texts_are_refused(source: str, cause: str, settings) -> None:
    found = "\n".join(map(str, check_links(notebook(text(source)), settings)))
    assert cause in found


# --- other files


def test_any_other_file_in_a_release_is_found(tmp_path: Path) -> None:
    (tmp_path / ".ipynb_checkpoints").mkdir()
    for name in ("nb.ipynb", "nb.py", ".ipynb_checkpoints/nb-checkpoint.ipynb"):
        (tmp_path / name).write_text("", "utf-8")
    assert [finding.cause for finding in check_folder(tmp_path, "nb")] == ["the release holds another file: nb.py"]


# --- the chapter format


def test_the_demo_chapter_passes(tmp_path: Path) -> None:
    master = make_course(tmp_path)
    assert check_all(read_master(master, settings_of(tmp_path)), "09_demo", settings=settings_of(tmp_path)) == []


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ('stub="请先完成 TODO 1：乘以 2" ', "", "todo1: the TODO has no stub"),
        ("# %% 乘以 2 todo=1", "# %% todo=1", "todo1: the cell has no title"),
        (' step="步骤 1"', "", "todo1_values: the graded cell does not say which step"),
        ("结果乘以 2 todo=1", "结果乘以 2", "todo1_values: the cell does not say its TODO"),
        ('"points": 40', '"points": 41', "add up to 101"),
        ('tags=["reader"]', "", "no cell is tagged 'reader'"),
        ('slug="explain-2" todo=2 tags', 'slug="explain-2" tags', "TODO 2 has no instructor-only explanation"),
        ("import json\n", "import json\nimport numpy\n", "reader: it imports numpy"),
        ("import json\n", "import json\ntype Alias = int\n", "reader: "),
        ('todo=3 stub="请先完成 TODO 3', 'todo=2 stub="请先完成 TODO 3', "solution cells are TODO"),
    ],
)
def test_what_the_chapter_format_asks_is_checked(tmp_path: Path, old: str, new: str, cause: str) -> None:
    master = make_course(tmp_path)
    edit(master, old, new)
    source = read_master(master, settings_of(tmp_path))
    found = "\n".join(map(str, check_all(source, "09_demo", settings=settings_of(tmp_path), run=False)))
    assert cause in found


def test_a_chapters_reference_gets_full_points_and_its_release_none(tmp_path: Path) -> None:
    master = make_course(tmp_path)
    edit(master, "check_times_2()\n### BEGIN", "check_times_2()\n20.0\n### BEGIN")
    text_ = master.read_text("utf-8").replace("assert times_2([-7, 91]) == [-14, 182]", "20.0")
    master.write_text(text_.replace("check_times_3()\n###", "print(times_3, check_times_3)\n###"), "utf-8")
    text_ = master.read_text("utf-8").replace("assert times_3([-7, 92]) == [-21, 276]", "assert len('abc') == 3")
    master.write_text(text_, "utf-8")
    source = read_master(master, settings_of(tmp_path))
    found = "\n".join(map(str, check_all(source, "09_demo", settings=settings_of(tmp_path))))
    assert "todo1_values: the reference earns 20 of 30" in found
    assert "todo2_values: the untouched release earns points" in found


NEWER = [
    "try:\n    pass\nexcept* ValueError:\n    pass",
    "x = values[*index]",
]
if sys.version_info >= (3, 12):
    NEWER += ["type A = int", "def f[T](x: T): pass", "f'{d['key']}'", "f\"{'\\n'.join(xs)}\""]


@pytest.mark.parametrize("source", NEWER)
def test_syntax_newer_than_python_3_10_is_refused(source: str) -> None:
    assert check_code(source, "c")


@pytest.mark.parametrize(
    "source",
    [
        "match x:\n    case 1:\n        pass",
        "f'{d[\"key\"]} {{x}}'",
        "with (open('a') as a, open('b') as b):\n    pass",
        "x = values[(*a, b)]",
        "try:\n    import triton\nexcept ImportError:\n    triton = None",
        "from matplotlib import pyplot",
        "import torch.nn.functional as F",
        "%matplotlib inline\nx = 1",
        "f'{x:>{width}} {{}}'",
        "f'{n:#x} {n} # no comment'",
        "import __future__",
    ],
)
def test_code_for_python_3_10_passes(source: str) -> None:
    assert check_code(source, "c") == []


# --- how findings are reported


def test_all_findings_are_listed_in_one_error() -> None:
    with pytest.raises(GraderError) as error:
        refuse("nb.ipynb", [Finding("a", "wrong", "right it"), Finding("b", "bad", "better it")])
    assert "cell a: wrong → right it" in str(error.value) and "cell b: bad → better it" in str(error.value)
    with pytest.raises(GraderError, match="^nb.ipynb, cell a: wrong → right it$"):
        refuse("nb.ipynb", [Finding("a", "wrong", "right it")])
    refuse("nb.ipynb", [])
