"""Draws the figures of chapter 1 into this folder: ``python assets/figures/01_figures.py``."""

from __future__ import annotations

import matplotlib.pyplot as plt
from drawing import INK, NAVY, PALE, RUST, save_trimmed
from matplotlib.axes import Axes


def bare(axis: Axes, width: float, height: float) -> None:
    """A drawing area in plain units, without axes."""
    axis.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    axis.axis("off")


def tiers() -> None:
    """Three steps: what each tier requires, and the experiment it adds."""
    fig, axis = plt.subplots(figsize=(9, 3.9))
    bare(axis, 18, 7.6)
    steps = [
        ("cpu_eager", "needs: torch", "adds: TODOs, tests, plots", 1.7, PALE),
        ("cpu_compile", "needs: torch.compile\n+ C++ compiler", "adds: real_cpu", 3.7, "#9fbfdf"),
        ("gpu", "needs: CUDA\n+ torch.compile", "adds: real_gpu", 5.7, NAVY),
    ]
    for number, (name, needs, adds, height, color) in enumerate(steps):
        left, ink = 6 * number, "white" if number == 2 else INK
        axis.add_patch(plt.Rectangle((left + 0.1, 0), 5.8, height, facecolor=color, edgecolor=INK, linewidth=1.2))
        axis.text(left + 3, height / 2, needs, ha="center", va="center", fontsize=11, color=ink)
        axis.text(left + 3, height + 1.0, name, ha="center", fontsize=14, weight="bold", family="monospace", color=INK)
        axis.text(left + 3, height + 0.35, adds, ha="center", fontsize=10.5, color=RUST)
    save_trimmed(fig, "01_tiers.png")


def nearest_rank() -> None:
    """Twenty sorted samples; the nineteenth is P95."""
    fig, axis = plt.subplots(figsize=(9, 2.5))
    samples = [10, 11, 11, 12, 12, 12, 13, 13, 13, 14, 14, 15, 15, 16, 17, 18, 19, 21, 26, 41]
    ranks = range(1, len(samples) + 1)
    bars = axis.bar(ranks, samples, color="#9fbfdf", edgecolor=INK)
    bars[18].set(facecolor=RUST, hatch="//")
    axis.annotate(
        "P95: rank = ceil(95 * 20 / 100) = 19", (18.6, 27), (9, 35), color=INK, fontsize=11,
        arrowprops={"arrowstyle": "->", "color": INK},
    )  # fmt: skip
    axis.set(xticks=list(ranks), xlabel="rank in sorted order (1-based)", ylabel="latency (ms)", xlim=(0.3, 20.7))
    axis.spines[["top", "right"]].set_visible(False)
    save_trimmed(fig, "01_nearest_rank.png")


if __name__ == "__main__":
    tiers()
    nearest_rank()
