"""Images without alt text, and links that lead nowhere once the notebook stands alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from grader.authoring.checks.finding import Finding, label, tags
from grader.authoring.master import exists_in_tree
from grader.authoring.release import INSTRUCTOR_ONLY
from grader.authoring.settings import CourseSettings
from grader.model import Notebook

TARGET = r"\(\s*(<[^>]*>|[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)"
IMAGE = re.compile(r"!\[((?:[^\[\]]|\[[^\]]*\])*)\](?:" + TARGET + r"|\[[^\]]*\])")
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|!?\[[^\]]*\](?:\([^)]*\))?)*\]" + TARGET)
REFERENCE = re.compile(r"^ {0,3}\[[^\]^]+\]:\s*(\S+)", re.MULTILINE)
FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[^\n]*$", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
# What JupyterLab writes for a pasted picture.
FILE_NAME = re.compile(r"[\w .()-]+\.(?:png|jpe?g|gif|svg|webp|bmp)", re.IGNORECASE)
SCHEMES = frozenset({"http", "https", "mailto", "ftp", "data", "tel", "doi"})
PRIVATE_HOST = re.compile(r"localhost|.*\.local|0\.0\.0\.0|127\..*|10\..*|192\.168\..*|\[?::1\]?")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)


class _Html(HTMLParser):
    """Collects images and link targets of HTML inside Markdown, and the anchors it sets."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.images: list[tuple[str, str | None]] = []
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "img":
            self.images.append((values.get("src") or "", values.get("alt")))
        self.targets += [values[key] or "" for key in ("href", "src") if key in values]
        self.anchors |= {values[key] or "" for key in ("id", "name") if key in values}


def check_links(notebook: Notebook, settings: CourseSettings) -> list[Finding]:
    """Alt texts and link targets in every text cell that students get."""
    findings: list[Finding] = []
    cells = [
        (label(notebook, index), cell)
        for index, cell in enumerate(notebook["cells"])
        if cell["cell_type"] == "markdown" and INSTRUCTOR_ONLY not in tags(cell)
    ]
    anchors = set().union(*(_anchors(cell["source"]) for _, cell in cells)) if cells else set()
    for name, cell in cells:
        text = prose(cell["source"])
        html = _Html(text)
        for alt, target in _images(text, html):
            if not (alt or "").strip() or FILE_NAME.fullmatch((alt or "").strip()):
                has = "has only a file name for its" if (alt or "").strip() else "has no"
                findings.append(Finding(name, f"the image {target[-60:]!r} {has} alt text",
                                        "say in words what it shows: ![words](address) or alt=\"words\""))  # fmt: skip
        for target in _targets(text, html):
            problem = _problem(target, cell, anchors, settings)
            if problem:
                findings.append(Finding(name, *problem))
    return findings


def prose(source: str) -> str:
    """The text of a Markdown cell without code, in which links are no links."""
    return INLINE_CODE.sub("", FENCE.sub("", source))


def _images(text: str, html: _Html) -> Iterator[tuple[str | None, str]]:
    for match in IMAGE.finditer(text):
        yield match[1], match[2] or match[0]
    for target, alt in html.images:
        yield alt, target


def _targets(text: str, html: _Html) -> Iterator[str]:
    seen: set[str] = set()
    found = [match[2] for match in IMAGE.finditer(text) if match[2] is not None]
    found += [match[1] for match in LINK.finditer(text)] + [match[1] for match in REFERENCE.finditer(text)]
    for target in found + html.targets:
        target = target.strip("<>").strip()
        if target not in seen:
            seen.add(target)
            yield target


def _problem(target: str, cell: dict, anchors: set[str], settings: CourseSettings) -> tuple[str, str] | None:
    if not target:
        return "a link without an address", "write where it leads, or remove the link"
    if target.startswith("#"):
        if _key(unquote(target[1:])) in anchors:
            return None
        return f"the link {target!r} leads to no heading of this notebook", "correct it to the heading's words"
    for prefix in settings.prefixes():
        if target.startswith(prefix):
            path = unquote(urlsplit(target[len(prefix) :]).path)
            if path and exists_in_tree(path, settings):
                return None
            return f"the link leads to {path!r}, which is not in this repository", "correct the path or add the file"
    if target.startswith("attachment:"):
        if unquote(target.partition(":")[2]) in cell.get("attachments", {}):
            return None
        return f"the attachment {target!r} does not exist", "attach the file or correct the name"
    scheme = urlsplit(target).scheme.lower() if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", target) else ""
    if target.startswith("//") or scheme in SCHEMES:
        host = urlsplit(target).hostname or ""
        if PRIVATE_HOST.fullmatch(host):
            return f"the link {target!r} leads to a machine that students can't reach", "write a public address"
        return None
    if scheme and scheme != "file" and len(scheme) > 1:
        return f"the link {target!r} starts with {scheme}:, which is no kind of address", "correct it, such as https:"
    return (
        f"the relative link {target!r} is dead: students get the notebook alone",
        "write a full address (in a master: {{raw:…}} for images, {{blob:…}} for files, {{chapter:…}})",
    )


def _anchors(source: str) -> set[str]:
    text = FENCE.sub("", source)
    return {_key(heading) for heading in HEADING.findall(text)} | {_key(anchor) for anchor in _Html(text).anchors}


def _key(text: str) -> str:
    """Heading or anchor in a form that JupyterLab's, Colab's and GitHub's spellings share."""
    return re.sub(r"[\W_]+", "", re.sub(r"\]\([^)]*\)|<[^>]*>", "", text)).casefold()
