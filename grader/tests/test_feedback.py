"""Guards the student's page: reasons and next steps are there, all is escaped, nothing is the instructor's."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from grader.feedback import BEHAVIOUR_STATUS, STUDENT_STATUS, page, student_copy, write_feedback
from grader.model import STUDENT_STATUSES, TEST_STATUSES

RESULTS = {"assignment": "ps1", "release": "1.0", "max_score": 10.0, "sandbox": "bwrap"}


def behaviour(**values):
    plain = {
        "grade_id": "t1",
        "title": "longest first",
        "score": 0.0,
        "max_score": 2.0,
        "status": "failed",
        "message": "expected 3, got 4",
        "hidden": False,
        "step": "2.1 leftmost",
        "by_hand": False,
    }
    return {**plain, **values}


def entry(*behaviours, **values):
    question = {"title": "TODO 1", "score": 0.0, "max_score": 2.0, "behaviours": list(behaviours), "comments": []}
    plain = {
        "student": "ann",
        "status": "graded",
        "late": False,
        "score": 0.0,
        "max_score": 10.0,
        "questions": [question],
        "notes": ["cell moved back"],
        "flags": [{"kind": "tests_edited", "detail": "q1"}],
        "reason": "",
    }
    return {**plain, **values}


def shown(student) -> str:
    return page(student, RESULTS, "Problem set 1")


def test_a_failure_says_what_came_and_which_step_to_reread():
    text = shown(entry(behaviour()))
    assert "expected 3, got 4" in text and "请重读：2.1 leftmost" in text
    assert BEHAVIOUR_STATUS["failed"][0] in text and BEHAVIOUR_STATUS["failed"][1] in text


def test_a_passed_behaviour_needs_no_words():
    text = shown(entry(behaviour(score=2.0, status="passed", message="secret of the test")))
    assert "✓" in text and "secret of the test" not in text and "请重读" not in text


def test_flags_are_for_the_instructor():
    assert "tests_edited" not in shown(entry(behaviour()))


def test_repairs_and_the_next_step_are_said():
    text = shown(entry(behaviour()))
    assert "cell moved back" in text and "python -m grader check" in text


def test_an_unreadable_file_is_explained():
    text = shown(entry(status="unreadable", score=None, questions=[], reason="HTML, no notebook → save it again"))
    assert "HTML, no notebook → save it again" in text and "– / 10" in text


def test_the_teachers_remark_and_score_show():
    student = entry(behaviour(by_hand=True, score=1.0))
    student["questions"][0]["comments"] = ["well tried"]
    text = shown(student)
    assert "well tried" in text and "老师评定了这一项的得分" in text


@pytest.mark.parametrize("status", STUDENT_STATUSES)
def test_every_student_status_has_words_in_both_languages(status):
    assert all(STUDENT_STATUS[status])
    assert STUDENT_STATUS[status][0] in shown(entry(status=status))


@pytest.mark.parametrize("status", TEST_STATUSES)
def test_every_test_status_has_words_in_both_languages(status):
    assert all(BEHAVIOUR_STATUS[status])
    shown(entry(behaviour(status=status)))


def test_the_same_reason_is_told_once():
    text = shown(entry(behaviour(), behaviour(grade_id="t2", title="another")))
    assert text.count("expected 3, got 4") == 1 and "原因同上" in text


def test_a_step_that_the_message_names_is_not_named_twice():
    assert shown(entry(behaviour(message="no; 请重读：2.1 leftmost"))).count("2.1 leftmost") == 1


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"' &amp; {{ 7*7 }}"


def test_nothing_of_the_student_becomes_html():
    student = entry(
        behaviour(message=EVIL, title=EVIL, step=EVIL), student=EVIL, notes=[EVIL], reason=EVIL, status="crashed"
    )
    student["questions"][0].update(title=EVIL, comments=[EVIL])
    text = page(student, {**RESULTS, "assignment": EVIL, "release": EVIL}, EVIL)
    assert "<script" not in text and "<img" not in text and "49" not in text


class _Outline(HTMLParser):
    """Headings, tags with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def outline(text: str) -> list[tuple[str, dict]]:
    parser = _Outline()
    parser.feed(text)
    return parser.tags


def test_the_page_stands_alone_and_is_small():
    text = page(entry(behaviour()), RESULTS, "Problem set 1", "ps1.ipynb")
    assert re.findall(r"(?:src|href)=\S*|url\(|@import|https?:", text) == ['href="ps1.ipynb"']
    assert len(text.encode()) < 8_000


def test_the_page_has_a_language_one_main_heading_and_no_gap_in_the_levels():
    tags = outline(shown(entry(behaviour())))
    assert dict(tags)["html"]["lang"] == "zh-CN"
    levels = [int(tag[1]) for tag, _ in tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    assert any(attributes.get("lang") == "en" for _, attributes in tags)


def luminance(colour: str) -> float:
    colour = "".join(2 * c for c in colour) if len(colour) == 3 else colour
    channels = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "soft", "good", "bad"])
def test_text_has_the_contrast_that_wcag_aa_asks_for(theme, ink):
    blocks = re.findall(r":root \{(.*?)\}", shown(entry(behaviour())), re.DOTALL)
    colours = dict(re.findall(r"--(\w+): #(\w+)", blocks[theme]))
    for paper in ("paper", "card"):
        pair = sorted([luminance(colours[ink]), luminance(colours[paper])])
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5


def code(grade_id: str, source: str, *outputs: dict, **block) -> dict:
    metadata = {"nbgrader": {"grade_id": grade_id, "solution": False, "grade": False, "locked": True, **block}}
    return {"cell_type": "code", "id": grade_id, "metadata": metadata, "source": source, "outputs": list(outputs)}


def test_the_students_copy_has_released_tests_without_their_output():
    secret = {"output_type": "error", "ename": "AssertionError", "evalue": "SECRET 41", "traceback": ["SECRET 41"]}
    own = {"output_type": "stream", "name": "stdout", "text": "x" * 9000}
    html = {"output_type": "display_data", "data": {"text/html": "<script>1</script>"}, "metadata": {}}
    test = code("t", "assert f() == 1\n### BEGIN HIDDEN TESTS\nassert f() == 41", secret, grade=True, points=1)
    helper = code("h", "def helper(): ...")
    executed = {"cells": [code("s", "def f(): return 2", own, html, solution=True, locked=False), helper, test]}
    release = {"cells": [code("h", "def helper(): ..."), code("t", "assert f() == 1", grade=True, points=1)]}
    copied = student_copy(executed, release)
    assert [cell["source"] for cell in copied["cells"]] == ["def f(): return 2", "def helper(): ...", "assert f() == 1"]
    assert copied["cells"][2]["outputs"] == []
    (output,) = copied["cells"][0]["outputs"]
    assert output["text"].startswith("xxx") and len(output["text"]) < 6000


def test_one_page_per_student(tmp_path):
    results = {**RESULTS, "students": [entry(behaviour()), entry(behaviour(), student="bob")]}
    write_feedback(tmp_path, results)
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html"))
    assert names == ["feedback/ann/ps1.html", "feedback/bob/ps1.html"]
