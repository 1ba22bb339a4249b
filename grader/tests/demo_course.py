"""A tiny course in a temporary folder: one chapter that satisfies every release check, without torch."""

from __future__ import annotations

import json
import re
from pathlib import Path

from grader.authoring.settings import CourseSettings, course

CHAPTER = "09_demo"


def nbgrader(grade_id: str, **values: object) -> str:
    """The nbgrader block of a header."""
    block = {
        "grade": False,
        "grade_id": grade_id,
        "locked": True,
        "schema_version": 3,
        "solution": False,
        "task": False,
    }
    return json.dumps({**block, **values})


def todo(number: int, points: int) -> str:
    """Solution cell, explanation and test cell of one TODO: double, treble or quadruple a list."""
    factor = number + 1
    solution = nbgrader(f"todo{number}", locked=False, solution=True)
    test = nbgrader(f"todo{number}_values", grade=True, points=points)
    return f'''
# %% 乘以 {factor} todo={number} stub="请先完成 TODO {number}：乘以 {factor}" nbgrader={solution}
def times_{factor}(values):
    """Multiply every value."""
    ### BEGIN SOLUTION
    scaled_{factor} = [value * {factor} for value in values]
    ### END SOLUTION
    return scaled_{factor}


# %% [markdown] slug="explain-{number}" todo={number} tags=["instructor-only"]
# The reference of TODO {number} multiplies with a comprehension over the values.

# %% 结果乘以 {factor} todo={number} step="步骤 {number}" nbgrader={test}
def check_times_{factor}():
    assert times_{factor}([1, 2]) == [{factor}, {2 * factor}], "expected every value times {factor}; reread the step"


check_times_{factor}()
### BEGIN HIDDEN TESTS
assert times_{factor}([-7, {90 + number}]) == [{-7 * factor}, {(90 + number) * factor}]
### END HIDDEN TESTS
'''


HEAD = """# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slug="title"
# # Demo | 演示
#
# [Colab]({{colab}}) and [ModelScope]({{modelscope}}), version {{version}}.
#
# ![Three boxes]({{raw:assets/figures/09_boxes.svg}})
#
# Next: {{chapter:10_later|第 10 章}}. Back to [the title](#demo--演示).

# %% 设置 slug="settings" tags=["settings"]
RUN_MODE = "dry_run"
print("mode", RUN_MODE)
"""
TAIL = """
# %% 测量 slug="experiment" include="assets/cells/measure.py" tags=["experiment"]

# %% 读取 slug="reader" sample="assets/samples/demo.json" tags=["reader"]
import json

# %% 画图 slug="plot" tags=["plot"]
print(sorted(RECORDED_SAMPLE))
"""


def make_course(root: Path) -> Path:
    """Write the course into ``root``; returns the master."""
    files = {
        "pyproject.toml": '[project]\nversion = "2.3.4"\n[tool.course]\norg = "lab"\nrepo = "kit"\nbranch = "main"\n',
        "assets/figures/09_boxes.svg": "<svg/>",
        "assets/cells/measure.py": 'measured = len("abc")\nprint("measured", measured)\n',
        "assets/samples/demo.json": '{"名": [1.5, 2],\n "b": null}\n',
        f"solutions/{CHAPTER}/{CHAPTER}.py": HEAD + todo(1, 30) + todo(2, 30) + todo(3, 40) + TAIL,
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")
    return root / "solutions" / CHAPTER / f"{CHAPTER}.py"


def settings_of(root: Path) -> CourseSettings:
    """The course's settings, read anew."""
    course.cache_clear()
    return course(root)


def edit(path: Path, old: str, new: str) -> None:
    """Replace the one occurrence of ``old`` in a file."""
    text = path.read_text("utf-8")
    assert len(re.findall(re.escape(old), text)) == 1, f"{old!r} is not once in {path.name}"
    path.write_text(text.replace(old, new), "utf-8")
