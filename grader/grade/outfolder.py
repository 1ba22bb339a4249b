"""The out folder of ``grade``: whose it is, and that only one process writes it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from grader.errors import GraderError
from grader.files import read_json, remove_partial, write_json

MARKER = "grading.json"
OURS = (
    "records",
    "source",
    "release",
    "submitted",
    "autograded",
    "feedback",
    "gradebook.db",
    "results.json",
    "results.csv",
    "report.html",
    "canvas.csv",
    "moodle.csv",
    "nbgrader_config.py",
)


def read_marker(out: Path) -> dict[str, Any] | None:
    """What the folder's last run was about; None where ``grade`` has not been here."""
    marker = read_json(out / MARKER)
    return marker if isinstance(marker, dict) and "assignment" in marker else None


def write_marker(out: Path, marker: dict[str, Any]) -> None:
    write_json(out / MARKER, marker)


def claim(out: Path, assignment: str, source: Path, source_digest: str, *, force: bool) -> None:
    """Make sure that the folder can be written, and that no other result is lost by it.

    Raises:
        GraderError: the folder can't be written, or holds something else and ``force`` is not set.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        cause = "it is a file" if out.is_file() else f"it can't be written ({error.strerror})"
        raise GraderError(str(out), cause, "choose another folder with --out") from error
    marker = read_marker(out)
    if marker is None:
        foreign = [name for name in OURS if (out / name).exists()]
        if foreign and not force:
            raise GraderError(
                str(out),
                f"it holds {foreign[0]} that this command did not make",
                "choose another folder with --out, or overwrite it with --force",
            )
    elif marker["assignment"] != assignment:
        if not force:
            raise GraderError(
                str(out),
                f"it holds the results of {marker['assignment']}",
                "choose another folder with --out, or throw them away with --force",
            )
        clear(out)
    elif marker["source_digest"] != source_digest and marker["source"] != str(source.resolve()) and not force:
        raise GraderError(
            str(out),
            f"it was graded with another source, {marker['source']}",
            "choose another folder with --out, or grade again with this source with --force",
        )


def keep_apart(submissions: Path, out: Path) -> None:
    """Results must not be collected as hand-ins by the next run, nor hand-ins be cleared away as old results.

    Raises:
        GraderError: one folder lies in the other.
    """
    submissions, out = submissions.resolve(), out.resolve()
    if out == submissions or submissions in out.parents:
        raise GraderError(str(out), "it lies in the folder of submissions", "choose another folder with --out")
    if out in submissions.parents and submissions.relative_to(out).parts[0] in OURS:
        raise GraderError(
            str(submissions), "this folder belongs to an earlier run's results", "give the folder of the original files"
        )


def clear(out: Path) -> None:
    """Remove everything that ``grade`` makes."""
    for name in (MARKER, *OURS):
        path = out / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def one_writer(out: Path) -> Iterator[None]:
    """Hold the folder's lock, and clear what an earlier holder was killed over. The system drops it with its holder.

    Raises:
        GraderError: another process is grading into the folder.
    """
    with open(out / ".grading.lock", "a+", encoding="ascii") as file:
        try:
            _lock(file)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise GraderError(
                str(out), f"process {holder} is grading into it", "wait for it, or choose another folder with --out"
            ) from error
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        remove_partial(out)
        yield


def _lock(file: IO[str]) -> None:
    """Take an exclusive lock or raise OSError at once."""
    if os.name == "nt":
        import msvcrt

        file.seek(1 << 20)  # Windows locks bytes: one far behind the pid, so that others can read it
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
