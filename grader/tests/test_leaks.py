"""Guards the hidden tests: their text, inputs and expected values are searched for in all that a student receives, over
every case of the manifest, every case of our own, and chapter 4. Chapter 4's reference has full marks on the same path,
and the untouched release none."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.authoring.release import load_source, release_notebook
from grader.execution.cells import hidden_lines
from grader.grade.pipeline import GradeOptions, grade
from grader.model import Notebook
from grader.tests.attacks import school
from grader.tests.attacks.case import Case, dump
from grader.tests.attacks.school import shared
from grader.tests.classroom import PS1, hand_in
from grader.tests.test_grade_cases import graded_manifest

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "04_execution_dispatch"
SOURCE = ROOT / "solutions" / CHAPTER / f"{CHAPTER}.ipynb"


def secrets(source: Notebook, release: Notebook) -> set[str]:
    """What is distinctive of the hidden tests: their lines and the values written in them, unless released."""
    public = text_of(release)
    found: set[str] = set()
    for cell in source["cells"]:
        lines = cell["source"].splitlines()
        hidden = hidden_lines(cell["source"])
        found |= {lines[n - 1].strip() for n in hidden if not lines[n - 1].lstrip().startswith("#")}
        if hidden:
            for node in ast.walk(ast.parse(cell["source"])):
                if (
                    isinstance(node, (ast.Constant, ast.List, ast.Dict, ast.Tuple, ast.UnaryOp))
                    and node.lineno in hidden
                ):
                    found.add(ast.get_source_segment(cell["source"], node) or "")
    found = {text for text in found if len(text) >= 8 or re.fullmatch(r"-\d+\.\d+", text)}
    return {text for text in found if text not in public}


def text_of(notebook: Notebook) -> str:
    return "\n".join(cell["source"] for cell in notebook["cells"])


def received(out: Path) -> Iterator[tuple[str, str, str]]:
    """(student, what, text) of all that a student gets: pages, the notebook as it ran, words of the results."""
    results = json.loads((out / "results.json").read_text("utf-8"))
    for student in results["students"]:
        words = [student["reason"], *student["notes"]]
        words += [
            w for q in student["questions"] for b in q["behaviours"] for w in (b["title"], b["message"], b["step"])
        ]
        yield student["student"], "results.json", "\n".join(words)
        for path in (out / "feedback" / student["student"]).iterdir():
            text = path.read_text("utf-8")
            yield student["student"], path.name, text if path.suffix == ".html" else own_words(json.loads(text))


def own_words(notebook: Notebook) -> str:
    """Sources and outputs of a notebook as plain text."""
    parts = []
    for cell in notebook["cells"]:
        parts.append("".join(cell["source"]))
        for output in cell.get("outputs", []):
            parts.append("".join(output.get("text", "")) + json.dumps(output, ensure_ascii=False))
    return "\n".join(parts)


def leaks(out: Path, wanted: set[str], handed_in: dict[str, str]) -> list[tuple[str, str, str]]:
    """Secrets in what students received, without those that a student wrote into his own file."""
    found = []
    for student, what, text in received(out):
        plain = text.replace("&#39;", "'").replace("&#34;", '"').replace("&lt;", "<").replace("&gt;", ">")
        mine = handed_in.get(student, "")
        found += [(student, what, secret) for secret in wanted if secret in plain and secret not in mine]
    return found


def handed_in(out: Path) -> dict[str, str]:
    """The text of each student's own hand-in, as the grader found it."""
    texts = {}
    for student in json.loads((out / "results.json").read_text("utf-8"))["students"]:
        path = Path(student["submission"].split("!")[0])
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        try:
            texts[student["student"]] = own_words(json.loads(content.decode("utf-8-sig", "replace")))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            texts[student["student"]] = content.decode("utf-8", "replace")
    return texts


@pytest.fixture(scope="module")
def ps1_secrets() -> set[str]:
    source = load_source(PS1)
    found = secrets(source, release_notebook(source, "ps1"))
    assert {"SECRET_CANARY_HIDDEN_TEST = 41", "[-5, 20, 21]", "-0.25", "tc.assertEqual(mean_sq([]), 0.0)"} <= found
    return found


def test_of_our_own_cases(tmp_path_factory, ps1_secrets):
    out = school.graded(tmp_path_factory).out
    assert leaks(out, ps1_secrets, handed_in(out)) == []


def test_of_the_manifests_cases(tmp_path_factory, ps1_secrets):
    out = graded_manifest(tmp_path_factory)
    assert leaks(out, ps1_secrets, handed_in(out)) == []


