"""The tables of chapters in the READMEs, made from solutions/series.toml."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from grader.authoring.settings import CourseSettings, read_toml
from grader.errors import GraderError

READMES = {"README.md": "en", "README.zh-CN.md": "zh", "notebooks/README.md": "zh"}
BEGIN = "<!-- chapters: made by the build from solutions/series.toml -->"
END = "<!-- end of chapters -->"
HEADS = {
    "en": ("#", "Chapter", "What you learn to do", "Minutes", "Read first", "Open in"),
    "zh": ("#", "章", "学会做什么", "分钟", "先修", "在线打开"),
}
# {0} is the service, {1} the chapter's number: what a reader who sees no image gets.
ALT = {"en": "open chapter {1} in {0}", "zh": "在 {0} 打开第 {1} 章"}
BADGES = {
    "Colab": "https://colab.research.google.com/assets/colab-badge.svg",
    "ModelScope": "https://img.shields.io/badge/Open%20in-ModelScope-624aff",
}
LATER = {"en": "being written", "zh": "编写中"}
KEYS = {"folder": str, "en": str, "zh": str, "learn_en": str, "learn_zh": str, "minutes": int, "needs": list}


def tables(settings: CourseSettings) -> list[tuple[Path, str]]:
    """(README, its new text) for every README that has a place for the table; none without a series.toml.

    Raises:
        GraderError: series.toml lacks a key, or a README has the first marker without the second.
    """
    source = settings.root / "solutions" / "series.toml"
    if not source.is_file():
        return []
    chapters = read_toml(source).get("chapter", [])
    for number, chapter in enumerate(chapters, start=1):
        _check(chapter, number)
    found = []
    for name, language in READMES.items():
        path = settings.root / name
        text = path.read_text("utf-8") if path.is_file() else ""
        if BEGIN in text:
            found.append((path, _filled(text, name, _table(chapters, language, path, settings))))
    return found


def unlisted(settings: CourseSettings) -> str | None:
    """One line where a chapter has a master and is in no table, else None."""
    source = settings.root / "solutions" / "series.toml"
    if not source.is_file():
        return None
    listed = {chapter.get("folder") for chapter in read_toml(source).get("chapter", [])}
    masters = sorted(path.stem for path in source.parent.glob("*/*.py") if path.stem == path.parent.name)
    missing = ", ".join(name for name in masters if name not in listed)
    cause = "not in solutions/series.toml, so in no table of chapters"
    return f"notice: {missing}: {cause} → add a [[chapter]] there and build again" if missing else None


def _check(chapter: dict[str, Any], number: int) -> None:
    for key, kind in KEYS.items():
        if not isinstance(chapter.get(key), kind):
            raise GraderError(f"solutions/series.toml, chapter {number}", f"`{key}` is missing or no {kind.__name__}",
                              "write it as the other chapters do")  # fmt: skip


def _filled(text: str, name: str, table: str) -> str:
    place = re.compile(re.escape(BEGIN) + r"\n.*?" + re.escape(END), re.DOTALL)
    if len(place.findall(text)) != 1:
        raise GraderError(name, "the table of chapters has no end, or there are two", f"put `{END}` below `{BEGIN}`")
    return place.sub(lambda _: f"{BEGIN}\n{table}\n{END}", text)


def _table(chapters: list[dict[str, Any]], language: str, readme: Path, settings: CourseSettings) -> str:
    head = HEADS[language]
    rows = [head, tuple("---" for _ in head)]
    for chapter in chapters:
        folder = chapter["folder"]
        student = f"notebooks/{folder}/{folder}.ipynb"
        title, opened = chapter[language], LATER[language]
        if (settings.root / "solutions" / folder / f"{folder}.py").is_file():
            title = f"[{title}]({Path(os.path.relpath(settings.root / student, readme.parent)).as_posix()})"
            addresses = {"Colab": settings.colab(student), "ModelScope": settings.modelscope(student)}
            opened = " ".join(
                f"[![{ALT[language].format(service, int(folder[:2]))}]({BADGES[service]})]({address})"
                for service, address in addresses.items()
            )
        needs = ", ".join(str(int(need[:2])) for need in chapter["needs"]) or "–"
        minutes = str(chapter["minutes"])
        rows.append((str(int(folder[:2])), title, chapter[f"learn_{language}"], minutes, needs, opened))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
