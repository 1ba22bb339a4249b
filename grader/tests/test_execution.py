"""Guards execution as a teacher sees it: what passes, what fails and with which words, in honest notebooks."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from nbgrader.utils import determine_grade

from grader.execution.cells import StudentCell
from grader.execution.remote import Session, Stop
from grader.execution.stubs import stubs_of
from grader.model import Limits
from grader.tests.execution_support import (
    QUICK,
    extra,
    given,
    graded,
    locked,
    outcome,
    output_text,
    run,
    solution,
    statuses,
)

pytestmark = pytest.mark.sandbox
DOUBLE = "def double(x):\n    return 2 * x\n"
CHECK = "assert double(4) == 8, '2 * 4 is 8'"


def nbgrader_reads(execution, index: int) -> float:
    cell = nbformat.from_dict(execution.notebook["cells"][index])
    return determine_grade(cell)[0]


def test_a_right_and_a_wrong_answer():
    done = run(
        solution(DOUBLE),
        graded(CHECK, "a", 2),
        graded("assert double(3) == 7, 'expected seven'", "b", 3),
        graded("print('hello')\nassert double(1) == 2", "c", 4),
    )
    assert done.status == "graded" and done.sandbox == "bwrap" and not done.flags
    assert [(t.grade_id, t.status, t.score, t.max_score) for t in done.tests] == [
        ("a", "passed", 2, 2),
        ("b", "failed", 0, 3),
        ("c", "passed", 4, 4),
    ]
    assert outcome(done, "b").message == "expected seven"
    assert [nbgrader_reads(done, i) for i in (1, 2, 3)] == [2, 0, 4]
    assert output_text(done, 3) == "hello\n"
    nbformat.validate(nbformat.from_dict(done.notebook))
    assert pickle.loads(pickle.dumps(done)) == done


def test_the_request_is_not_changed():
    cells = [solution(DOUBLE), graded(CHECK)]
    run(*cells)
    assert all(cell["outputs"] == [] for cell in cells)


@pytest.mark.parametrize(
    ("last", "score", "status"),
    [
        ("2.5", 2.5, "failed"),
        ("4", 4, "passed"),
        ("0", 0, "failed"),
        ("0.0", 0, "failed"),
        ("None", 4, "passed"),
        ("3.0;", 4, "passed"),
        ("-1", 0, "error"),
        ("5", 0, "error"),
        ("True", 0, "error"),
        ("'FAILED'", 0, "error"),
        ("float('nan')", 0, "error"),
        ("np.float64(4)", 0, "error"),
        ("np.array(4.0)", 0, "error"),
        ("double", 0, "error"),
    ],
)
def test_partial_credit_is_a_plain_number_within_the_points_and_anything_else_is_no_points(last, score, status):
    done = run(solution(DOUBLE), graded(f"import numpy as np\nassert double(1) == 2\n{last}", points=4))
    assert (outcome(done).status, outcome(done).score) == (status, score)
    assert nbgrader_reads(done, 1) == score


def test_warnings_and_prints_of_the_student_cost_nothing_and_are_not_shown():
    noisy = "import warnings, sys\ndef double(x):\n    warnings.warn('old')\n    print('x' * 99)\n"
    noisy += "    print('e', file=sys.stderr)\n"
    done = run(solution(noisy + "    return 2 * x\n"), graded(CHECK + "\nimport sys\nprint('w', file=sys.stderr)"))
    assert statuses(done) == ["passed"] and done.notebook["cells"][1]["outputs"] == []


def test_cells_run_in_order_and_their_outputs_are_kept_as_text():
    done = run(
        given("a = 1\nprint('one')"),
        extra("a + 1"),
        extra("from IPython.display import HTML, display\ndisplay(HTML('<script>alert(1)</script>'))\n1 / 0"),
        solution("def get():\n    return a\n"),
        graded("assert get() == 1"),
    )
    assert output_text(done, 0) == "one\n" and output_text(done, 1) == "2"
    assert "ZeroDivisionError" in output_text(done, 2) and "<script>" not in str(done.notebook["cells"][2]["outputs"])
    assert statuses(done) == ["passed"]


@pytest.mark.parametrize("tag", ["settings", "experiment", "reader", "plot", "summary"])
def test_cells_of_the_experiment_never_run(tag):
    done = run(given("double = None\nraise SystemExit", tags=[tag]), solution(DOUBLE), graded(CHECK))
    assert statuses(done) == ["passed"] and done.notebook["cells"][0]["outputs"] == []


@pytest.mark.parametrize(
    "line",
    [
        "!pip install -q nothing-of-that-name 2>/dev/null",
        "%load_ext no_such_ext",
        "%%bash\necho hi; exit 3",
        "from google.colab import drive\ndrive.mount('/content/drive')",
        "n = int(input('n? '))",
        "exit()",
        "import sys\nsys.exit(1)",
        "raise KeyboardInterrupt",
        "def broken(:",
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()",
        "await __import__('asyncio').sleep(0)",
        "print('\\ud800')",
        "import os\nos._exit(3)",
        "import os\nos.kill(os.getpid(), 9)",
        "import ctypes\nctypes.string_at(0)",
        "get_ipython().events.trigger('pre_run_cell', None)",
    ],
    ids=lambda s: s.split("\n")[0][:25],
)
def test_a_stray_cell_that_fails_or_kills_the_process_costs_nothing(line):
    done = run(given("base = 2"), extra(line), solution("def double(x):\n    return base * x\n"), graded(CHECK))
    assert statuses(done) == ["passed"] and done.status == "graded"
    nbformat.writes(nbformat.from_dict(done.notebook)).encode()


def test_a_question_whose_cell_hangs_after_its_definition_keeps_its_points_and_the_cell_is_reported():
    done = run(solution(DOUBLE + "while True: pass\n"), graded(CHECK))
    assert statuses(done) == ["passed"] and "CellTimeoutError" in output_text(done, 0)


def test_a_question_whose_cell_dies_before_its_definition_is_crashed_and_the_others_count():
    done = run(
        solution("import os; os._exit(1)\nf = lambda: 1", "q1"),
        graded("assert f() == 1", "a"),
        solution(DOUBLE, "q2"),
        graded(CHECK, "b"),
    )
    assert statuses(done) == ["crashed", "passed"] and done.status == "partial"


class TestAttempts:
    STUB = "def double(x):\n    raise NotImplementedError('first do TODO 1')\n"

    def test_an_untouched_stub_is_no_attempt_and_says_which(self):
        done = run(solution(self.STUB, stub="first do TODO 1", title="Double"), graded(CHECK), attempted={"q1": False})
        assert (outcome(done).status, outcome(done).score) == ("no_attempt", 0)
        assert outcome(done).message == "first do TODO 1"

    def test_a_stub_left_in_an_attempted_cell_is_no_attempt(self):
        source = self.STUB.replace("raise", "y = 2 * x\n    raise")
        done = run(solution(source, stub="first do TODO 1"), graded(CHECK), attempted={"q1": True})
        assert outcome(done).status == "no_attempt"

    def test_a_not_implemented_error_of_the_students_own_is_an_error(self):
        source = "def double(x):\n    raise NotImplementedError('negative numbers')\n"
        done = run(solution(source, stub="first do TODO 1"), graded(CHECK), attempted={"q1": True})
        assert outcome(done).status == "error" and "negative numbers" in outcome(done).message

    def test_an_unfilled_todo_that_another_one_calls_is_named(self):
        done = run(
            solution("def f(x):\n    raise NotImplementedError('TODO 2 is missing')\n", "q2", stub="TODO 2 is missing"),
            solution("def g(x):\n    return f(x)\n", "q3", stub="TODO 3 is missing"),
            graded("assert g(1) == 1"),
            attempted={"q2": False, "q3": True},
        )
        assert outcome(done).status == "no_attempt" and outcome(done).message == "TODO 2 is missing"

    def test_a_stub_at_the_top_level_of_a_cell(self):
        done = run(
            solution("table = None\nraise NotImplementedError('fill table')\n", stub="fill table"),
            graded("assert lookup() == 1"),
            attempted={"q1": False},
        )
        assert outcome(done).status == "no_attempt" and outcome(done).message == "fill table"

    def test_an_unfilled_function_is_told_without_a_process(self):
        def no_process():
            raise AssertionError("a process was asked for")

        stubs = stubs_of(StudentCell(0, "solution", self.STUB, "q1"))
        session = Session(no_process, QUICK, lambda why, asked: Stop("error", why), stubs=stubs)
        with pytest.raises(NotImplementedError, match="first do TODO 1"):
            session.get("double")(4)

    @pytest.mark.parametrize(
        "source",
        [
            "import math\n\n" + STUB,
            STUB + "\n\ndef other():\n    return 1\n",
            "def double(x):\n    '''2 x.'''\n    # TODO 1\n    raise NotImplementedError('first do TODO 1')\n    x",
            "def double(x, *, by=2):\n    raise NotImplementedError(\n        'first do TODO 1'\n    )\n",
            "def double(x):\n    raise NotImplementedError('first do TODO 1') from None\n",
            "def double(x):\n    y = x\n    raise NotImplementedError('first do TODO 1')\n",
            STUB + "double = double\n",
            STUB + "from math import sqrt as double\n",
            STUB + "double.by = 2\n",
            "def double(x):\n    yield x\n",
            "@property\ndef double(x):\n    raise NotImplementedError('first do TODO 1')\n",
        ],
    )
    def test_what_is_told_of_an_unfilled_function_is_what_its_process_would_tell(self, source):
        tests = [
            graded(CHECK, "a"),
            graded("double(1, 2, 3)", "b"),
            graded("double()", "c"),
            graded(
                "try:\n    double(1)\nexcept NotImplementedError as e:\n    print(e, e.line, e.cell)\nassert 0", "d"
            ),
            graded("other = double\nassert callable(other), 'not a function'\nother(x=1)", "e"),
        ]
        cell = solution(source, stub="first do TODO 1")
        told = run(cell, *tests, attempted={"q1": False})
        asked = run(cell, locked("double_again = 0\ndouble = double"), *tests, attempted={"q1": False})
        outputs = [[c["outputs"] for c in done.notebook["cells"][-len(tests) :]] for done in (told, asked)]
        plain = [json.loads(re.sub(r"(test) \d+", r"\1", json.dumps(o))) for o in outputs]
        assert told.tests == asked.tests and plain[0] == plain[1]

    def test_an_untouched_cell_that_returns_nothing_is_no_attempt_and_a_wrong_answer_never_is(self):
        source = "def double(x):\n    pass\n"
        assert outcome(run(solution(source), graded(CHECK), attempted={"q1": False})).status == "no_attempt"
        assert outcome(run(solution(source), graded(CHECK), attempted={"q1": True})).status == "failed"


class TestNames:
    def test_the_solution_cells_own_last_definition_counts(self):
        wrong = "def double(x):\n    return 0\n"
        done = run(extra(wrong), solution(wrong + DOUBLE), extra(wrong), graded(CHECK))
        assert statuses(done) == ["passed"]
        assert statuses(run(extra(DOUBLE), solution(wrong), extra(DOUBLE), graded(CHECK))) == ["failed"]

    def test_another_cell_counts_when_the_solution_cell_defines_nothing(self):
        assert statuses(run(solution("# see below"), extra(DOUBLE), graded(CHECK))) == ["passed"]

    def test_locked_helpers_are_the_instructors_whatever_the_student_defines(self):
        done = run(
            locked("def twice(f, x):\n    return f(f(x))\n"),
            solution(DOUBLE),
            extra("def twice(f, x):\n    return 12\n"),
            graded("assert twice(double, 3) == 12\nassert twice(double, 1) == 4"),
        )
        assert statuses(done) == ["passed"]

    def test_what_a_test_cell_defines_stays_and_wins(self):
        done = run(
            solution(DOUBLE + "def check(x):\n    pass\nEXPECTED = 0\n"),
            graded("EXPECTED = 8\ndef check(x):\n    assert double(x) == EXPECTED\ncheck(4)", "a"),
            graded("check(5)", "b"),
        )
        assert statuses(done) == ["passed", "failed"]

    def test_a_helper_that_a_failed_test_cell_did_not_reach_is_never_the_students(self):
        done = run(
            solution("def double(x):\n    return 0\ndef check(x):\n    pass\n"),
            graded(CHECK + "\ndef check(x):\n    assert double(x) == 2 * x\n", "a"),
            graded("check(5)", "b"),
        )
        assert statuses(done) == ["failed", "failed"]

    def test_builtins_are_never_the_students(self):
        lies = "def isinstance(a, b):\n    return True\ndef len(x):\n    return 3\ndef double(x):\n    return 'no'\n"
        done = run(solution(lies), graded("assert isinstance(double(1), int)"), graded("assert len([1]) == 1", "b"))
        assert statuses(done) == ["failed", "passed"]

    def test_values_modules_and_deleted_names(self):
        done = run(
            solution("import numpy as np\nTABLE = {('a', 1): [1.5]}\ndef f(x):\n    return np.asarray(x) * 2\n"),
            extra("gone = 1\ndel gone\ndel f"),
            graded("assert TABLE[('a', 1)] == [1.5]\nnp.testing.assert_array_equal(f([1]), np.array([2]))", "a"),
            graded("gone()", "b"),
            graded("never()", "c"),
        )
        assert statuses(done) == ["passed", "error", "error"]
        assert "`never`" in outcome(done, "c").message

    def test_names_are_found_in_every_kind_of_scope(self):
        check = (
            "import unittest\nclass T(unittest.TestCase):\n    at_class_level = double(2)\n"
            "    listed = [double(i) for i in range(2)]\n    def test(self):\n        self.assertEqual(double(4), 8)\n"
            "T('test').debug()\nassert (T.at_class_level, T.listed, (lambda: double(5))()) == (4, [0, 2], 10)\n"
            "assert eval('double(1)') == 2"
        )
        assert statuses(run(solution(DOUBLE), graded(check))) == ["passed"]

    def test_a_name_missing_because_its_cell_failed_says_why(self):
        done = run(solution("x = 1\ndef double(x)\n    return 2\n", title="Double"), graded(CHECK))
        assert outcome(done).status == "error"
        assert "SyntaxError" in outcome(done).message and "第 2 行" in outcome(done).message

    def test_the_imports_of_a_locked_helper_are_there_for_the_tests(self):
        done = run(
            locked("import math as m\nfrom fractions import Fraction\ndef helper():\n    return 1\n"),
            solution(DOUBLE + "class m:\n    pi = 3\n"),
            graded("assert m.pi > 3.1\nassert double(Fraction(1, 2)) == Fraction(1)"),
        )
        assert statuses(done) == ["passed"]


class TestValues:
    def test_arguments_that_the_student_changes_in_place_are_changed_for_the_test(self):
        source = (
            "def change(xs, d, s, b, a):\n    xs.sort(); xs[0].append(9); d['k'][0] = 2; s.add(3); b += b'!'; a *= 2\n"
        )
        check = (
            "import numpy as np\n"
            "inner = [0]\nxs, d, s, b, a = [[5], inner], {'k': [1]}, {1}, bytearray(b'x'), np.ones(2)\n"
            "kept = xs\nchange(xs, d, s=s, b=b, a=a)\n"
            "assert xs is kept and xs == [[0, 9], [5]] and d == {'k': [2]} and s == {1, 3}\n"
            "assert b == b'x!' and a.tolist() == [2, 2]\n"
        )
        assert statuses(run(solution(source), graded(check))) == ["passed"]

    def test_inputs_that_stay_the_same_keep_their_identity(self):
        check = "inner = [1]\nouter = {'a': inner}\ndouble(outer) if False else read(outer)\nassert outer['a'] is inner"
        assert statuses(run(solution("def read(d):\n    return d['a'][0]\n"), graded(check))) == ["passed"]

    def test_tensors_and_arrays_cross_both_ways(self):
        source = "import torch\ndef scale_(t):\n    t.mul_(2)\n    return t.to(torch.bfloat16), t.shape\n"
        check = (
            "import torch\nt = torch.ones(2, 3)\nhalf, shape = scale_(t)\n"
            "assert half.dtype is torch.bfloat16 and shape == (2, 3)\nassert torch.equal(t, torch.full((2, 3), 2.0))\n"
            "torch.testing.assert_close(half.float(), t)"
        )
        assert statuses(run(solution(source), graded(check))) == ["passed"]

    def test_each_test_sees_the_state_that_the_cells_left(self):
        source = "calls = []\ndef count():\n    calls.append(1)\n    open('f', 'a').write('x')\n"
        source += "    return len(calls), len(open('f').read())\n"
        check = "assert count() == (1, 1)\nassert count() == (2, 2)\nassert calls == [1, 1]"
        assert statuses(run(solution(source), *(graded(check, f"t{i}") for i in range(3)))) == ["passed"] * 3

    def test_random_numbers_go_on_from_where_the_cells_left_them(self):
        source = "import random\nrandom.seed(5)\ndef draw():\n    return random.random()\n"
        check = "import random as r\nassert draw() == r.Random(5).random()"
        assert statuses(run(solution(source), graded(check, "a"), graded(check, "b"))) == ["passed", "passed"]

    def test_what_does_not_cross_is_a_failure_with_clear_words(self):
        done = run(solution("def f():\n    return lambda: 1\n"), graded("assert f() == 1"), graded("f() + 1", "b"))
        assert statuses(done) == ["failed", "failed"] and "no plain value" in outcome(done, "b").message


class TestErrors:
    def test_an_exception_of_the_student_has_type_text_and_line(self):
        done = run(solution("def f(x):\n    y = x\n    return y['k']\n", title="Lookup"), graded("f({})"))
        assert outcome(done).status == "error"
        assert "KeyError: 'k'" in outcome(done).message and "「Lookup」第 3 行" in outcome(done).message

    def test_expected_exceptions_can_be_asserted_with_unittest_and_pytest(self):
        source = (
            "class Odd(ValueError):\n    pass\ndef f(x):\n    if x % 2: raise Odd('odd: 3')\n    raise LookupError(x)\n"
        )
        check = (
            "import unittest, pytest\nwith unittest.TestCase().assertRaises(ValueError) as caught:\n    f(3)\n"
            "assert str(caught.exception) == 'odd: 3'\nwith pytest.raises(ValueError, match='odd'):\n    f(3)\n"
            "with pytest.raises(LookupError):\n    f(2)"
        )
        assert statuses(run(solution(source), graded(check))) == ["passed"]
        assert statuses(run(solution("def f(x):\n    raise TypeError\n"), graded(check))) == ["error"]

    @pytest.mark.parametrize(
        "raised",
        ["AssertionError('mine')", "SystemExit(0)", "KeyboardInterrupt()", "GeneratorExit()", "BaseException('b')"],
    )
    def test_no_exception_of_the_student_is_taken_for_a_verdict_or_ends_the_grader(self, raised):
        check = "import unittest\nwith unittest.TestCase().assertRaises(AssertionError):\n    f()"
        done = run(solution(f"def f():\n    raise {raised}\n"), graded("f()", "a"), graded(check, "b"))
        assert statuses(done) == ["error", "error"]

    @pytest.mark.parametrize(
        "name", ["UnicodeDecodeError", "StopIteration", "OSError", "ExceptionGroup", "ImportError"]
    )
    def test_builtin_exceptions_with_their_own_arguments(self, name):
        made = {"UnicodeDecodeError": "('utf-8', b'', 0, 1, 'why')", "ExceptionGroup": "('g', [ValueError(1)])"}
        done = run(solution(f"def f():\n    raise {name}{made.get(name, '(2)')}\n"), graded("f()"))
        assert outcome(done).status == "error" and name in outcome(done).message

    def test_an_exception_that_cannot_be_printed(self):
        bad = "class E(Exception):\n    def __str__(s): raise RuntimeError\n    __repr__ = __str__\n"
        bad += "def f():\n    raise E()\n"
        assert "E: " in outcome(run(solution(bad), graded("f()"))).message

    def test_a_wrong_type_is_a_failure_not_a_missing_answer(self):
        done = run(solution("def f():\n    return None\n"), graded("assert f()[0] == 1"), attempted={"q1": True})
        assert outcome(done).status == "failed" and "TypeError" in outcome(done).message


class TestHidden:
    SECRET = "CANARY"
    CELL = (
        "assert double(1) == 2, 'visible words'\n### BEGIN HIDDEN TESTS\nCANARY_VALUE = 8641\n"
        "def judge(x):\n    assert double(x) == CANARY_VALUE, f'CANARY {x}'\njudge(4320.5)\n### END HIDDEN TESTS\n"
    )

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            ("return 2", "failed"),
            ("return {1: 2}[x]", "error"),
            ("return 2 if x == 1 else None", "failed"),
            ("return 2 if x == 1 else [][x > 9]", "error"),
            ("import os\n    return 2 if x == 1 else os._exit(1)", "crashed"),
            ("assert x == 1, x\n    return 2", "error"),
        ],
    )
    def test_a_failure_in_a_hidden_test_tells_nothing_but_the_behaviour(self, body, status):
        done = run(solution(f"def double(x):\n    {body}\n"), graded(self.CELL, title="odd numbers"))
        found = outcome(done)
        assert (found.status, found.hidden) == (status, True) and "odd numbers" in found.message
        assert not any(word in found.message for word in ("CANARY", "8641", "4320", "judge", "visible"))
        assert "CANARY" not in str(done.notebook["cells"][0])

    def test_the_instructor_sees_the_full_error(self):
        done = run(solution("def double(x):\n    return 2\n"), graded(self.CELL))
        assert "CANARY 4320.5" in output_text(done, 1)

    def test_a_failure_in_the_visible_part_of_the_same_cell_keeps_its_words(self):
        done = run(solution("def double(x):\n    return 1\n"), graded(self.CELL))
        assert (outcome(done).message, outcome(done).hidden) == ("visible words", False)

    @pytest.mark.parametrize(
        "cell",
        [
            "### BEGIN HIDDEN TESTS\ndouble(8641)\n### END HIDDEN TESTS\nassert double(1) == 2, double(1)",
            "def judge(x):\n    assert double(x) == 2 * x, double(x)\n"
            "### BEGIN HIDDEN TESTS\njudge(8641)\n### END HIDDEN TESTS\njudge(1)",
            "for x in (2, 1):\n    assert double(x) == 2 * x, double(x)\n"
            "    ### BEGIN HIDDEN TESTS\n    double(8641)\n    ### END HIDDEN TESTS\n",
        ],
        ids=["below", "through a helper", "in a loop"],
    )
    def test_a_visible_failure_after_hidden_tests_of_its_cell_tells_no_values(self, cell):
        keeps = "import os\nkept = []\ndef double(x):\n    kept.append(x)\n    return kept if x == 1 else 2 * x\n"
        found = outcome(run(solution(keeps), graded(cell, title="twice")))
        assert (found.status, found.hidden) == ("failed", False)
        assert "twice" in found.message and "8641" not in found.message

    def test_a_helper_from_a_hidden_part_stays_hidden_when_a_visible_test_calls_it(self):
        done = run(solution("def double(x):\n    return 2 * x\n"), graded(self.CELL, "a"), graded("judge(5)", "b"))
        assert outcome(done, "b").hidden and "CANARY" not in outcome(done, "b").message


def test_a_student_who_uses_threads_gets_a_new_process_for_each_test_and_the_same_verdicts():
    source = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\ncalls = []\n"
    source += "def double(x):\n    calls.append(x)\n    return 2 * x if len(calls) == 1 else 0\n"
    assert statuses(run(solution(source), graded(CHECK, "a"), graded(CHECK, "b"))) == ["passed", "passed"]


def test_without_a_sandbox_the_verdicts_are_the_same_and_it_is_recorded():
    cells = [
        extra("import os\nos._exit(1)"),
        solution(DOUBLE),
        graded(CHECK, "a"),
        graded("assert double(1) == 3", "b"),
        solution("def loop():\n    while True: pass\n", "q2"),
        graded("loop()", "c"),
    ]
    done = run(*cells, sandbox="none")
    assert statuses(done) == statuses(run(*cells)) == ["passed", "failed", "timed_out"]
    assert done.sandbox == "none"


def test_a_test_that_a_value_keeps_busy_is_ended_and_the_others_count(monkeypatch):
    from grader.execution import run as runner
    from grader.execution import tester

    monkeypatch.setattr(runner, "GRACE_S", 2.0 - tester.TEST_S)  # instead of waiting half a minute
    done = run(
        solution("def f():\n    return 10**18\ndef double(x):\n    return 2 * x\n"),
        graded("def helper():\n    return 8\nassert double(1) == 2", "a"),
        graded("sum(1 for _ in range(f()))", "b"),
        graded("assert double(4) == helper()", "c"),
    )
    assert statuses(done) == ["passed", "timed_out", "passed"] and done.status == "partial"


def test_a_notebook_with_many_hanging_cells_ends_in_bounded_time_and_the_finished_cells_count():
    limits = Limits(cell_s=2, call_s=2, notebook_s=4, cpu_s=20)
    hang = extra("while True: pass")
    cells = [solution(DOUBLE + "base = 8\n"), *[hang] * 4, graded("assert double(4) == base")]
    done = run(*cells, limits=limits)
    assert statuses(done) == ["passed"]
    assert len(done.notes) == 4 and "time limit" in done.notes[0]


def test_several_threads_execute_at_once():
    from concurrent.futures import ThreadPoolExecutor

    def one(number: int):
        return statuses(run(solution(f"def f():\n    return {number}\n"), graded(f"assert f() == {number}")))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(one, range(12))) == [["passed"]] * 12


def test_nothing_outlives_a_killed_grader(tmp_path):
    program = (
        "from grader.tests.execution_support import *\n"
        "run(solution('def f():\\n    while True: pass\\n'), graded('f()'), limits=Limits(call_s=300))\n"
    )
    root = Path(__file__).resolve().parents[2]
    grader = subprocess.Popen([sys.executable, "-c", program], cwd=root, stdin=subprocess.DEVNULL)
    below = psutil.Process(grader.pid)
    deadline = time.monotonic() + 60
    while not any(p.name() == "bwrap" for p in below.children(recursive=True)) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    started = below.children(recursive=True)
    assert any(p.name() == "bwrap" for p in started)
    grader.kill()
    grader.wait()
    _, alive = psutil.wait_procs(started, timeout=20)
    assert not alive


def test_where_nothing_can_be_forked_a_process_is_spawned(monkeypatch):
    from grader.execution import server

    monkeypatch.setattr(server, "FORKS", False)
    assert statuses(run(solution(DOUBLE), graded(CHECK), sandbox="none")) == ["passed"]


def test_where_sockets_cannot_be_inherited_the_worker_connects(monkeypatch):
    from grader.sandbox import process

    monkeypatch.setattr(process.Plain, "inherits_sockets", False)
    with process.Plain(Limits()) as plain:
        deadline = time.monotonic() + 30
        plain.channel.send({"op": "cell", "key": "0", "role": "given", "source": "1 + 1"}, deadline)
        assert plain.channel.receive(deadline, 1000)["outputs"] == [{"result": "2"}]


def test_a_list_put_into_another_order_keeps_its_items():
    """As in a notebook: who holds one of the items sees it unchanged after the student sorted the list."""
    execution = run(
        solution("def order(rows): rows.sort(key=lambda row: row['n']); rows[0]['seen'] = True"),
        graded(
            "first, second, third = {'n': 2}, {'n': 1}, {'n': 2}\nrows = [first, second, third]\norder(rows)\n"
            "assert rows == [{'n': 1, 'seen': True}, {'n': 2}, {'n': 2}]\n"
            "assert rows[1] is first and rows[2] is third and first == {'n': 2}"
        ),
    )
    assert statuses(execution) == ["passed"]


def test_a_function_that_loops_in_every_test_is_not_waited_for_each_time():
    """Later tests say so; functions that answer are waited for as before."""
    loops = "def f(x):\n    while True: pass\ndef g(x):\n    return x"
    tests = [graded(f"assert f({n}) == {n}", f"t{n}") for n in range(4)]
    execution = run(solution(loops), *tests, graded("assert g(7) == 7", "t7"))
    assert statuses(execution) == ["timed_out"] * 4 + ["passed"]
    assert ["此前" in outcome(execution, f"t{n}").message for n in range(4)] == [False, False, True, True]
