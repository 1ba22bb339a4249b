"""Chapter 4: its tests catch every listed mistake, by the cell that names it, and no right solution loses a point."""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import json
from pathlib import Path

import jupytext
import pytest

from grader.tests import chapter_checks
from grader.tests.chapter_checks import report_of
from grader.tests.mutants.framework import ROOT, Mutant, load, mutants_of, stubbed

NAME = "04_execution_dispatch"
CHAPTER = load(NAME)
MUTANTS = mutants_of(NAME).MUTANTS
CASES = {
    case["name"]: case
    for case in json.loads((Path(__file__).parent / "cases" / "wrong-implementations.json").read_text(encoding="utf-8"))
}
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
VISIBLE = {cell.grade_id for cell in CHAPTER.visible_tests}
TODO_OF = {cell.grade_id: cell.todo for cell in CHAPTER.tests}
TEST_FUNCTIONS = {
    "todo1_all": "test_candidate_identification",
    "todo2_all": "test_backend_capability_gate",
    "todo3_all": "test_dispatch_and_fallback",
}


class TestChapter(chapter_checks.ChapterTests):
    name = NAME


def listed(name: str) -> bool:
    return not name.startswith("own_")


def run_case(case: dict, mutant: Mutant | None) -> object:
    """The case's distinguishing call in a fresh namespace; an exception counts as the result it is."""
    namespace = CHAPTER.namespace(mutant)
    call = case["distinguishing_input"]
    args = copy.deepcopy(call["args"])
    before = copy.deepcopy(args)
    try:
        if call["fusion_patterns"] is None:
            result = namespace[call["function"]](*args)
        else:
            patterns = {tuple(ops): name for ops, name in call["fusion_patterns"]}
            result = namespace["identify_with_patterns"](*args, patterns)
    except Exception as error:
        return error
    return {"result": result, "args_unchanged": args == before} if call["check"] == "args_unchanged" else result


def test_reference_gives_the_right_value_of_each_listed_case():
    for case in CASES.values():
        assert run_case(case, None) == case["right_value"], case["name"]


def test_every_listed_wrong_implementation_has_its_mutant_which_is_really_wrong():
    assert {name for name in BY_NAME if listed(name)} == set(CASES)
    assert len(BY_NAME) == len(MUTANTS) and len(MUTANTS) - len(CASES) >= 20
    for name, case in CASES.items():
        assert run_case(case, BY_NAME[name]) != case["right_value"], f"{name} gives the right value"


def test_visible_tests_alone_catch_what_needs_no_rule_stated():
    plain = [name for name, case in CASES.items() if not case["needs_rule_stated_in_text"]]
    caught = [name for name in plain if report_of(CHAPTER, BY_NAME[name]).lost & VISIBLE]
    assert len(caught) >= 0.8 * len(plain), sorted(set(plain) - set(caught))


def test_the_named_test_function_alone_catches_all_that_visible_cells_catch():
    for mutant in MUTANTS:
        lost = report_of(CHAPTER, mutant).lost & VISIBLE
        for grade_id in TEST_FUNCTIONS:
            same_todo = {other for other in lost if TODO_OF[other] == TODO_OF[grade_id]}
            assert not same_todo or grade_id in lost, (mutant.name, grade_id)


@pytest.mark.parametrize(("grade_id", "function"), TEST_FUNCTIONS.items())
def test_the_named_test_functions_lie_in_visible_graded_cells(grade_id, function):
    assert grade_id in VISIBLE
    tree = ast.parse(CHAPTER.cell(grade_id).source)
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] == [function]


def test_identify_with_patterns_restores_the_table_even_after_an_exception():
    namespace = CHAPTER.namespace()
    before = list(namespace["FUSION_PATTERNS"].items())
    namespace["identify_with_patterns"](["a", "b"], {("a", "b"): "ab"})
    with pytest.raises(ValueError, match="空模式"):
        namespace["identify_with_patterns"](["a", "b"], {(): "empty", ("a", "b"): "ab"})
    with pytest.raises(TypeError):
        namespace["identify_with_patterns"](None, {("a",): "a"})
    assert list(namespace["FUSION_PATTERNS"].items()) == before


