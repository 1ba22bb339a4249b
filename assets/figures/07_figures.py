"""Draws the figures of chapter 7 into this folder: ``python assets/figures/07_figures.py``."""

from __future__ import annotations

import random

import matplotlib.pyplot as plt
from drawing import BLUE, GREEN, GROUND, INK, MUTED, VERMILION, arrow, box, canvas, save


def ladder() -> None:
    """Four claims as a staircase; below each step, the evidence that it needs."""
    figure, axes = canvas(9.6, 3.7)
    steps = [
        ("torch.compile\nreturned", "no exception", MUTED),
        ("a graph was\ncaptured", "region marker\nin the profile", BLUE),
        ("a fused kernel\nran", "its name among the\nkernel events", BLUE),
        ("it pays", "paired times\nagainst A/A", GREEN),
    ]
    for number, (claim, evidence, color) in enumerate(steps):
        x, y = 0.3 + 2.33 * number, 1.0 + 0.42 * number
        box(axes, x, y, 1.95, 0.9, claim, color, fontweight="bold")
        axes.text(x + 0.97, y - 0.3, evidence, ha="center", va="center", color=MUTED, fontsize=9.5)
        if number:
            arrow(axes, (x - 0.38, y + 0.2), (x, y + 0.42))
    axes.text(0.3, 3.35, "each claim needs evidence of its own;", color=INK, fontsize=11)
    axes.text(0.3, 3.05, "none follows from the one before", color=INK, fontsize=11)
    save(figure, "07_ladder.png")


def pairing() -> None:
    """The same drifting machine, measured in blocks and in pairs."""
    rng = random.Random(7)
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.6), dpi=150, facecolor=GROUND, sharey=True)
    slots = range(24)
    machine = [1.0 + 0.035 * slot + rng.uniform(-0.03, 0.03) for slot in slots]
    blocks = ["A"] * 12 + ["B"] * 12
    pairs = [path for _ in range(12) for path in rng.choice(["AB", "BA"])]
    for axis, order, title in ((panels[0], blocks, "in blocks: drift looks like slowness of B"),
                               (panels[1], pairs, "in pairs: both meet the same machine")):  # fmt: skip
        for path, color, marker in (("A", VERMILION, "o"), ("B", BLUE, "s")):
            own = [slot for slot in slots if order[slot] == path]
            axis.plot(own, [machine[slot] for slot in own], marker, color=color, label=f"path {path}", markersize=6)
            middle = sorted(machine[slot] for slot in own)[6]
            axis.axhline(middle, color=color, linestyle="--" if path == "A" else ":", linewidth=1.5)
        axis.set(title=title, xlabel="order of the calls", facecolor="white")
        axis.legend(frameon=False, loc="upper left")
    panels[0].set_ylabel("time per call")
    panels[0].set_yticks([])
    figure.tight_layout()
    save(figure, "07_pairing.png")


def precedence() -> None:
    """The five questions of decide, in their order; the first no ends it."""
    figure, axes = canvas(9.6, 3.3)
    questions = [
        "any\nfailure?",
        "numbers\nwrong?",
        "break or\nrecompile?",
        "winner without\nevidence?",
        "no net\nprofit?",
    ]
    reasons = ["failure", "wrong_numbers", "break_or_\nrecompile", "no_evidence", "no_profit"]
    for number, (question, reason) in enumerate(zip(questions, reasons, strict=True)):
        x = 0.25 + 1.55 * number
        box(axes, x, 1.9, 1.25, 0.95, question, BLUE, fontsize=10)
        arrow(axes, (x + 0.62, 1.9), (x + 0.62, 1.3), VERMILION)
        axes.text(x + 0.7, 1.6, "yes", va="center", color=INK, fontsize=9.5)
        axes.text(x + 0.62, 1.08, reason, ha="center", va="center", color=INK, fontsize=8.8, family="monospace")
        arrow(axes, (x + 1.25, 2.38), (x + 1.55, 2.38))
        axes.text(x + 1.4, 2.5, "no", ha="center", color=INK, fontsize=9.5)
    box(axes, 8.0, 1.9, 1.35, 0.95, "accept for\nselected shapes", GREEN, fontsize=10, fontweight="bold")
    box(axes, 0.25, 0.25, 7.45, 0.5, "tune_or_fallback, with the first reason", VERMILION)
    save(figure, "07_precedence.png")


if __name__ == "__main__":
    ladder()
    pairing()
    precedence()
