"""The one setting of the course: organisation, repository, branch and version, and the addresses made from them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from grader.errors import GraderError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PLACEHOLDERS = ("ORG", "REPO")


@dataclass(frozen=True)
class CourseSettings:
    """Where the course lives. All addresses in notebooks and README are made here.

    Attributes:
        root: the folder that holds pyproject.toml.
    """

    org: str
    repo: str
    branch: str
    version: str
    root: Path

    @property
    def slug(self) -> str:
        """``ORG/REPO`` as GitHub spells it."""
        return f"{self.org}/{self.repo}"

    def blob(self, path: str) -> str:
        """The page of a file on GitHub; ``path`` is relative to the root."""
        return f"https://github.com/{self.slug}/blob/{self.branch}/{quote(path)}"

    def raw(self, path: str) -> str:
        """The bytes of a file, for images."""
        return f"https://raw.githubusercontent.com/{self.slug}/{self.branch}/{quote(path)}"

    def colab(self, path: str) -> str:
        """The address that opens a notebook in Colab."""
        return f"https://colab.research.google.com/github/{self.slug}/blob/{self.branch}/{quote(path)}"

    def modelscope(self, path: str) -> str:
        """The address that opens a notebook in ModelScope."""
        return f"https://modelscope.cn/notebook/share/github/{self.slug}/blob/{self.branch}/{quote(path)}"

    def prefixes(self) -> tuple[str, ...]:
        """What every address into this repository's tree begins with; a path follows."""
        return (self.blob(""), self.raw(""), self.colab(""), self.modelscope(""))

    @property
    def notice(self) -> str | None:
        """One line while the addresses still hold placeholders, else None."""
        if self.org not in PLACEHOLDERS and self.repo not in PLACEHOLDERS:
            return None
        return (
            "notice: org and repo in pyproject.toml [tool.course] are placeholders: badges and links lead nowhere yet "
            "→ write your GitHub organisation and repository there and build again"
        )


def load_pyproject(root: Path = ROOT) -> dict[str, Any]:
    """The content of pyproject.toml.

    Raises:
        GraderError: the file is missing or is no TOML.
    """
    return read_toml(root / "pyproject.toml")


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        GraderError: the file is missing or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise GraderError(str(path), f"cannot be read ({error.strerror})", "run from a complete clone") from error
    except tomllib.TOMLDecodeError as error:
        raise GraderError(str(path), f"is no valid TOML: {error}", "correct that line") from error


@lru_cache(maxsize=8)
def course(root: Path = ROOT) -> CourseSettings:
    """The settings in ``[tool.course]`` and the version in ``[project]`` of pyproject.toml.

    Raises:
        GraderError: one of them is missing or is no text.
    """
    document = load_pyproject(root)
    values = {**document.get("tool", {}).get("course", {}), "version": document.get("project", {}).get("version")}
    for name in ("org", "repo", "branch", "version"):
        if not isinstance(values.get(name), str) or not values[name].strip():
            place = "[project]" if name == "version" else "[tool.course]"
            raise GraderError("pyproject.toml", f"{place} has no `{name}`", f'add a line such as {name} = "…"')
    return CourseSettings(values["org"], values["repo"], values["branch"], values["version"], root)
