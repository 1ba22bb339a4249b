"""A graded class for the tests of the report: copied and coincidental answers, faults, names as Canvas gives them."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from grader.tests.classroom import CORRECT, filled, hand_in

# Long, odd and wrong for an input of zeros; the pair of students below hands it in with other names.
ODD = """def relu_sum(xs):
    # take the negatves out first
    pile = list(xs)
    while pile and min(pile) < 0:
        lowest = pile.index(min(pile))
        pile = pile[:lowest] + pile[lowest + 1 :]
    answer = 0
    for step in range(len(pile)):
        answer = answer + pile[step] * 1.0
    return answer + 100"""
COPIED = (
    ODD.replace("pile", "bucket")
    .replace("answer", "zz_total")
    .replace("step", "k")
    .replace("    # take the negatves out first\n", '    """My own words."""\n    note = "mine"\n')
)
# Two students find the same textbook loop on their own, as a third does.
LOOP = """def mean_sq(xs):
    total = 0
    count = 0
    for x in xs:
        total += x * x
        count += 1
    if count == 0:
        return 0.0
    return total / count"""
OTHERS = {
    "fox": "def relu_sum(xs):\n    return sum(max(x, 0) for x in xs)",
    "gil": "def relu_sum(xs):\n    return sum([x for x in xs if x > 0])",
    "hal": "def relu_sum(xs):\n    s = 0\n    for x in xs:\n        if x > 0:\n            s = s + x\n    return s",
}


def write_class(folder: Path) -> None:
    """Eleven hand-ins named as Canvas names them in its download, loose in one folder."""
    early, late = (datetime(2026, month, 2, tzinfo=timezone.utc) for month in (2, 3))
    answers = {
        "doejane_1001_9001_ps1": CORRECT,
        "roejohn_1002_9002_ps1": {**CORRECT, "q1": ODD},
        "poelin_1003_9003_ps1": {**CORRECT, "q1": COPIED, "q2": "def mean_sq(xs):\n    return 7"},
        "loopa_1004_9004_ps1": {**CORRECT, "q2": LOOP},
        "loopb_1005_9005_ps1": {**CORRECT, "q2": LOOP.replace("total", "acc")},
        "loopc_1006_9006_ps1": {**CORRECT, "q2": LOOP.replace("count", "n")},
        "untouched_1010_9010_ps1": {},
    }
    answers |= {f"{name}_{1020 + n}_9020_ps1": {**CORRECT, "q1": code} for n, (name, code) in enumerate(OTHERS.items())}
    for name, given in answers.items():
        path = hand_in(folder, name, filled(given), at=late if name.startswith("loopb") else early)
        path.rename(folder / f"{name}.ipynb")
        path.parent.rmdir()
    (folder / "htmlpage_1011_9011_ps1.ipynb").write_bytes(b"<html>log in</html>")
