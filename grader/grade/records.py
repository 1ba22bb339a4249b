"""What a run knows of each student besides the gradebook, one JSON file per student under ``records/``.

A record is written when the execution is done, with ``booked: false`` and the executed notebook in it, and once more
when the gradebook holds the grades. A run that was killed in between finds it and only repeats the booking.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from grader.files import read_json, write_json
from grader.grade.job import Outcome
from grader.model import Execution, Flag, Submission, TestOutcome

# A new number makes every submission be graded again: raise it when verdicts could come out otherwise.
FORMAT = 1

Record = dict[str, Any]


class Records:
    """The folder ``records/`` of an out folder."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "records" / "students"

    def read(self, student: str) -> Record | None:
        """The student's record; None where there is none that this version can read."""
        record = read_json(self._path(student))
        return record if isinstance(record, dict) and record.get("format") == FORMAT else None

    def write(self, record: Record) -> None:
        write_json(self._path(record["student"]), {"format": FORMAT, **record}, indent=None)

    def all(self) -> Iterator[Record]:
        """Every readable record, sorted by student."""
        for path in sorted(self.folder.glob("*.json")):
            record = read_json(path)
            if isinstance(record, dict) and record.get("format") == FORMAT:
                yield record

    def _path(self, student: str) -> Path:
        return self.folder / f"{student}.json"


def fingerprint(*parts: Any) -> str:
    """A digest of JSON-like values: the same for the same content, whatever the order of keys."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def record_of(submission: Submission, digest: str, source_digest: str, outcome: Outcome) -> Record:
    """The record of a submission that was just graded, not booked yet.

    Args:
        digest: of the submission and all conditions of its grading; empty where the next run shall grade it again.
        source_digest: of the instructor's notebook.
    """
    execution = outcome.execution
    return {
        "student": submission.student,
        "digest": digest,
        "source_digest": source_digest,
        "status": outcome.status,
        "reason": outcome.reason,
        "tests": [asdict(test) for test in execution.tests] if execution else [],
        "notes": list(outcome.notes),
        "flags": _flags(outcome.flags),
        "sandbox": execution.sandbox if execution else None,
        "timing": execution.timing if execution else {},
        "submission": describe(submission),
        "booked": False,
        "executed": execution.notebook if execution else None,
        "edition": outcome.edition,
    }


def describe(submission: Submission) -> dict[str, Any]:
    """The part of a record that is known before grading."""
    return {
        "path": submission.path,
        "collected_at": submission.collected_at.isoformat() if submission.collected_at else None,
        "notes": list(submission.notes),
        "flags": _flags(submission.flags),
        "other_files": list(submission.other_files),
    }


def execution_of(record: Record) -> Execution | None:
    """The execution that an unbooked record holds."""
    if record.get("executed") is None:
        return None
    return Execution(
        notebook=record["executed"],
        tests=tuple(TestOutcome(**test) for test in record["tests"]),
        status=record["status"],
        sandbox=record["sandbox"],
    )


def collected_at(record: Record) -> datetime | None:
    """When the submission was handed in, by the collector's clock."""
    text = record["submission"]["collected_at"]
    return datetime.fromisoformat(text) if text else None


def booked(record: Record) -> Record:
    """The same record with the mark that the gradebook holds it, without the notebooks that nbgrader now has."""
    return {**record, "booked": True, "executed": None, "edition": None}


def _flags(flags: Iterable[Flag]) -> list[dict[str, str]]:
    return [asdict(flag) for flag in flags]
