"""Draws the trust model of the grader into this folder: ``python assets/figures/grader_figures.py``."""

from __future__ import annotations

from drawing import BLUE, GREEN, INK, MUTED, VERMILION, arrow, box, canvas, save


def trust_model() -> None:
    figure, axes = canvas(9.6, 5.0)
    label = {"color": INK, "fontsize": 10.5, "fontweight": "bold", "va": "center"}
    box(axes, 0.2, 0.3, 4.3, 3.5, "", VERMILION)
    axes.text(0.4, 3.5, "Sandbox: student code runs here", **label)
    box(axes, 0.5, 1.9, 3.7, 1.25, "student cells and locked helpers,\nin the instructor's order", VERMILION)
    box(axes, 0.5, 0.55, 3.7, 0.95, "a fresh fork of this state\nfor every test", VERMILION)
    arrow(axes, (2.35, 1.9), (2.35, 1.5))
    box(axes, 5.1, 0.3, 4.3, 3.5, "", BLUE)
    axes.text(5.3, 3.5, "Grader: trusted", **label)
    box(axes, 5.4, 1.9, 3.7, 1.25, "instructor's tests, visible and\nhidden; every student name\nis a proxy", BLUE)
    box(axes, 5.4, 0.55, 3.7, 0.95, "verdict, gradebook,\nresults, feedback", BLUE)
    arrow(axes, (7.25, 1.9), (7.25, 1.5))
    arrow(axes, (5.4, 2.75), (4.2, 2.75), GREEN)
    arrow(axes, (4.2, 2.3), (5.4, 2.3), GREEN)
    axes.text(4.8, 2.95, "call", ha="center", color=INK, fontsize=9.5)
    axes.text(4.8, 2.02, "value", ha="center", color=INK, fontsize=9.5)
    box(axes, 0.2, 4.2, 4.3, 0.6, "submission: any bytes, any name", MUTED)
    box(axes, 5.1, 4.2, 4.3, 0.6, "instructor's notebook", MUTED)
    arrow(axes, (2.35, 4.2), (2.35, 3.8))
    arrow(axes, (7.25, 4.2), (7.25, 3.8))
    save(figure, "grader_trust_model.png")


if __name__ == "__main__":
    trust_model()
