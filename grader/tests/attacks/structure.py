"""Hand-ins whose cells were moved, joined, torn, retyped, renamed or written in unusual ways. All are right answers."""

from __future__ import annotations

import copy

from grader.model import Notebook
from grader.tests.attacks.case import MEAN, RELU, Registry, answers, cell_of, code, good, notebook_of, text
from grader.tests.classroom import release


def stub(grade_id: str) -> str:
    """The unfilled cell as it was given out."""
    return cell_of(release(), grade_id)["source"].rstrip()


case = Registry("structure", quiet=True)


@case("struct_merged_solutions", "both answers merged into the first solution cell, the second is gone", 10)
def _() -> Notebook:
    nb = good()
    cell_of(nb, "q1")["source"] += "\n\n\n" + MEAN
    nb["cells"].remove(cell_of(nb, "q2"))
    return nb


@case("struct_tests_merged_into_answer", "solution cell and the tests below it merged into one cell", 10)
def _() -> Notebook:
    nb = good()
    for name in ("q1_visible", "q1_hidden"):
        cell_of(nb, "q1")["source"] += "\n" + cell_of(nb, name)["source"]
        nb["cells"].remove(cell_of(nb, name))
    return nb


@case("struct_retyped_markdown", "solution cell turned into a text cell", 10)
def _() -> Notebook:
    nb = good()
    cell = cell_of(nb, "q1")
    cell["cell_type"] = "markdown"
    del cell["outputs"], cell["execution_count"]
    return nb


@case("struct_retyped_raw", "solution cell turned into a raw cell", 10)
def _() -> Notebook:
    nb = good()
    cell = cell_of(nb, "q2")
    cell["cell_type"] = "raw"
    del cell["outputs"], cell["execution_count"]
    return nb


@case("struct_fenced_answer", "answer pasted as a fenced block into a text cell, stub left alone", 10)
def _() -> Notebook:
    nb = answers(RELU)
    cell_of(nb, "q2")["source"] = stub("q2")
    nb["cells"].append(text(f"My answer:\n\n```python\n{MEAN}\n```\n"))
    return nb


@case("struct_answer_below_stub_cell", "stub left, answer in a new cell below it", 10)
def _() -> Notebook:
    nb = answers(RELU, stub("q2"), after=(MEAN,))
    return nb


@case("struct_answer_in_test_cell", "answer typed into the test cell, above the assertions", 10, quiet=False)
def _() -> Notebook:
    nb = answers(stub("q1"))
    test = cell_of(nb, "q1_visible")
    test["source"] = RELU + "\n" + test["source"]
    return nb


@case("struct_helper_in_own_cell", "answer calls a helper that the student's own cell defines", 10)
def _() -> Notebook:
    helper = "def positive(x):\n    return max(x, 0)"
    return answers("def relu_sum(xs):\n    return sum(map(positive, xs))", before=(helper,))


@case("struct_helper_defined_last", "helper of an answer defined in the very last cell", 10)
def _() -> Notebook:
    return answers(
        "def relu_sum(xs):\n    return sum(positive(x) for x in xs)", after=("def positive(x):\n    return max(x, 0)",)
    )


@case("struct_reversed", "all cells in reverse order", 10)
def _() -> Notebook:
    nb = good()
    nb["cells"].reverse()
    return nb


@case("struct_whole_copy_appended", "whole notebook pasted a second time below itself", 10)
def _() -> Notebook:
    nb = good()
    nb["cells"] += copy.deepcopy(nb["cells"])
    return nb


@case("struct_untouched_copy_appended", "release pasted again below the answers: stubs come last", 10)
def _() -> Notebook:
    nb = good()
    nb["cells"] += release()["cells"]
    return nb


@case("struct_torn_in_statement", "cell split inside parentheses, the rest has lost its mark", 10)
def _() -> Notebook:
    nb = answers("def relu_sum(xs):\n    return sum(x if x > 0\n", MEAN)
    place = nb["cells"].index(cell_of(nb, "q1"))
    nb["cells"].insert(place + 1, code("               else 0 for x in xs)\n"))
    nb["cells"][place + 1]["source"] = "               else 0 for x in xs)\n"
    return nb


@case("struct_one_cell", "the whole notebook in one cell without marks", 10)
def _() -> Notebook:
    return notebook_of(code("\n\n".join(c["source"] for c in good()["cells"] if c["cell_type"] == "code")))


@case("struct_grade_ids_swapped", "marks of the two solution cells swapped", 10)
def _() -> Notebook:
    nb = good()
    first, second = cell_of(nb, "q1")["metadata"], cell_of(nb, "q2")["metadata"]
    first["nbgrader"], second["nbgrader"] = second["nbgrader"], first["nbgrader"]
    return nb


@case("struct_answers_in_each_others_cells", "each answer typed into the other question's cell", 10)
def _() -> Notebook:
    return answers(MEAN, RELU)


@case("struct_stub_below_answer", "stub's copy left below the answer, in the same cell", 10)
def _() -> Notebook:
    return answers(RELU + "\n\n" + stub("q1"))


