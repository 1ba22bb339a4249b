"""Make the sample classes: notebooks as students really hand them in, from the releases.

    python assets/sample_class/make_sample_class.py            # writes assets/sample_class/NN_name/
    python assets/sample_class/make_sample_class.py --check    # exit code 1 where the files differ

Chapter 4's class shows every way to hand in; those of the other chapters are small (small_classes.py).
Running it again changes no byte. Names are made up.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path[:0] = [str(FOLDER), str(ROOT)]  # run as a script or loaded by a test: small_classes and grader are found

import small_classes  # noqa: E402

CHAPTER = "04_execution_dispatch"

Notebook = dict[str, Any]

RIGHT_1 = "ordered_patterns = sorted(FUSION_PATTERNS.items(), key=lambda item: -len(item[0]))"
RIGHT_2 = """\
pattern_supported = candidate['pattern'] in backend.get('patterns', [])
dtype_supported = workload['dtype'] in backend.get('dtypes', [])
device_supported = workload['device'] in backend.get('devices', [])
sequence_supported = workload.get('seq_len', 0) <= backend.get('max_seq_len', 0)
dynamic_shape_supported = not workload.get('dynamic_shape', False) or backend.get('supports_dynamic_shape') is True"""
RIGHT_3 = """\
selected = None
for report in capability_reports:
    if report['supported']:
        selected = report
        break"""

REWRITTEN_1 = """\
# 我自己重写了一遍，从最长的窗口往短的找
def identify_fusion_candidates(ops):
    ops = list(ops)
    if () in FUSION_PATTERNS:
        raise ValueError('empty pattern')
    widths = sorted({len(pattern) for pattern in FUSION_PATTERNS}, reverse=True)
    found, i = [], 0
    while i < len(ops):
        for width in widths:
            window = tuple(ops[i:i + width])
            if len(window) == width and window in FUSION_PATTERNS:
                found.append({'pattern': FUSION_PATTERNS[window], 'start': i, 'end': i + width, 'ops': list(window)})
                i += width
                break
        else:
            i += 1
    return found
