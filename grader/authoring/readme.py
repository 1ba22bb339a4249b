"""The tables of chapters in README.md, README.zh-CN.md and notebooks/README.md, made from solutions/series.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from grader.authoring.settings import CourseSettings, course, tomllib
from grader.errors import GraderError

BEGIN, END = "<!-- chapters: made by the build from solutions/series.toml -->", "<!-- end of chapters -->"
COLAB_BADGE = "https://colab.research.google.com/assets/colab-badge.svg"


@dataclass(frozen=True)
class Chapter:
    """One entry of solutions/series.toml; ``needs`` are folders, ``minutes`` an estimate."""

    folder: str
    en: str
    zh: str
    learn_en: str
    learn_zh: str
    minutes: int
    needs: tuple[str, ...]

    @property
    def notebook(self) -> str:
        """The student notebook, relative to the root."""
        return f"notebooks/{self.folder}/{self.folder}.ipynb"

    @property
    def number(self) -> int:
        return int(self.folder[:2])


def series(root: Path) -> list[Chapter]:
    """The chapters in their order.

    Raises:
        GraderError: the file is missing, is no TOML, or an entry lacks a key.
    """
    path = root / "solutions" / "series.toml"
    try:
        entries = tomllib.loads(path.read_text("utf-8"))["chapter"]
        return [Chapter(**{**entry, "needs": tuple(entry["needs"])}) for entry in entries]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise GraderError(str(path), f"cannot be used ({error})", "compare it with the other entries") from error


def _row(chapter: Chapter, settings: CourseSettings, language: str, folder: str) -> str:
    title = chapter.zh if language == "zh" else chapter.en
    learn = chapter.learn_zh if language == "zh" else chapter.learn_en
    needs = ", ".join(str(int(folder[:2])) for folder in chapter.needs) or "–"
    if not (settings.root / chapter.notebook).exists():
        later = "编写中" if language == "zh" else "being written"
        return f"| {chapter.number} | {title} | {learn} | {chapter.minutes} | {needs} | {later} |"
    link = chapter.notebook.removeprefix(folder)
    open_in = "在 {} 中打开第 {} 章" if language == "zh" else "Open chapter {1} in {0}"
    colab = f"[![{open_in.format('Colab', chapter.number)}]({COLAB_BADGE})]({settings.colab(chapter.notebook)})"
    modelscope = f"[ModelScope]({settings.modelscope(chapter.notebook)})"
    return f"| {chapter.number} | [{title}]({link}) | {learn} | {chapter.minutes} | {needs} | {colab} {modelscope} |"


def table(settings: CourseSettings, language: str, folder: str = "") -> str:
    """The table of chapters as Markdown.

    Args:
        language: "en" or "zh".
        folder: where the page lies: "" for the root, or "notebooks/".
    """
    head = {
        "en": "| | chapter | you learn to | min | builds on | open |",
        "zh": "| | 章 | 学会 | 分钟 | 先修 | 打开 |",
    }[language]
    rows = [_row(chapter, settings, language, folder) for chapter in series(settings.root)]
    return "\n".join([head, "|---|---|---|---|---|---|", *rows])


PAGES = {"README.md": ("en", ""), "README.zh-CN.md": ("zh", ""), "notebooks/README.md": ("zh", "notebooks/")}


def render(text: str, made: str, name: str) -> str:
    """Put the table between the two markers.

    Raises:
        GraderError: the page lacks the markers.
    """
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    if not pattern.search(text):
        raise GraderError(name, "the markers around the table of chapters are missing", f"add {BEGIN} {END}")
    return pattern.sub(lambda _: f"{BEGIN}\n{made}\n{END}", text, count=1)


def update(root: Path | None = None, *, check_only: bool = False) -> list[Path]:
    """Write the tables; returns the pages that changed (with ``check_only``: that would change)."""
    settings = course(root) if root else course()
    changed = []
    for name, (language, folder) in PAGES.items():
        path = settings.root / name
        before = path.read_text("utf-8")
        after = render(before, table(settings, language, folder), name)
        if after != before:
            changed.append(path)
            if not check_only:
                path.write_text(after, "utf-8")
    return changed
