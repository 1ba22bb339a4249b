"""The one exception that the command line shows as a single clear line."""

from __future__ import annotations


class GraderError(Exception):
    """A fault in what the user gave us; shown as one line, never as a traceback.

    Args:
        subject: what it is about: a file, a folder, a cell ("notebook.ipynb, cell todo1_basic").
        cause: what is wrong, in plain words.
        remedy: what the reader can do about it.
    """

    def __init__(self, subject: str, cause: str, remedy: str) -> None:
        super().__init__(f"{subject}: {cause} → {remedy}")
        self.subject = str(subject)
        self.cause = cause
        self.remedy = remedy

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        """It must come back whole from a worker process."""
        return type(self), (self.subject, self.cause, self.remedy)