"""

ENDLESS_1 = """\
ordered_patterns = []
while len(ordered_patterns) < 5:
    for pattern in FUSION_PATTERNS.items():
        if pattern not in ordered_patterns:
            ordered_patterns.append(pattern)"""

SYNTAX_2 = """\
pattern_supported = candidate['pattern'] in backend['patterns']
dtype_supported = workload['dtype'] in backend['dtypes']
device_supported = workload['device'] in backend['devices'
sequence_supported = workload['seq_len'] <= backend['max_seq_len']
dynamic_shape_supported = True"""

LOGIN_PAGE = """\
<!DOCTYPE html>
<html lang="zh-CN"><head><title>统一身份认证</title></head>
<body><form method="post"><label>学号 <input name="user"></label></form></body></html>
"""


@dataclass(frozen=True)
class Student:
    """One hand-in.

    file: the name under which it was handed in.
    make: from the release to the file's content.
    score: what grading must give; "some" stands for more than 0 and less than 100, None for no score.
    status: of the student in results.json.
    """

    name: str
    what: str
    file: str
    make: Callable[[Notebook], bytes]
    score: int | str | None
    status: str = "graded"


def fill(notebook: Notebook, **answers: str) -> Notebook:
    """The notebook with these lines in place of the stubs; answers by grade_id."""
    filled = copy.deepcopy(notebook)
    for grade_id, lines in answers.items():
        cell = cell_of(filled, grade_id)
        stub = re.compile(r"^([ \t]*)# YOUR CODE HERE\n[ \t]*raise NotImplementedError\(.*\)$", re.MULTILINE)
        code, count = stub.subn(lambda m, lines=lines: indent(lines, m.group(1)), cell["source"])
        if count != 1:
            raise SystemExit(f"{grade_id}: the release has no stub to fill; build first")
        cell["source"] = code
    return filled


def indent(lines: str, margin: str) -> str:
    return "\n".join(margin + line if line else line for line in lines.split("\n"))


def cell_of(notebook: Notebook, grade_id: str) -> dict[str, Any]:
    return next(c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id)


def solved(notebook: Notebook, **other: str) -> Notebook:
    """All three TODOs right, but for those given."""
    return fill(notebook, **{"todo1": RIGHT_1, "todo2": RIGHT_2, "todo3": RIGHT_3, **other})


def text(notebook: Notebook) -> bytes:
    """As Jupyter writes it."""
    return (json.dumps(notebook, ensure_ascii=False, indent=1) + "\n").encode()


def answers(**other: str) -> Callable[[Notebook], bytes]:
    """A maker: right but for the given TODOs."""
    return lambda release: text(solved(release, **other))


def half_done(release: Notebook) -> bytes:
    return text(fill(release, todo1=RIGHT_1, todo2=RIGHT_2))


def from_colab(release: Notebook) -> bytes:
    """nbformat 4.0, ids in the metadata, nbgrader's block lost, outputs, widget state, one line a cell's source."""
    notebook = solved(release)
    for number, cell in enumerate(notebook["cells"]):
        kept = {key: cell["metadata"][key] for key in ("tags",) if key in cell["metadata"]}
        cell["metadata"] = {"id": f"x{number:011d}", **kept}
        cell.pop("id", None)
        if cell["cell_type"] == "code":
            cell["execution_count"] = number
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": [f"cell {number} ran\n"]}]
        cell["source"] = cell["source"].splitlines(keepends=True)
    bar = {"model_module": "@jupyter-widgets/controls", "model_name": "HBoxModel", "model_module_version": "1.5.0"}
    notebook["metadata"] = {
        "colab": {"provenance": [], "toc_visible": True},
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "language_info": {"name": "python"},
        "accelerator": "GPU",
        "widgets": {"application/vnd.jupyter.widget-state+json": {"0a1b2c": {**bar, "state": {"children": []}}}},
    }
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 0
    return json.dumps(notebook, ensure_ascii=True, indent=2).encode()


def own_cell(release: Notebook) -> bytes:
    """TODO 1 left as it is, the function written anew in a cell of the student's own below it."""
    notebook = fill(release, todo2=RIGHT_2, todo3=RIGHT_3)
    place = notebook["cells"].index(cell_of(notebook, "todo1")) + 1
    cell = {"cell_type": "code", "id": "3f6a9d10", "metadata": {}, "execution_count": 7, "outputs": []}
    notebook["cells"].insert(place, {**cell, "source": REWRITTEN_1})
    return text(notebook)


def without_tests(release: Notebook) -> bytes:
    """Two test cells deleted, and TODO 3 dragged to the top of the notebook."""
    notebook = solved(release)
    tests = [c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade")]
    for cell in (tests[0], tests[-1]):
        notebook["cells"].remove(cell)
    todo3 = cell_of(notebook, "todo3")
    notebook["cells"].remove(todo3)
    notebook["cells"].insert(1, todo3)
    return text(notebook)


def stripped(release: Notebook) -> bytes:
    """All metadata lost, as after a tool that cleans notebooks or a copy into a new one."""
    notebook = solved(release)
    for number, cell in enumerate(notebook["cells"]):
        cell["metadata"], cell["id"] = {}, f"n{number}"
    notebook["metadata"] = {}
    return text(notebook)


def edited_tests(release: Notebook) -> bytes:
    """Wrong answers, tests emptied, points raised."""
    notebook = fill(
        release,
        todo1="ordered_patterns = []",
        todo2="pattern_supported = dtype_supported = device_supported = True\n"
        "sequence_supported = dynamic_shape_supported = True",
        todo3="selected = capability_reports[0] if capability_reports else None",
    )
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade"):
            cell["source"] = "print('✅ passed')"
            cell["metadata"]["nbgrader"]["points"] = 50
    return text(notebook)


def chatty(release: Notebook) -> bytes:
    """Right, with cells that only work elsewhere, and a debug print that was left in."""
    notebook = solved(release, todo2=RIGHT_2 + "\nprint('DEBUG', candidate, workload)")
    cell = {"cell_type": "code", "metadata": {}, "execution_count": 1, "outputs": []}
    drive = "from google.colab import drive\ndrive.mount('/content/drive')"
    notebook["cells"].insert(1, {**cell, "id": "a1", "source": "!pip install -q torch matplotlib"})
    notebook["cells"].insert(2, {**cell, "id": "a2", "source": drive})
    return text(notebook)


def truncated(release: Notebook) -> bytes:
    whole = text(solved(release))
    return whole[: len(whole) // 2]


def login_page(_: Notebook) -> bytes:
    return LOGIN_PAGE.encode()


def utf16(release: Notebook) -> bytes:
    return b"\xff\xfe" + text(solved(release)).decode().replace("\n", "\r\n").encode("utf-16-le")


UNSORTED_1 = "ordered_patterns = FUSION_PATTERNS.items()"
LAST_3 = RIGHT_3.replace("\n        break", "")
STRICT = RIGHT_2.replace("<= backend", "< backend")
DEFAULT_TRUE = RIGHT_2.replace(
    "backend.get('supports_dynamic_shape') is True", "backend.get('supports_dynamic_shape', True)"
)
PLAIN = f"{CHAPTER}.ipynb"

STUDENTS = (
    Student("陈静", "all three TODOs right", PLAIN, answers(), 100),
    Student("dai_yu", "handed in untouched", PLAIN, text, 0),
    Student("fan_li", "TODO 3 not done", PLAIN, half_done, "some"),
    Student("gao_feng", "solved in Colab, saved a copy", f"Copy_of_{PLAIN}", from_colab, 100),
    Student("何丹", "wrote the function anew in an own cell", f"何丹_{PLAIN}", own_cell, 100),
    Student("hu_bo", "no sorting: declaration order decides", PLAIN, answers(todo1=UNSORTED_1), "some"),
    Student("li_na", "a length equal to the limit is refused", f"{CHAPTER} (1).ipynb", answers(todo2=STRICT), "some"),
    Student("lin_yue", "silence is taken for dynamic support", PLAIN, answers(todo2=DEFAULT_TRUE), "some"),
    Student("luo_yi", "takes the last supported backend", PLAIN, answers(todo3=LAST_3), "some"),
    Student("ma_chao", "saved as UTF-16 by a Windows editor", PLAIN, utf16, 100),
    Student("sun_hao", "endless loop in TODO 1", PLAIN, answers(todo1=ENDLESS_1), "some"),
    Student("吴欣", "half uploaded", PLAIN, truncated, None, "unreadable"),
    Student("xu_ting", "a login page instead", "04_Execution_Dispatch.IPYNB", login_page, None, "unreadable"),
    Student("yang_fan", "test cells deleted, a TODO moved to the top", PLAIN, without_tests, 100),
    Student("zhang_wei", "bracket missing in TODO 2", PLAIN, answers(todo2=SYNTAX_2), "some"),
    Student("zhao_min", "all metadata lost", "homework.ipynb", stripped, 100),
    Student("zhou_jie", "tests emptied and points raised, answers wrong", PLAIN, edited_tests, "some"),
    Student("朱玲", "cells for Colab only, debug prints left in", f"{CHAPTER}-final-最终版.ipynb", chatty, 100),
)  # fmt: skip


CHAPTERS = sorted([CHAPTER, *small_classes.SMALL])


def make(chapter: str) -> dict[str, bytes]:
    """Every file of a chapter's class: path below the class's folder → content."""
    release = load_release(chapter)
    if chapter != CHAPTER:
        return small_classes.make(chapter, release)
    return {f"{student.name}/{student.file}": student.make(release) for student in STUDENTS}


def present(chapter: str) -> dict[str, bytes]:
    """The files of a chapter's class as they are now."""
    target = FOLDER / chapter
    return {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def load_release(chapter: str) -> Notebook:
    """The student's notebook, with every source as one text."""
    path = ROOT / "notebooks" / chapter / f"{chapter}.ipynb"
    if not path.is_file():
        raise SystemExit(f"{path.relative_to(ROOT)} is missing → python -m grader build")
    notebook = json.loads(path.read_text("utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
    return notebook


def update(chapter: str, check: bool) -> list[str]:
    """Bring a chapter's class up to date, unless ``check``; what differed, as paths below assets/sample_class."""
    wanted, found = make(chapter), present(chapter)
    changed = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
    for name in [] if check else changed:
        path = FOLDER / chapter / name
        if name in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wanted[name])
        else:
            path.unlink()
    return [f"{chapter}/{name}" for name in changed]


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the sample classes from the releases.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where files differ")
    check = parser.parse_args().check
    changed = [name for chapter in CHAPTERS for name in update(chapter, check)]
    print("\n".join(f"{'differs from the release' if check else 'written'}: {name}" for name in changed))
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
