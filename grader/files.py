"""Writing files so that a reader, or a run after a kill, sees the old content or the new, never a part."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

PARTIAL = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp")  # the name of a file that is being written


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write ``content`` (text as UTF-8, line ends untouched) to ``path`` in one step; makes the folder.

    A lone surrogate, which has no place in UTF-8 and may come from a student's notebook, is written as "?".
    """
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:80]}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def remove_partial(folder: Path) -> None:
    """Delete what writers left in ``folder`` and below that were killed. Only for who alone writes there."""
    for parent, _, names in os.walk(folder):
        for name in filter(PARTIAL.fullmatch, names):
            Path(parent, name).unlink(missing_ok=True)


def write_json(path: Path, value: Any, *, indent: int | None = 1) -> None:
    """Write ``value`` as readable JSON in UTF-8, in one step."""
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=indent) + "\n")


def read_json(path: Path) -> Any | None:
    """The JSON value in ``path``, or None where the file is missing or is no JSON."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
