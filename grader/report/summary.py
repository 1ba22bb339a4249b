"""The numbers of a class report, from results.json alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

from grader.feedback import STUDENT_STATUS
from grader.results import why

BINS = 10
MAX_MESSAGES = 3  # of a behaviour, the most frequent ones
MAX_MESSAGE = 300  # characters

Results = dict[str, Any]


@dataclass(frozen=True)
class Bin:
    """Students whose score lies in a tenth of the scale. ``label``: percent, such as 90–100."""

    label: str
    count: int


@dataclass(frozen=True)
class QuestionSummary:
    """Of the students graded: mean share of the points (0 to 1), and how many had all or none of them."""

    title: str
    max_score: float
    graded: int
    share: float
    full: int
    none: int


@dataclass
class BehaviourSummary:
    """What the class made of one test. ``statuses`` counts those who missed it; ``messages``: most frequent first."""

    question: str
    title: str
    step: str
    graded: int = 0
    missed: list[str] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    messages: list[tuple[str, int]] = field(default_factory=list)


def distribution(results: Results) -> list[Bin]:
    """How many students have 0–9 %, …, 90–100 % of the points."""
    counts = [0] * BINS
    for student in results["students"]:
        if student["score"] is not None and student["max_score"]:
            share = student["score"] / student["max_score"]
            counts[min(BINS - 1, max(0, int(share * BINS + 1e-9)))] += 1
    labels = [f"{10 * n}–{10 * n + 9 if n < BINS - 1 else 100}" for n in range(BINS)]
    return [Bin(label, count) for label, count in zip(labels, counts, strict=True)]


def averages(results: Results) -> dict[str, float] | None:
    """Mean, median, lowest and highest score of those who have one; None where nobody has."""
    scores = [student["score"] for student in results["students"] if student["score"] is not None]
    if not scores:
        return None
    return {"mean": mean(scores), "median": median(scores), "lowest": min(scores), "highest": max(scores)}


def question_summaries(results: Results) -> list[QuestionSummary]:
    """One for each question, in the notebook's order."""
    columns = zip(*(student["questions"] for student in results["students"]), strict=True)
    return [_question([question for question in column if question["score"] is not None], column) for column in columns]


def _question(graded: list[dict[str, Any]], column: tuple[dict[str, Any], ...]) -> QuestionSummary:
    most = column[0]["max_score"]
    scores = [question["score"] for question in graded]
    return QuestionSummary(
        title=column[0]["title"],
        max_score=most,
        graded=len(scores),
        share=mean(scores) / most if scores and most else 0.0,
        full=sum(score >= most for score in scores),
        none=sum(score <= 0 for score in scores),
    )


def behaviour_summaries(results: Results) -> list[BehaviourSummary]:
    """One for each test, most missed first."""
    found: dict[str, BehaviourSummary] = {}
    messages: dict[str, Counter[str]] = {}
    for student in results["students"]:
        for question in student["questions"]:
            for behaviour in question["behaviours"]:
                name = behaviour["grade_id"]
                summary = found.setdefault(
                    name, BehaviourSummary(question["title"], behaviour["title"], behaviour["step"])
                )
                if behaviour["score"] is None:
                    continue
                summary.graded += 1
                if behaviour["score"] < behaviour["max_score"]:
                    summary.missed.append(student["student"])
                    summary.statuses[behaviour["status"]] += 1
                    if behaviour["message"] and not behaviour["by_hand"]:
                        messages.setdefault(name, Counter())[behaviour["message"]] += 1
    for name, counted in messages.items():
        shown = counted.most_common(MAX_MESSAGES)
        found[name].messages = [(shortened(text), count) for text, count in shown]
    return sorted(found.values(), key=lambda summary: -len(summary.missed))


def shortened(text: str) -> str:
    """A message, cut to a length that fits the page."""
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def by_status(results: Results) -> dict[str, list[tuple[str, str]]]:
    """Students with the reason of their status, for every status that occurs."""
    found: dict[str, list[tuple[str, str]]] = {}
    for status in STUDENT_STATUS:
        students = [student for student in results["students"] if student["status"] == status]
        if students:
            found[status] = [(student["student"], why(student)) for student in students]
    return found
