"""Guards the class report: what the class got wrong, reasons, links; hostile text stays text; readable by everybody."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from grader.cli import main
from grader.report.page import page
from grader.report.similarity import Answer, Pair, Similarities
from grader.report.summary import behaviour_summaries, distribution, question_summaries
from grader.tests.classroom import PS1
from grader.tests.report_class import ODD, write_class
from grader.tests.test_feedback import EVIL, luminance

VOID = {"meta", "rect", "line"}


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """A class graded through the command line; the report comes with it."""
    root = tmp_path_factory.mktemp("report")
    write_class(root / "class")
    (root / "roster.txt").write_text("nobody\n")
    words = ["grade", root / "class", "--assignment", "ps1", "--source", PS1, "--out", root / "out"]
    words += ["--due", "2026-03-01T00:00+00:00", "--roster", root / "roster.txt"]
    assert main([str(word) for word in words]) == 0
    return root / "out"


@pytest.fixture(scope="module")
def shown(out) -> str:
    return (out / "report.html").read_text("utf-8")


@pytest.fixture(scope="module")
def results(out) -> dict:
    return json.loads((out / "results.json").read_text("utf-8"))


class Outline(HTMLParser):
    """Tags with their attributes, and the text of each element with an id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[tuple[str, str | None]] = []
        self.sections: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("id")))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop()[0] == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        for _, name in self.open:
            if name:
                self.sections[name] = self.sections.get(name, "") + " ".join(data.split()) + " "


@pytest.mark.sandbox
def test_every_part_of_the_class_is_there(shown):
    parts = Outline(shown).sections
    assert {"scores", "missed", "status", "flags", "similar", "students"} <= set(parts)
    assert "nobody – 未提交" in parts["status"] and "网页" in parts["status"]
    assert re.search(r"late : 2\s+htmlpage, loopb", parts["status"])
    assert "7.5" in parts["scores"] and "没有分数 without a score 2" in parts["scores"]


@pytest.mark.sandbox
def test_most_missed_comes_first_with_counts_and_names(results):
    summaries = behaviour_summaries(results)
    assert [len(summary.missed) for summary in summaries] == [3, 3, 2]
    first = summaries[0]
    assert (first.title, first.graded, first.missed) == ("q1_visible", 10, ["poelin", "roejohn", "untouched"])
    assert first.statuses == {"failed": 2, "no_attempt": 1}
    assert sum(count for _, count in first.messages) == 3


@pytest.mark.sandbox
def test_questions_and_the_distribution_count_only_who_has_a_score(results):
    first, second = question_summaries(results)
    assert (first.graded, first.full, first.none, first.share) == (10, 7, 3, pytest.approx(0.7))
    assert (second.full, second.none) == (8, 2)
    counts = {part.label: part.count for part in distribution(results)}
    assert counts.pop("0–9") == 2 and counts.pop("50–59") == 1 and counts.pop("90–100") == 7
    assert set(counts.values()) == {0} and len(counts) == 7


@pytest.mark.sandbox
def test_the_copied_pair_shows_and_the_coincidental_one_does_not(shown):
    pairs = re.findall(r"<h4>(.*?)</h4>", shown)
    assert pairs == ["poelin ↔ roejohn"]
    assert "<mark>bucket</mark>" in shown and "<mark>pile</mark>" in shown
    assert "never a verdict" in shown and "too short to tell" in shown


@pytest.mark.sandbox
def test_every_link_leads_to_a_file(out, shown):
    addresses = [attributes["href"] for tag, attributes in Outline(shown).tags if tag == "a"]
    files = [address for address in addresses if not address.startswith("#")]
    assert len(files) == 12 + 10  # a feedback page for everybody, a notebook for who was graded
    assert all((out / unquote(address)).is_file() for address in files)
    anchors = {address[1:] for address in addresses if address.startswith("#")}
    assert anchors <= set(Outline(shown).sections)


@pytest.mark.sandbox
def test_the_verb_writes_it_again_with_the_exports(out, capsys):
    before = (out / "results.json").read_bytes()
    assert main(["report", str(out)]) == 0
    assert (out / "results.json").read_bytes() == before
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("report.html", "canvas.csv", "moodle.csv"))
    again = (out / "report.html").read_text("utf-8")
    assert 'id="exports"' in again and "10 grades filled in" in again


