"""Answers that are alike: a hint to look, never a verdict.

The rule, for each question on its own:

1. Comments, docstrings, layout and the release's own lines are dropped; names stand for how recently they were used
   (:func:`grader.report.tokens.own_tokens`). An answer with fewer than ``MIN_TOKENS`` tokens is too short to tell.
2. A run of ``RUN`` tokens is *distinctive* where at most a tenth of the class (three, or half, in a small one)
   wrote it and the reference solution does not have it. So the one obvious way is no hint, however many take it.
3. A pair is shown where its similarity (rapidfuzz's ratio, 0 to 100) is above the 99th percentile of the question's
   pairs, held between ``FLOOR`` and ``CEILING``, and its shared distinctive runs cover at least ``MIN_DISTINCTIVE``
   tokens; half as many do where the two also share an uncommon comment, wrong result or three uncommon names.

Memory grows with the class, not with its pairs: similarities are counted in 101 bins, and ``KEPT`` pairs are kept.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from rapidfuzz import fuzz, process

from grader.report.tokens import own_tokens, own_words

MIN_TOKENS = 40
RUN = 6
FLOOR, CEILING = 60, 90
MIN_DISTINCTIVE = 40
KEPT = 20  # pairs of a question
_BLOCK = 64  # answers compared with all others at once

Run = tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """A student's code for one question. ``mistakes``: what the tests said of it, for each failed behaviour."""

    student: str
    code: str
    mistakes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Pair:
    """Two answers that are alike.

    similarity: 0 to 100, of the normalised code.
    distinctive: tokens in runs that few others wrote.
    shared: uncommon names, comments and wrong results that both have.
    """

    first: Answer
    second: Answer
    similarity: int
    distinctive: int
    shared: tuple[str, ...] = ()


@dataclass
class Similarities:
    """Of one question. ``compared`` and ``too_short`` count answers."""

    pairs: list[Pair] = field(default_factory=list)
    compared: int = 0
    too_short: int = 0


def similar_answers(answers: Sequence[Answer], release: str, reference: str) -> Similarities:
    """The pairs of a question that stand out, strongest first.

    Args:
        release: the question's code as students got it.
        reference: the instructor's solution.
    """
    given = {line.strip() for line in release.split("\n")}
    tokens = [own_tokens(answer.code, given) for answer in answers]
    long_enough = [i for i, own in enumerate(tokens) if len(own) >= MIN_TOKENS]
    found = Similarities(compared=len(long_enough), too_short=sum(0 < len(own) < MIN_TOKENS for own in tokens))
    if len(long_enough) < 2:
        return found
    chosen = [answers[i] for i in long_enough]
    kept = [tokens[i] for i in long_enough]
    few = min(max(3, len(answers) // 10), max(2, len(answers) // 2))
    rare_runs = _rare([_runs(own) for own in kept], _runs(own_tokens(reference, given)), few)
    words_of = [own_words(answer.code, given) | answer.mistakes for answer in chosen]
    rare_words = _rare(words_of, own_words(reference, given) | own_words(release, ()), few)
    places = [_places(own, rare) for own, rare in zip(kept, rare_runs, strict=True)]
    counts = np.zeros(101, dtype=np.int64)
    best: list[tuple[tuple[int, int, int], int, int]] = []
    for i, row in _scores(_as_text(kept)):
        counts += np.bincount(row, minlength=101)
        for offset in np.flatnonzero(row >= FLOOR):
            j = i + 1 + int(offset)
            words = rare_words[i] & rare_words[j]
            least = MIN_DISTINCTIVE // 2 if _telling(words) else MIN_DISTINCTIVE
            runs = rare_runs[i] & rare_runs[j]
            if len(runs) * RUN < least:  # spares most pairs the exact count
                continue
            distinctive = min(_covered(places[i], runs), _covered(places[j], runs))
            if distinctive < least:
                continue
            item = ((int(row[offset]), distinctive, len(words)), -i, -j)
            (heapq.heappush if len(best) < KEPT else heapq.heappushpop)(best, item)
    threshold = min(CEILING, max(FLOOR, _percentile(counts, 0.99)))
    for (similarity, distinctive, _), i, j in sorted(best, reverse=True):
        if similarity >= threshold:
            shared = tuple(sorted(rare_words[-i] & rare_words[-j]))
            found.pairs.append(Pair(chosen[-i], chosen[-j], similarity, distinctive, shared))
    return found


def _scores(texts: list[str]) -> Iterator[tuple[int, np.ndarray]]:
    """For each text its similarity, 0 to 100, with every later one."""
    for start in range(0, len(texts), _BLOCK):
        block = process.cdist(texts[start : start + _BLOCK], texts[start:], scorer=fuzz.ratio, dtype=np.uint8)
        for offset, row in enumerate(block):
            yield start + offset, row[offset + 1 :]


def _as_text(answers: list[list[str]]) -> list[str]:
    """Each answer as a string with one character a token, which is what rapidfuzz compares fastest."""
    alphabet: dict[str, str] = {}
    # Private use characters, then the planes behind the surrogates: as many as there are tokens in a class.
    for token in (token for own in answers for token in own):
        if token not in alphabet:
            number = len(alphabet)
            alphabet[token] = chr(0xE000 + number if number < 0x1900 else 0x10000 + number)
    return ["".join(alphabet[token] for token in own) for own in answers]


def _runs(tokens: list[str]) -> set[Run]:
    return {tuple(tokens[i : i + RUN]) for i in range(len(tokens) - RUN + 1)}


def _rare(found: list[set], known: set, few: int) -> list[set]:
    """What at least two and at most ``few`` of the class have, and ``known`` has not."""
    holders = Counter(item for items in found for item in items)
    rare = {item for item, count in holders.items() if 2 <= count <= few} - known
    return [items & rare for items in found]


def _places(tokens: list[str], runs: set[Run]) -> list[tuple[int, Run]]:
    """Where in an answer these runs begin, in order."""
    starts = range(len(tokens) - RUN + 1)
    return [(i, run) for i in starts if (run := tuple(tokens[i : i + RUN])) in runs]


def _covered(places: list[tuple[int, Run]], runs: set[Run]) -> int:
    """How many tokens of an answer lie in one of the runs."""
    covered = end = 0
    for start, run in places:
        if run in runs:
            covered += start + RUN - max(start, end)
            end = start + RUN
    return covered


def _telling(words: set[str]) -> bool:
    """Whether words in common are more than a name that anybody could choose."""
    return len(words) >= 3 or any(not word.isidentifier() for word in words)


def _percentile(counts: np.ndarray, share: float) -> int:
    """The similarity that ``share`` of all pairs do not exceed."""
    return int(np.searchsorted(np.cumsum(counts), share * counts.sum()))
