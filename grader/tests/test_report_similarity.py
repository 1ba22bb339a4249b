"""Guards the hint on similar answers: disguised copies are found, the one obvious way is none, any text is survived."""

from __future__ import annotations

import random

import pytest

from grader.report.answers import side_by_side
from grader.report.similarity import KEPT, Answer, similar_answers
from grader.report.tokens import lex, line_keys, own_tokens, own_words
from grader.tests.report_class import COPIED, LOOP, ODD

GIVEN = 'def relu_sum(xs):\n    """Return the sum of max(x, 0) over xs."""\n    raise NotImplementedError'
REFERENCE = "def relu_sum(xs):\n    return sum(x if x > 0 else 0 for x in xs)"


def varied(number: int, lines: int = 25) -> str:
    """A long answer like no other."""
    chance = random.Random(number)
    steps = [
        f"    v{chance.randrange(5)} = {chance.choice('abcd')} {chance.choice('+-*/')} {chance.randrange(99)}"
        for _ in range(lines)
    ]
    return "\n".join(["def relu_sum(xs):", *steps, "    return v0"])


def pairs_of(*codes: str, others: int = 20, mistakes: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """Names of the pairs shown, in a class of these answers (named 0, 1, …) and others of all kinds."""
    answers = [Answer(str(n), code, frozenset(mistakes)) for n, code in enumerate(codes)]
    answers += [Answer(f"other{n}", varied(n)) for n in range(others)]
    return [(p.first.student, p.second.student) for p in similar_answers(answers, GIVEN, REFERENCE).pairs]


def test_renaming_comments_docstrings_layout_and_a_new_line_hide_nothing():
    assert pairs_of(ODD, COPIED) == [("0", "1")]


@pytest.mark.parametrize("others", [0, 1, 3, 30, 120])
def test_a_copy_is_found_in_a_class_of_any_size(others):
    assert pairs_of(ODD, COPIED, others=others) == [("0", "1")]


def test_all_of_three_that_copied_are_named():
    assert sorted(pairs_of(ODD, COPIED, ODD.replace("pile", "heap"))) == [("0", "1"), ("0", "2"), ("1", "2")]


def test_different_answers_are_no_pair():
    assert pairs_of() == []


def test_the_same_short_answer_is_too_short_to_tell():
    found = similar_answers([Answer("a", LOOP), Answer("b", LOOP)], GIVEN, REFERENCE)
    assert (found.pairs, found.compared, found.too_short) == ([], 0, 2)


def test_what_many_of_the_class_wrote_is_no_hint():
    assert pairs_of(*[ODD] * 12, others=20) == []


def test_the_reference_solution_is_no_hint():
    answers = [Answer(str(n), ODD) for n in range(2)] + [Answer(f"other{n}", varied(n)) for n in range(9)]
    assert similar_answers(answers, GIVEN, ODD).pairs == []


def test_given_code_is_no_hint():
    answers = [Answer(str(n), ODD + f"\nprint({n})") for n in range(2)]
    found = similar_answers(answers, ODD, REFERENCE)
    assert (found.pairs, found.too_short) == ([], 2)


def test_an_untouched_answer_counts_for_nothing():
    found = similar_answers([Answer("a", GIVEN), Answer("b", GIVEN)], GIVEN, REFERENCE)
    assert (found.compared, found.too_short, found.pairs) == (0, 0, [])


def test_a_shared_mistake_strengthens_a_short_passage():
    head = "\n".join(ODD.split("\n")[2:5])
    first, second = (f"def relu_sum(xs):\n{head}\n{varied(n, 6)}" for n in (501, 502))
    second = second.replace("pile", "heap").replace("lowest", "least")
    assert pairs_of(first, second) == []
    assert pairs_of(first, second, mistakes=("order: got 104",)) == [("0", "1")]


def test_uncommon_comments_and_wrong_results_are_named():
    both = frozenset({"sum: got 104"})
    answers = [Answer("a", ODD, both), Answer("b", ODD, both), *(Answer(f"o{n}", varied(n)) for n in range(9))]
    (pair,) = similar_answers(answers, GIVEN, REFERENCE).pairs
    assert {"# take the negatves out first", "sum: got 104", "pile"} <= set(pair.shared)
    assert pair.similarity == 100


def test_a_page_never_gets_more_pairs_than_a_person_reads():
    codes = [code for n in range(60) for code in (varied(n), varied(n).replace("v0", "w"))]
    assert len(pairs_of(*codes, others=0)) == KEPT


@pytest.mark.parametrize(
    "code",
    ["", '"""' * 999, "'''\\" * 999, "\\\"'" * 3000, "(" * 9999, "\ud800\x00\u2028", "0x" * 999, "名 = 1\n" * 999],
    ids=["empty", "triple", "escaped", "quotes", "brackets", "odd characters", "numbers", "chinese"],
)
def test_any_text_is_survived(code):
    lex(code), own_words(code, ()), side_by_side(code, code[::-1])
    assert len(line_keys(code)) == code.count("\n") + 1
    assert similar_answers([Answer("a", code), Answer("b", code)], GIVEN, REFERENCE).compared in (0, 2)


def test_strings_and_numbers_stay_and_attributes_too():
    tokens = own_tokens("total = xs.append('a # b') + 1.5e3  # comment", ())
    assert tokens == ["n+", "=", "n+", ".", "append", "(", "'a # b'", ")", "+", "1.5e3"]


def test_a_docstring_is_a_comment_and_a_string_that_is_used_is_not():
    tokens = own_tokens('def f():\n    """Doc."""\n    return """text"""', ())
    assert '"""Doc."""' not in tokens and '"""text"""' in tokens


def test_lines_that_do_the_same_stand_side_by_side():
    rows = side_by_side("a = 1\n\nb = a + 1", "# first\nx = 1\ny = x + 1")
    assert [row.same for row in rows] == [False, True, True]
    assert rows[0].left is None and rows[0].right == [("# first", False)]
    assert rows[2].left == [("b", True), (" = ", False), ("a", True), (" + 1", False)]