CARRIED = [case for case in school.ATTACKS if "carry" in case.tags]


@pytest.mark.parametrize("case", CARRIED, ids=lambda case: case.name)
def test_inputs_of_hidden_tests_are_not_carried_into_messages(tmp_path_factory, case: Case):
    graded = school.graded(tmp_path_factory)
    student = graded.entry(case.place)["student"]
    for name, what, text in received(graded.out):
        if name == student:
            assert not re.search(r"-5, 20|20, 21|0\.25|52002\d", text), (what, text)


def test_of_the_class_as_a_whole_on_the_screen(tmp_path_factory, ps1_secrets):
    graded = school.graded(tmp_path_factory)
    assert not [secret for secret in ps1_secrets if secret in graded.evidence["stdout"] + graded.evidence["stderr"]]


# ------------------------------------------------------------------------------------------------------- chapter 4

TALKER = {
    1: "raise ValueError(f'called with {args!r} {kwargs!r}')",
    2: "return {'backend': repr(args), 'supported': True, 'reasons': [repr(args)]}",
    3: "raise type('Got ' + repr(args)[:80], (KeyError,), {})(repr(args))",
    4: "return repr(args)",
}


def talkative(release: Notebook, body: str) -> Notebook:
    """The release with functions that tell what they were called with."""
    notebook = json.loads(json.dumps(release))
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            names = [node.name for node in ast.parse(cell["source"]).body if isinstance(node, ast.FunctionDef)]
            cell["source"] = "\n".join(f"def {name}(*args, **kwargs):\n    print(args)\n    {body}\n" for name in names)
    return notebook


@pytest.fixture(scope="module")
def chapter(tmp_path_factory) -> Path:
    """Chapter 4: the reference, the untouched release, and four who tell all that they see."""

    def make(root: Path) -> None:
        source = load_source(SOURCE)
        release = release_notebook(source, CHAPTER)
        hand_in(root / "class", "reference", source)
        hand_in(root / "class", "untouched", release)
        for number, body in TALKER.items():
            hand_in(root / "class", f"talker{number}", talkative(release, body))
        grade(GradeOptions(root / "class", CHAPTER, source=SOURCE, out=root / "out"))

    return shared(tmp_path_factory, "chapter_4", make)


def test_the_reference_has_full_marks_and_the_untouched_release_none(chapter):
    results = json.loads((chapter / "out" / "results.json").read_text("utf-8"))
    scores = {s["student"]: (s["score"], s["status"], s["flags"]) for s in results["students"]}
    assert scores["reference"] == (100, "graded", []) and scores["untouched"] == (0, "graded", [])
    untouched = next(s for s in results["students"] if s["student"] == "untouched")
    assert {b["status"] for q in untouched["questions"] for b in q["behaviours"]} == {"no_attempt"}


def test_of_chapter_4(chapter):
    source = load_source(SOURCE)
    wanted = secrets(source, release_notebook(source, CHAPTER))
    assert len(wanted) > 100
    found = leaks(chapter / "out", wanted, handed_in(chapter / "out"))
    assert [leak for leak in found if leak[0] != "reference"] == []


def test_of_every_release():
    for path in sorted(ROOT.glob("notebooks/*/*.ipynb")):
        source = load_source(ROOT / "solutions" / path.stem / f"{path.stem}.ipynb")
        released = path.read_text("utf-8")
        assert "HIDDEN TESTS" not in released, path
        notebook = json.loads(released)
        wanted = secrets(source, release_notebook(source, path.stem))
        assert not [s for s in wanted if s in own_words(notebook)], path


def test_of_what_check_prints(chapter, tmp_path):
    source = load_source(SOURCE)
    release = release_notebook(source, CHAPTER)
    wanted = secrets(source, release)
    path = tmp_path / "mine.ipynb"
    path.write_bytes(dump(talkative(release, TALKER[1])))
    for option in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "grader", "check", str(path), *option], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 1
        assert not [secret for secret in wanted if secret in done.stdout + done.stderr]


def test_the_search_finds_what_is_there(chapter):
    source = load_source(SOURCE)
    wanted = secrets(source, release_notebook(source, CHAPTER))
    executed = json.loads(
        (chapter / "out" / "autograded" / "talker1" / CHAPTER / f"{CHAPTER}.ipynb").read_text("utf-8")
    )
    assert [secret for secret in wanted if secret in own_words(executed)]
