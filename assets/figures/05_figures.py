"""Draws the figures of chapter 5 into this folder: ``python assets/figures/05_figures.py``."""

from __future__ import annotations

from drawing import BLUE, GREEN, INK, MUTED, VERMILION, Point, canvas, save
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch


def node(axes: Axes, center: Point, text: str, color: str = INK, width: float = 1.3) -> None:
    """One operator: a rounded box around ``center``."""
    x, y = center
    style = "round,pad=0,rounding_size=0.08"
    patch = FancyBboxPatch(
        (x - width / 2, y - 0.21),
        width,
        0.42,
        boxstyle=style,
        facecolor="white",
        edgecolor=color,
        linewidth=2,
        zorder=3,
    )
    axes.add_patch(patch)
    axes.text(x, y, text, ha="center", va="center", fontsize=10, color=INK, zorder=4)


def arrow(axes: Axes, start: Point, end: Point, color: str = INK, bend: float = 0.0, dashed: bool = False) -> None:
    """A value on its way; ``bend`` is the curvature."""
    patch = FancyArrowPatch(
        start,
        end,
        arrowstyle="-|>",
        mutation_scale=14,
        color=color,
        linewidth=1.7,
        linestyle="--" if dashed else "-",
        connectionstyle=f"arc3,rad={bend}",
        zorder=2,
    )
    axes.add_patch(patch)


def frame(axes: Axes, corner: Point, width: float, height: float, color: str, dashed: bool = False) -> None:
    """The border of a fusion group."""
    style = "round,pad=0,rounding_size=0.15"
    line = "--" if dashed else "-"
    axes.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle=style, facecolor="#eef4f8", edgecolor=color, lw=2.2, ls=line)
    )


def title(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=11, fontweight="bold", color=INK)


def note(axes: Axes, x: float, y: float, text: str, color: str = MUTED) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=10, color=color)


def list_and_dag() -> None:
    figure, axes = canvas(9.0, 4.1)
    title(axes, 2.2, 3.8, "The list (execution order)")
    names = ["linear_4  (gate)", "silu", "linear_5  (up)", "mul_4"]
    for number, name in enumerate(names):
        node(axes, (2.2, 3.2 - 0.72 * number), name, VERMILION if number == 2 else BLUE, 1.7)
        if number:
            axes.plot([2.2, 2.2], [3.2 - 0.72 * number + 0.21, 3.2 - 0.72 * number + 0.51], color=MUTED, lw=1, ls=":")
    note(axes, 2.2, 0.42, "linear, silu, [linear], mul:\nno contiguous match", VERMILION)
    axes.plot([4.4, 4.4], [0.3, 3.9], color="#cccccc", lw=1)
    title(axes, 6.7, 3.8, "The graph (where values go)")
    n, gate, act, up, out = (6.7, 3.2), (5.7, 2.4), (5.7, 1.6), (7.7, 2.0), (6.7, 0.85)
    node(axes, n, "rms_norm_1", MUTED, 1.5)
    for center, text in ((gate, "linear_4  (gate)"), (act, "silu"), (up, "linear_5  (up)"), (out, "mul_4")):
        node(axes, center, text, BLUE, 1.7)
    arrow(axes, (6.5, 2.99), (5.8, 2.62))
    arrow(axes, (6.9, 2.99), (7.6, 2.22))
    arrow(axes, (5.7, 2.19), (5.7, 1.81))
    arrow(axes, (5.75, 1.39), (6.4, 1.07))
    arrow(axes, (7.65, 1.79), (7.0, 1.07))
    note(axes, 6.7, 0.35, "two branches meet: SwiGLU", BLUE)
    save(figure, "05_list_and_dag.png")


def two_outputs() -> None:
    figure, axes = canvas(9.0, 3.9)
    for x, heading, color, message in (
        (2.2, "One output: h is lost", VERMILION, "escaping_intermediate"),
        (6.8, "Two outputs: h and norm(h)", GREEN, "legal"),
    ):
        two = color == GREEN
        title(axes, x, 3.6, heading)
        frame(axes, (x - 0.95, 1.62), 1.9, 1.42, color, dashed=not two)
        node(axes, (x, 2.72), "add  (h = x + a)", INK, 1.6)
        node(axes, (x, 1.95), "rms_norm", INK, 1.6)
        node(axes, (x, 1.05), "MLP", MUTED)
        node(axes, (x, 0.32), "add  (h + ...)", MUTED, 1.5)
        arrow(axes, (x, 2.51), (x, 2.16))
        arrow(axes, (x, 1.74), (x, 1.26))
        arrow(axes, (x, 0.84), (x, 0.53))
        arrow(axes, (x + 0.8, 2.72), (x + 0.75, 0.32), color, bend=-0.45, dashed=not two)
        note(axes, x + 1.55, 2.55, "h" if two else "h ?", color)
        note(axes, x - 1.45, 1.05, message.replace("_", "_\n", 1), color)
    save(figure, "05_two_outputs.png")


def cycles() -> None:
    figure, axes = canvas(9.0, 3.7)
    title(axes, 2.2, 3.4, "Through a node outside")
    frame(axes, (0.55, 0.55), 1.5, 2.4, BLUE)
    node(axes, (1.3, 2.5), "a", BLUE, 0.8)
    node(axes, (1.3, 1.0), "c", BLUE, 0.8)
    node(axes, (3.2, 1.75), "b", MUTED, 0.8)
    arrow(axes, (1.3, 2.29), (1.3, 1.21))
    arrow(axes, (1.7, 2.5), (3.1, 1.96), VERMILION)
    arrow(axes, (3.1, 1.54), (1.7, 1.0), VERMILION)
    note(axes, 2.2, 0.25, "{a, c} waits for b, b waits for {a, c}", VERMILION)
    axes.plot([4.5, 4.5], [0.2, 3.5], color="#cccccc", lw=1)
    title(axes, 6.8, 3.4, "Two groups wait for each other")
    for x, names, color in ((5.7, ("a", "c"), BLUE), (7.9, ("b", "d"), GREEN)):
        frame(axes, (x - 0.65, 0.55), 1.3, 2.4, color)
        for y, name in zip((2.5, 1.0), names, strict=True):
            node(axes, (x, y), name, color, 0.8)
        arrow(axes, (x, 2.29), (x, 1.21))
    arrow(axes, (6.1, 2.4), (7.5, 1.15), VERMILION)
    arrow(axes, (7.5, 2.4), (6.1, 1.15), VERMILION)
    note(axes, 6.8, 0.25, "each group is fine alone", VERMILION)
    save(figure, "05_cycles.png")


if __name__ == "__main__":
    list_and_dag()
    two_outputs()
    cycles()
