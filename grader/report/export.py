"""What the exports for Canvas and Moodle have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Export:
    """A file of grades that was written.

    filled: scores in it.
    unmatched: students of the class whose row was not found, with the reason.
    absent: names in the platform's table of whom nothing was graded.
    notes: what the instructor should know of it.
    """

    system: str
    path: Path
    filled: int
    unmatched: tuple[tuple[str, str], ...] = ()
    absent: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def without_row(results: dict[str, Any], unmatched: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The students whose score is in no row. Who has no score has nothing that could be entered by hand."""
    scored = {entry["student"] for entry in results["students"] if entry["score"] is not None}
    return tuple((student, reason) for student, reason in unmatched.items() if student in scored)


def scaled(entry: dict[str, Any], maximum: float | None) -> float | None:
    """A student's score on the platform's scale; None where nothing was graded."""
    if entry["score"] is None:
        return None
    if maximum is None or maximum <= 0 or not entry["max_score"]:
        return entry["score"]
    return entry["score"] * maximum / entry["max_score"]


def scale_note(maximum: float | None, max_score: float, where: str) -> tuple[str, ...]:
    """A remark where the platform's maximum is another."""
    if maximum is None or maximum <= 0 or maximum == max_score:
        return ()
    return (f"{where} counts to {maximum:g}, the notebook to {max_score:g}: scores are scaled",)