@pytest.mark.sandbox
def test_a_gradebook_of_canvas_goes_through_the_command_line(out, tmp_path, capsys):
    template = tmp_path / "gradebook.csv"
    template.write_text(
        "Student,ID,SIS Login ID,Section,Problem set (7),Ps1 (8)\n    Points Possible,,,,10,20\n"
        '"Roe, John",1002,jroe,A,9,\n"Page, Html",1011,hp,A,,\n"Untouched, Ulf",1010,uu,A,,3\n'
    )
    assert main(["report", str(out), "--canvas-template", str(template)]) == 0
    assert (out / "canvas.csv").read_text("utf-8") == (
        "Student,ID,SIS Login ID,Section,Ps1 (8)\n    Points Possible,,,,20\n"
        '"Roe, John",1002,jroe,A,10\n"Page, Html",1011,hp,A,\n"Untouched, Ulf",1010,uu,A,0\n'
    )
    told = capsys.readouterr()
    assert "no row found for doejane" in told.err and "scaled" in told.err and "2 grades for Canvas" in told.out
    assert "poelin" in Outline((out / "report.html").read_text("utf-8")).sections["exports"]
    assert main(["report", str(out), "--canvas-template", str(template), "--canvas-column", "Quiz"]) == 2
    assert "Problem set (7); Ps1 (8)" in capsys.readouterr().err


def test_a_folder_without_a_class_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "no class was graded" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def entry(name: str, score: float | None, **values) -> dict:
    behaviour = {"grade_id": "t", "title": "order", "score": score, "max_score": 2.0, "message": "no", "step": "2.1"}
    behaviour |= {"status": "not_run" if score is None else "failed", "hidden": False, "by_hand": False}
    question = {"title": "TODO 1", "score": score, "max_score": 2.0, "behaviours": [behaviour], "comments": []}
    plain = {"student": name, "status": "graded", "late": False, "score": score, "max_score": 2.0, "notes": []}
    return {**plain, "questions": [question], "flags": [], "reason": "", **values}


def results_of(*students: dict, **values) -> dict:
    plain = {"assignment": "ps1", "release": "1.0", "max_score": 2.0, "sandbox": "bwrap", "due": None}
    return {**plain, "students": list(students), **values}


def test_nothing_hostile_becomes_html():
    student = entry(EVIL, 0.0, reason=EVIL, notes=[EVIL], flags=[{"kind": EVIL, "detail": EVIL}], late=True)
    student["status"] = "crashed"
    student["questions"][0]["title"] = EVIL
    student["questions"][0]["behaviours"][0] |= {"title": EVIL, "message": EVIL, "step": EVIL}
    pair = Pair(Answer(EVIL, f"x = 1  # {EVIL}\n{EVIL}"), Answer("b", f"y = 1  # {EVIL}\n"), 99, 50, (EVIL,))
    links = {EVIL: [("feedback/%3Cscript%3E", "反馈", "feedback")]}
    everything = results_of(student, assignment=EVIL, release=EVIL, due=EVIL)
    text = page(everything, EVIL, [(EVIL, Similarities([pair], 2, 0))], links)
    tags = Outline(text).tags
    assert [tag for tag, _ in tags].count("script") == 1 and "img" not in dict(tags)
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]
    assert text.count("{{ 7*7 }}") > 10  # never taken for a template


def test_the_only_script_is_the_one_that_the_policy_names():
    text = page(results_of(entry("ann", 1.0)), "Problem set 1")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', text)
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert not re.search(r"https?:|url\(|@import|\ssrc=", text)


def test_a_class_without_any_score_has_a_page():
    text = page(results_of(entry("ann", None, status="unreadable", reason="HTML")), "Problem set 1")
    assert "Nobody has a score yet" in text
    assert "没有任何分数" in page(results_of(), "Problem set 1")


def test_an_unsafe_run_is_named():
    assert "without a sandbox" in page(results_of(entry("ann", 1.0), sandbox="none"), "Problem set 1")


@pytest.mark.sandbox
def test_headings_have_no_gap_and_tables_have_scopes(shown):
    tags = Outline(shown).tags
    assert dict(tags)["html"]["lang"] == "zh-CN"
    levels = [int(tag[1]) for tag, _ in tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in tags if tag == "th")
    scrolled = [attributes for tag, attributes in tags if "wide" in attributes.get("class", "").split()]
    assert scrolled and all(a["tabindex"] == "0" and a["role"] == "region" and a["aria-label"] for a in scrolled)
    (chart,) = [attributes for tag, attributes in tags if tag == "svg"]
    assert chart["role"] == "img" and "90–100 %: 7" in Outline(shown).sections[chart["aria-labelledby"]]
    assert len({a["aria-label"] for tag, a in tags if tag == "a" and "aria-label" in a}) == 22


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_marked_code_has_the_contrast_that_wcag_aa_asks_for(theme):
    text = page(results_of(entry("ann", 1.0)), "Problem set 1")
    inks = re.findall(r"--ink: #(\w+)", text)
    marks = re.findall(r"--mark: #(\w+)", text)
    pair = sorted([luminance(inks[theme]), luminance(marks[theme])])
    assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5


def test_code_is_shown_as_it_was_handed_in():
    answer = Answer("ann", ODD)
    text = page(results_of(entry("ann", 1.0)), "ps1", [("q1", Similarities([Pair(answer, answer, 100, 60)], 2, 0))])
    assert text.count("# take the negatves out first") == 2 and "<mark>" not in text
