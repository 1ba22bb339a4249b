"""`python -m grader check NOTEBOOK`: the visible tests on one's own notebook, on the path that grades it later.

Only the student's edition is used, so no hidden test is anywhere near. On one's own file it may run without a sandbox.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.errors import GraderError

if TYPE_CHECKING:
    from grader.model import Notebook

ROOT = Path(__file__).resolve().parent.parent
NO_SANDBOX = (
    "note: no sandbox on this machine, so your notebook's code runs here as it does in Jupyter; "
    "check only notebooks of your own"
)


def register(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser("check", help="run the visible tests on your notebook")
    parser.add_argument("notebook", nargs="?", type=Path, help="your .ipynb")
    parser.add_argument("--assignment", metavar="NAME", help="which chapter it is (default: what the notebook says)")
    parser.add_argument("--all", action="store_true", help="check every chapter in notebooks/")
    parser.add_argument("--json", action="store_true", help="print the details as JSON")
    parser.set_defaults(run=_run)


def check(path: Path, assignment: str | None = None, *, sandbox: str = "bwrap") -> dict[str, Any]:
    """Run the visible tests on one notebook.

    Returns:
        {"notebook", "assignment", "passed", "sandbox", "status", "questions": [{"title", "passed", "behaviours":
        [{"grade_id", "title", "status", "message", "step"}]}], "notes"}; status is "hidden" where a test has no
        visible part.

    Raises:
        GraderError: the file can't be read, or it belongs to no known chapter.
    """
    from grader.execution import execute
    from grader.model import ExecutionRequest
    from grader.rebuild import rebuild
    from grader.structure import questions_of

    notebook, notes = _read(path)
    name, release = _release_of(path, notebook, assignment)
    rebuilt = rebuild(release, release, notebook)
    attempted = {**rebuilt.attempted, **_attempted(release, rebuilt.notebook)}
    execution = execute(ExecutionRequest("check", rebuilt.notebook, attempted, sandbox=sandbox))
    verdicts = {test.grade_id: test for test in execution.tests}
    visible = {c["metadata"]["nbgrader"]["grade_id"] for c in release["cells"] if _has_visible_test(c)}
    questions = []
    for question in questions_of(release):
        behaviours = [_behaviour(b, verdicts.get(b.grade_id), b.grade_id in visible) for b in question.behaviours]
        passed = all(behaviour["status"] in ("passed", "hidden") for behaviour in behaviours)
        questions.append({"title": question.title, "passed": passed, "behaviours": behaviours})
    return {
        "notebook": str(path),
        "assignment": name,
        "passed": all(question["passed"] for question in questions),
        "sandbox": sandbox,
        "status": execution.status,
        "questions": questions,
        "notes": [*notes, *rebuilt.notes, *execution.notes],
    }


def _run(args: argparse.Namespace) -> int:
    if args.all == (args.notebook is not None):
        raise GraderError("check", "one notebook or --all is needed", "python -m grader check FILE.ipynb")
    paths = sorted(ROOT.glob("notebooks/*/*.ipynb")) if args.all else [args.notebook]
    if not paths:
        raise GraderError(str(ROOT / "notebooks"), "there is no notebook", "run `python -m grader build` first")
    sandbox = _sandbox()
    reports = [check(path, args.assignment, sandbox=sandbox) for path in paths]
    if args.json:
        print(json.dumps(reports if args.all else reports[0], ensure_ascii=False, indent=1))
    elif args.all:
        _say("\n".join(_line(report) for report in reports))
    else:
        _say(_text(reports[0]))
    return 0 if all(report["passed"] for report in reports) else 1


def _sandbox() -> str:
    from grader.sandbox import problem

    if problem() is None:
        return "bwrap"
    print(NO_SANDBOX, file=sys.stderr)
    return "none"


def _read(path: Path) -> tuple[Notebook, list[str]]:
    from grader.intake.decode import decode_notebook

    try:
        data = path.read_bytes()
    except OSError as error:
        raise GraderError(str(path), f"it can't be read ({error.strerror})", "give the path of your .ipynb") from error
    notebook, problem, notes = decode_notebook(data, path.name)
    if notebook is None:
        raise GraderError(str(path), problem or "it is no notebook", "check again with the repaired file")
    return notebook, notes


def _release_of(path: Path, notebook: Notebook, assignment: str | None) -> tuple[str, Notebook]:
    """The chapter's name and its student edition with unchanged tests.

    A notebook of no known chapter that carries tests of its own is held against those.
    """
    releases = {candidate.stem: candidate for candidate in sorted(ROOT.glob("notebooks/*/*.ipynb"))}
    name = assignment or _recognise(notebook, releases)
    if name in releases:
        return name, _unedited(releases[name])
    if assignment is not None:
        known = ", ".join(releases) or "none built yet"
        raise GraderError(f"assignment {assignment}", "it is unknown", f"choose one of: {known}")
    if not any(_has_visible_test(cell) for cell in notebook["cells"]):
        raise GraderError(
            str(path), "it belongs to no chapter that is known here", "name the chapter with --assignment"
        )
    edited = _edited_tests(notebook)
    if edited:
        raise GraderError(str(path), f"its test cell {edited[0]} was edited", "take the tests from a fresh copy")
    return path.stem, notebook


def _recognise(notebook: Notebook, releases: dict[str, Path]) -> str | None:
    """The chapter by the notebook's own word, else the release that shares most of its grade_ids or functions."""
    said = notebook["metadata"].get("course")
    if isinstance(said, dict) and said.get("chapter") in releases:
        return said["chapter"]
    marks = _marks(notebook)
    shared = {name: len(marks & _marks(_read(path)[0])) for name, path in releases.items()}
    best = max(shared, key=lambda name: shared[name], default=None)
    return best if best is not None and shared[best] > 0 else None