@case("struct_tests_emptied", "text of every test cell deleted, cells left", 10)
def _() -> Notebook:
    nb = good()
    for name in ("q1_visible", "q1_hidden", "q2_test"):
        cell_of(nb, name)["source"] = ""
    return nb


@case("struct_marks_of_wrong_type", "nbgrader marks are a list, a number, a text and nothing", 10)
def _() -> Notebook:
    nb = good()
    for cell, mark in zip(nb["cells"][1:], ([], 7, "q1", None, {"grade_id": ["q2"]}), strict=True):
        cell["metadata"]["nbgrader"] = mark
    return nb


@case("struct_foreign_test", "a graded cell of the student's own with 100 points", 10)
def _() -> Notebook:
    nb = good()
    extra = copy.deepcopy(cell_of(nb, "q1_visible"))
    extra["metadata"]["nbgrader"] |= {"grade_id": "bonus", "points": 100}
    extra |= {"source": "assert True", "id": "bonus"}
    nb["cells"].append(extra)
    return nb


@case("struct_roles_flipped", "solution cell marked as a test, test marked as a solution", 10)
def _() -> Notebook:
    nb = good()
    cell_of(nb, "q1")["metadata"]["nbgrader"] |= {"grade": True, "solution": False, "locked": True}
    cell_of(nb, "q1_visible")["metadata"]["nbgrader"] |= {"grade": False, "solution": True, "locked": False}
    return nb


@case("struct_lambda", "answer is a lambda bound to the name", 10)
def _() -> Notebook:
    return answers("relu_sum = lambda xs: sum(max(x, 0) for x in xs)")


@case("struct_callable_object", "answer is an object with __call__", 10)
def _() -> Notebook:
    return answers("""
        class Sum:
            def __call__(self, xs):
                return sum(max(x, 0) for x in xs)
        relu_sum = Sum()
        """)


@case("struct_decorated", "answer behind decorators of the student's own, without functools.wraps", 10)
def _() -> Notebook:
    return answers("""
        def logged(f):
            def inner(*args, **kwargs):
                print("calling", f.__name__)
                return f(*args, **kwargs)
            return inner
        @logged
        @logged
        def relu_sum(xs):
            return sum(max(x, 0) for x in xs)
        """)


@case("struct_defined_by_exec", "answer defined through exec and globals()", 10)
def _() -> Notebook:
    return answers(
        'exec("def relu_sum(xs):\\n    return sum(max(x, 0) for x in xs)")',
        'globals()["mean_sq"] = lambda xs: sum(x * x for x in xs) / len(xs) if len(xs) else 0.0',
    )


@case("struct_conditional_definition", "answer defined inside try and if", 10)
def _() -> Notebook:
    return answers("""
        try:
            import a_module_that_is_not_there
        except ImportError:
            if __name__ == "__main__":
                def relu_sum(xs):
                    return sum(max(x, 0) for x in xs)
        """)


@case("struct_scratch_redefines", "a scratch cell below defines the same name otherwise", 10)
def _() -> Notebook:
    return answers(after=("def relu_sum(xs):\n    return 'scratch'", "mean_sq = None"))


@case("struct_deleted_afterwards", "a later cell deletes the answers from memory", 10)
def _() -> Notebook:
    return answers(after=("del relu_sum\ndel mean_sq", "%reset -f"))


@case("struct_indented_cell", "whole answer indented by one level", 10)
def _() -> Notebook:
    nb = good()
    cell = cell_of(nb, "q1")
    cell["source"] = "\n".join("    " + line for line in cell["source"].split("\n"))
    return nb


@case("struct_cell_magic", "%%time above the answer", 10)
def _() -> Notebook:
    return answers("%%time\n" + RELU)


@case("struct_written_file", "answer written to a file by %%writefile and imported", 10)
def _() -> Notebook:
    return answers("from my_answers import relu_sum", before=("%%writefile my_answers.py\n" + RELU,))


@case("struct_full_width_name", "name in full-width letters, which Python reads as the plain one", 10)
def _() -> Notebook:
    return answers(RELU.replace("relu_sum", "ｒｅｌｕ_sum"))


@case("struct_future_import", "from __future__ import in the middle of the notebook", 10)
def _() -> Notebook:
    return answers(
        "from __future__ import annotations\ndef relu_sum(xs: list[Undefined]) -> Unknown:\n"
        + "".join(RELU.split("\n", 1)[1:])
    )


@case("struct_star_import_between", "a star import between the answers binds dozens of names", 10)
def _() -> Notebook:
    return answers(between=("from math import *\nfrom os.path import *",))


@case("struct_two_thousand_copies", "the answer's cell two thousand times, each a little different", 10)
def _() -> Notebook:
    nb = good()
    first = cell_of(nb, "q1")
    copies = [{**copy.deepcopy(first), "id": f"copy-{n}", "source": f"{RELU} + {n}"} for n in range(2000)]
    nb["cells"][0:0] = copies
    return nb
