"""Draws the figures of chapter 4 into this folder: ``python assets/figures/04_figures.py``."""

from __future__ import annotations

from drawing import BLUE, GREEN, INK, MUTED, VERMILION, arrow, box, canvas, save
from matplotlib.patches import FancyBboxPatch


def four_stages() -> None:
    figure, axes = canvas(9.6, 3.9)
    stages = [
        ("1  Model semantics", "attention, MLP,\nnorm, sampling"),
        ("2  Graph and patterns", "order, shape, dtype:\nfusion candidate"),
        ("3  Capability gate", "device, backend,\nkernel limits"),
        ("4  Execution, evidence", "optimized path:\nwhich kernel ran?"),
    ]
    for number, (title, body) in enumerate(stages):
        x = 0.25 + number * 2.38
        box(axes, x, 2.15, 1.96, 1.35, "", BLUE)
        axes.text(x + 0.98, 3.2, title, ha="center", va="center", color=INK, fontsize=9.8, fontweight="bold")
        axes.text(x + 0.98, 2.62, body, ha="center", va="center", color=INK, fontsize=10.5)
        if number:
            arrow(axes, (x - 0.42, 2.82), (x, 2.82), GREEN if number == 3 else INK)
    axes.text(7.18, 3.02, "yes", ha="center", color=INK, fontsize=10.5)
    box(axes, 5.01, 0.35, 4.34, 0.9, "Eager fallback: always available,\nkeeps every rejection reason", VERMILION)
    arrow(axes, (5.99, 2.15), (5.99, 1.25), VERMILION, dashed=True)
    axes.text(6.1, 1.7, "no + reasons", va="center", color=INK, fontsize=10.5)
    arrow(axes, (8.37, 2.15), (8.37, 1.25), VERMILION, dashed=True)
    axes.text(8.26, 1.7, "kernel missing", va="center", ha="right", color=INK, fontsize=10.5)
    box(axes, 0.25, 0.35, 4.34, 0.9, "No pattern found: nodes simply stay eager", MUTED)
    arrow(axes, (3.61, 2.15), (3.61, 1.25), MUTED, dashed=True)
    save(figure, "04_four_stages.png")


def leftmost_longest() -> None:
    figure, axes = canvas(9.6, 4.3)
    ops, left, cell = "abcdab", 1.75, 1.0
    axes.text(left - 0.2, 3.77, "ops", ha="right", va="center", color=INK, fontsize=12, fontweight="bold")
    for index, op in enumerate(ops):
        box(axes, left + index * cell, 3.5, cell - 0.12, 0.54, op, INK, fontsize=14, family="monospace")
    axes.text(left + 6.1 * cell, 3.77, "patterns: ab, abc, cd", va="center", color=INK, fontsize=10.5)
    bars = [
        ("position 0", 2.8, 0, 3, "abc: taken", True, "longest match here"),
        ("position 0", 2.25, 0, 2, "ab: not taken", False, "also matches, but shorter"),
        ("position 3", 1.45, 3, 1, "no match", False, "'c' is used up: no 'cd'; move on"),
        ("position 4", 0.65, 4, 2, "ab: taken", True, "the short pattern has its turn"),
    ]
    for where, y, start, length, label, taken, remark in bars:
        x, width = left + start * cell, length * cell - 0.12
        patch = FancyBboxPatch((x, y), width, 0.4, boxstyle="round,pad=0,rounding_size=0.08", linewidth=2)
        patch.set(
            facecolor="#006B4F" if taken else "white",
            edgecolor="#006B4F" if taken else MUTED,
            linestyle="-" if taken else "--",
        )
        axes.add_patch(patch)
        ink = "white" if taken else INK
        axes.text(x + width / 2, y + 0.2, label, ha="center", va="center", color=ink, fontsize=10.5)
        axes.text(left - 0.2, y + 0.2, where, ha="right", va="center", color=INK, fontsize=11)
        before = start == 4  # no room behind the last bar
        axes.text(
            x - 0.15 if before else x + width + 0.15,
            y + 0.2,
            remark,
            ha="right" if before else "left",
            va="center",
            color=MUTED,
            fontsize=10.5,
        )
    arrow(axes, (left, 0.28), (left + 6 * cell - 0.12, 0.28), MUTED)
    axes.text(left - 0.2, 0.28, "scan", ha="right", va="center", color=MUTED, fontsize=11)
    save(figure, "04_leftmost_longest.png")


def gate_flow() -> None:
    figure, axes = canvas(9.6, 3.9)
    gates = ["pattern", "dtype", "device", "seq_len", "dynamic\nshape"]
    reasons = [
        "unsupported\n_pattern",
        "unsupported\n_dtype",
        "unsupported\n_device",
        "sequence\n_too_long",
        "dynamic_shape\n_not_supported",
    ]
    box(axes, 0.2, 2.5, 1.2, 0.9, "candidate\nworkload\nbackend", INK, fontsize=10)
    for number, (gate, reason) in enumerate(zip(gates, reasons, strict=True)):
        x = 1.75 + number * 1.3
        arrow(axes, (x - 0.35, 2.95), (x, 2.95))
        box(axes, x, 2.5, 0.95, 0.9, gate, BLUE)
        arrow(axes, (x + 0.47, 2.5), (x + 0.47, 1.78), VERMILION, dashed=True)
        axes.text(x + 0.47, 1.5, reason, ha="center", va="center", color=INK, fontsize=8.5, family="monospace")
    axes.text(1.6, 2.12, "fail:", ha="right", va="center", color=INK, fontsize=10.5)
    arrow(axes, (7.9, 2.95), (8.3, 2.95))
    box(axes, 8.3, 2.5, 1.1, 0.9, "report", GREEN, fontweight="bold")
    box(axes, 1.75, 0.35, 6.15, 0.62, "reasons = every failed gate, in this order", VERMILION)
    axes.plot([7.9, 8.85], [0.66, 0.66], color=VERMILION, linewidth=1.8)
    arrow(axes, (8.85, 0.66), (8.85, 2.5), VERMILION)
    axes.text(8.97, 1.5, "none:\nsup-\nported", va="center", ha="left", color=INK, fontsize=9.5)
    for number in range(5):
        arrow(axes, (2.22 + number * 1.3, 1.22), (2.22 + number * 1.3, 0.97), VERMILION, dashed=False)
    axes.text(4.8, 3.63, "every gate is asked, whatever the others said", ha="center", color=MUTED, fontsize=10.5)
    save(figure, "04_gate_flow.png")


if __name__ == "__main__":
    four_stages()
    leftmost_longest()
    gate_flow()