def test_dispatch_with_reports_restores_the_gate_even_after_an_exception():
    namespace = CHAPTER.namespace()
    gate = namespace["evaluate_backend_capability"]
    with pytest.raises(KeyError):
        namespace["dispatch_with_reports"]({}, {}, [{"name": "a"}], {})
    assert namespace["evaluate_backend_capability"] is gate


def test_a_todo_2_cell_that_does_not_even_parse_costs_todo_3_only_the_two_cells_that_use_it():
    report = CHAPTER.grade(
        Mutant("broken", "", "a syntax error", source="def evaluate_backend_capability(:", cell="todo2")
    )
    assert {grade_id for grade_id in report.lost if TODO_OF[grade_id] == 3} == {"todo3_own_gate", "todo3_all"}
    assert {grade_id for grade_id in report.lost if TODO_OF[grade_id] == 1} == set()


def test_unfilled_notebook_runs_top_to_bottom_with_only_todo_messages():
    """Every cell that is no test runs; the summary and the tests say which TODO comes first."""
    namespace: dict = {"__name__": "__main__"}
    stubs = {cell.source: stubbed(cell) for cell in CHAPTER.solutions}
    for cell in jupytext.read(ROOT / "solutions" / NAME / f"{NAME}.py", fmt="py:percent").cells:
        tags = set(cell.metadata.get("tags", ()))
        if cell.cell_type != "code" or tags & {"settings", "experiment", "reader", "plot"}:
            continue
        is_test = cell.metadata.get("nbgrader", {}).get("grade") or "summary" in tags
        expected = (
            pytest.raises(NotImplementedError, match="请先完成 TODO [123]") if is_test else contextlib.nullcontext()
        )
        with expected, contextlib.redirect_stdout(io.StringIO()):
            exec(compile(stubs.get(cell.source, cell.source), "<cell>", "exec", dont_inherit=True), namespace)


def test_filled_notebook_prints_the_one_line():
    namespace = CHAPTER.namespace()
    for cell in CHAPTER.visible_tests:
        exec(compile(cell.source, cell.grade_id, "exec", dont_inherit=True), namespace)
    summary = next(
        cell.source
        for cell in jupytext.read(ROOT / "solutions" / NAME / f"{NAME}.py", fmt="py:percent").cells
        if "summary" in cell.metadata.get("tags", ())
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(summary, "<summary>", "exec", dont_inherit=True), namespace)
    assert printed.getvalue().startswith("✅ ") and printed.getvalue().count("\n") == 1


def test_steps_1_to_4_need_no_package_and_no_newer_python():
    assert chapter_checks.imports(CHAPTER) <= {"typing", "random", "copy"}


RULES_STATED = {
    "t1_hardcoded_order": "`FUSION_PATTERNS`**：后来登记的模式也要算",
    "t1_import_time_cache": "**调用时才读",
    "t1_name_keyed_dict": "可以有同一个名字，都有效",
    "t1_optimal_cover_dp": "结果不一定是覆盖节点最多的分法",
    "t2_seq_missing_limit_unlimited": "后端缺 `max_seq_len` 按 0 算",
    "t2_dtype_missing_means_any": "按空名单算，不抛 `KeyError`，也不当作“都支持”",
    "t2_pattern_keyerror": "按空名单算，不抛 `KeyError`",
    "t2_reasons_set": "它是列表；全部通过时是 `[]`",
    "t3_max_empty_raises": "`backends` 是空列表也一样，不抛异常",
    "t3_index_empty_raises": "`backends` 是空列表也一样，不抛异常",
    "t3_next_no_default": "没有可用的后端就回退",
    "t3_reasons_joined_string": "是 `{名字: 原因的列表}`",
    "t3_sorts_backends_inplace": "也不给 `backends` 排序",
}


def test_each_rule_that_a_test_relies_on_is_stated_before_its_todo():
    assert set(RULES_STATED) == {name for name, case in CASES.items() if case["needs_rule_stated_in_text"]}
    cells = jupytext.read(ROOT / "solutions" / NAME / f"{NAME}.py", fmt="py:percent").cells
    for name, phrase in RULES_STATED.items():
        solution = next(
            i for i, cell in enumerate(cells) if cell.metadata.get("stub") and name[1] == str(cell.metadata["todo"])
        )
        before = "\n".join(cell.source for cell in cells[:solution] if cell.cell_type == "markdown")
        assert phrase in before, name