def _marks(notebook: Notebook) -> set[str]:
    """What a notebook is known by: its grade_ids and the functions its code defines."""
    from grader.structure import nbgrader_metadata

    marks = {f"id {nbgrader_metadata(cell)['grade_id']}" for cell in notebook["cells"] if nbgrader_metadata(cell)}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            lines = cell["source"].splitlines()
            marks |= {line.split("(")[0] for line in lines if line.startswith("def ") and not line.startswith("def _")}
    return marks


def _unedited(path: Path) -> Notebook:
    """A student edition of this tree; where it was worked in and its tests were changed, the committed one."""
    import subprocess

    from grader.intake.decode import decode_notebook

    notebook = _read(path)[0]
    edited = _edited_tests(notebook)
    if not edited:
        return _titled(notebook, path.read_bytes())
    shown = subprocess.run(
        ["git", "-C", str(ROOT), "show", f"HEAD:{path.relative_to(ROOT).as_posix()}"], capture_output=True, check=False
    )
    committed = decode_notebook(shown.stdout, path.name).notebook if shown.returncode == 0 else None
    if committed is None or _edited_tests(committed):
        raise GraderError(str(path), f"its test cell {edited[0]} was edited", f"git checkout -- {path}")
    return _titled(committed, shown.stdout)


def _titled(notebook: Notebook, data: bytes) -> Notebook:
    """A decoded release with its titles and steps, which decoding drops since nobody should trust a student's."""
    from grader.structure import nbgrader_metadata

    try:
        raw = json.loads(data.decode("utf-8-sig"))["cells"]
        kept = {cell["metadata"]["nbgrader"]["grade_id"]: cell["metadata"] for cell in raw if _is_nbgraders(cell)}
    except (ValueError, KeyError, TypeError):
        return notebook  # ids serve as names
    for cell in notebook["cells"]:
        metadata = kept.get(nbgrader_metadata(cell).get("grade_id"), {})
        cell["metadata"].update({key: metadata[key] for key in ("title", "todo", "step") if key in metadata})
    return notebook


