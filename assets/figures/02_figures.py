"""Draws the figures of chapter 2 into this folder: ``python assets/figures/02_figures.py``."""

from __future__ import annotations

import matplotlib.pyplot as plt
from drawing import INK, NAVY, PALE, RUST, Point, save_trimmed
from matplotlib.axes import Axes


def box(axis: Axes, x: float, y: float, words: str, color: str, ink: str = INK, width: float = 2.0) -> None:
    """A labelled rectangle around (x, y)."""
    axis.add_patch(plt.Rectangle((x - width / 2, y - 0.5), width, 1, facecolor=color, edgecolor=INK, linewidth=1.2))
    axis.text(x, y, words, ha="center", va="center", fontsize=12, color=ink)


def arrow(axis: Axes, start: Point, end: Point, color: str = INK) -> None:
    """An arrow; a crossing between memory and kernel is orange."""
    axis.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 1.8})


def traffic() -> None:
    """silu(g) * u without and with fusion: every arrow between the two rows costs N bytes."""
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(1.25, 1))
    memory, kernel = 3.0, 0.7
    left, right = axes
    for name, x in (("g", 1.2), ("s", 3.6), ("u", 6.0), ("y", 8.4)):
        box(left, x, memory, name, PALE, width=1.4)
    box(left, 2.4, kernel, "silu", NAVY, "white")
    box(left, 6.6, kernel, "mul", NAVY, "white")
    up, down = kernel + 0.5, memory - 0.5
    for start, end in (
        ((1.2, down), (2.0, up)), ((2.8, up), (3.4, down)), ((3.8, down), (6.0, up)), ((6.0, down), (6.5, up)),
        ((7.1, up), (8.2, down)),
    ):  # fmt: skip
        arrow(left, start, end, RUST)
    left.set(xlim=(0, 9.6), title="unfused: 2 launches, 5N bytes")
    for name, x in (("g", 1.2), ("u", 3.4), ("y", 5.6)):
        box(right, x, memory, name, PALE, width=1.4)
    box(right, 3.4, kernel, "silu, then mul   (s in registers)", NAVY, "white", width=6.2)
    for x, is_read in ((1.2, True), (3.4, True), (5.6, False)):
        arrow(right, (x, down if is_read else up), (x, up if is_read else down), RUST)
    right.set(xlim=(0, 6.8), title="fused: 1 launch, 3N bytes")
    for axis in axes:
        axis.text(0.05, memory + 0.65, "memory", fontsize=11, color=INK)
        axis.text(0.05, kernel - 0.85, "kernels", fontsize=11, color=INK)
        axis.set(ylim=(-0.4, 4.0))
        axis.axis("off")
    save_trimmed(fig, "02_traffic.png")


def escape() -> None:
    """add and norm in one group; h is also used outside, so it has to be written."""
    fig, axis = plt.subplots(figsize=(9, 3.2))
    axis.add_patch(plt.Rectangle((2.3, 1.15), 6.4, 1.7, fill=False, edgecolor=NAVY, linewidth=2, linestyle="--"))
    axis.text(2.5, 3.0, "group: one launch", fontsize=11, color=NAVY)
    box(axis, 0.9, 2.6, "x", PALE, width=1)
    box(axis, 0.9, 1.4, "r", PALE, width=1)
    box(axis, 3.6, 2, "add", NAVY, "white", 1.6)
    box(axis, 7.4, 2, "norm", NAVY, "white", 1.6)
    box(axis, 10.2, 2, "y", PALE, width=1)
    box(axis, 7.4, 0, "next add (outside)", "#9fbfdf", width=3.6)
    arrow(axis, (1.4, 2.6), (2.8, 2.2))
    arrow(axis, (1.4, 1.4), (2.8, 1.8))
    arrow(axis, (4.4, 2), (6.6, 2))
    arrow(axis, (8.2, 2), (9.7, 2))
    arrow(axis, (4.9, 1.95), (5.9, 0.5), RUST)
    axis.text(5.1, 2.15, "h", fontsize=13, color=INK)
    axis.text(2.9, 0.35, "h escapes:\nmust be written", fontsize=11, color=RUST)
    axis.set(xlim=(0, 11), ylim=(-0.7, 3.5))
    axis.axis("off")
    save_trimmed(fig, "02_escape.png")


def break_even() -> None:
    """The two measured lines and where they cross."""
    fig, axis = plt.subplots(figsize=(7.5, 3.6))
    tokens = [0, 300]
    crossing = (15.36 - 1.40) / (0.339 - 0.267)
    axis.plot(tokens, [1.40 + 0.339 * t for t in tokens], "-", color=RUST, label="eager: 1.40 + 0.339 T")
    axis.plot(tokens, [15.36 + 0.267 * t for t in tokens], "--", color=NAVY, label="compiled: 15.36 + 0.267 T")
    axis.axvline(crossing, color="0.3", linestyle=":")
    axis.plot([crossing], [1.40 + 0.339 * crossing], "o", color=INK)
    axis.text(crossing + 4, 30, f"T* = {crossing:.1f}", color=INK, fontsize=12)
    axis.text(30, 42, "fused is slower", color=INK)
    axis.text(225, 52, "fused is faster", color=INK)
    axis.set(xlabel="token count T", ylabel="time per call (µs)", xlim=(0, 300), ylim=(0, 110))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="upper left")
    save_trimmed(fig, "02_break_even.png")


if __name__ == "__main__":
    traffic()
    escape()
    break_even()