def _is_nbgraders(cell: dict[str, Any]) -> bool:
    return isinstance(cell.get("metadata", {}).get("nbgrader"), dict)


def _edited_tests(notebook: Notebook) -> list[str]:
    """grade_ids of locked cells that no longer have the checksum of their release."""
    from grader.structure import checksum, nbgrader_metadata

    blocks = [(nbgrader_metadata(cell), cell) for cell in notebook["cells"] if nbgrader_metadata(cell)]
    locked = [(block, cell) for block, cell in blocks if block.get("locked") and block.get("checksum")]
    return [block["grade_id"] for block, cell in locked if checksum(cell) != block["checksum"]]


def _attempted(release: Notebook, rebuilt: Notebook) -> dict[str, bool]:
    """For solution cells with a checksum from their release: whether they were changed since.

    It decides where the student's file is itself the only release, against which nothing would differ.
    """
    from grader.structure import checksum, nbgrader_metadata

    blocks = [nbgrader_metadata(cell) for cell in release["cells"]]
    stamps = {block["grade_id"]: block.get("checksum") for block in blocks if block}
    changed = {}
    for cell in rebuilt["cells"]:
        block = nbgrader_metadata(cell)
        stamp = stamps.get(block.get("grade_id"))
        if block.get("solution") and stamp:
            changed[block["grade_id"]] = checksum(cell) != stamp
    return changed


def _has_visible_test(cell: dict[str, Any]) -> bool:
    """Whether a cell of a student edition is a test with code left in it."""
    from grader.structure import nbgrader_metadata

    block = nbgrader_metadata(cell)
    if not block.get("grade") or block.get("solution") or cell["cell_type"] != "code":
        return False
    try:
        return bool(ast.parse(cell["source"]).body)
    except SyntaxError:  # a test with IPython syntax
        return True


def _behaviour(behaviour: Any, verdict: Any, visible: bool) -> dict[str, Any]:
    status = "hidden" if not visible else verdict.status if verdict else "not_run"
    return {
        "grade_id": behaviour.grade_id,
        "title": behaviour.title,
        "status": status,
        "message": verdict.message if verdict and visible else "",
        "step": behaviour.step,
    }


def _text(report: dict[str, Any]) -> str:
    lines = [f"{report['assignment']}：可见测试 (visible tests)"]
    above = ""
    for question in report["questions"]:
        tests = [b for b in question["behaviours"] if b["status"] != "hidden"]
        done = sum(b["status"] == "passed" for b in tests)
        lines.append(f"{'✅' if question['passed'] else '❌'} {question['title']}  {done}/{len(tests)}")
        for behaviour in tests:
            if behaviour["status"] != "passed":
                lines.append(f"   ❌ {behaviour['title']} [{behaviour['status']}]")
                message = behaviour["message"] if behaviour["message"] != above else "原因同上 (same as above)"
                lines += [f"      {line}" for line in message.splitlines()]
                above = behaviour["message"] or above
                if behaviour["step"] and "请重读" not in message:
                    lines.append(f"      请重读 (reread): {behaviour['step']}")
    lines += [f"note: {note}" for note in report["notes"]]
    if report["passed"]:
        lines.append("全部可见测试通过；评分时还会运行隐藏测试 (all visible tests pass; hidden tests run when graded)")
    return "\n".join(lines)


def _line(report: dict[str, Any]) -> str:
    passed = sum(question["passed"] for question in report["questions"])
    mark = "✅" if report["passed"] else "❌"
    return f"{mark} {report['assignment']}  TODO {passed}/{len(report['questions'])}"


def _say(text: str) -> None:
    """Print in any terminal, also one that can't show every character."""
    from grader.text import printable

    encoding = sys.stdout.encoding or "utf-8"
    for line in text.splitlines():
        print(printable(line).encode(encoding, "replace").decode(encoding))
