"""What the scripts in this folder share: the palette, boxes and arrows, and how a figure is written.

English text, an opaque light ground (figures read on light and dark pages), the Okabe-Ito palette, and every
distinction made by shape, line or word as well as by colour.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FOLDER = Path(__file__).parent
INK, GROUND, MUTED = "#1a1a1a", "#fbfbf8", "#5c5c5c"
BLUE, GREEN, VERMILION = "#0072B2", "#009E73", "#D55E00"
NAVY, RUST, PALE, GREY = "#003f7f", "#b34700", "#e6eef7", "#d9d9d9"  # fills: differ in lightness, so grey prints work
Point = tuple[float, float]


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty drawing area of ``width`` x ``height`` inches, in inch coordinates."""
    figure = plt.figure(figsize=(width, height), dpi=150, facecolor=GROUND)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def box(axes: Axes, x: float, y: float, width: float, height: float, text: str, color: str, **style: object) -> None:
    """A rounded box whose lower left corner is (x, y); ``style`` goes to the text."""
    shape = "round,pad=0,rounding_size=0.1"
    patch = FancyBboxPatch((x, y), width, height, boxstyle=shape, facecolor="white", edgecolor=color, linewidth=2)
    axes.add_patch(patch)
    words = {"ha": "center", "va": "center", "color": INK, "fontsize": 11}
    axes.text(x + width / 2, y + height / 2, text, **words | style)


def arrow(axes: Axes, start: Point, end: Point, color: str = INK, dashed: bool = False) -> None:
    """An arrow from ``start`` to ``end``; ``dashed`` for the way that is not the normal one."""
    style = {"mutation_scale": 16, "color": color, "linewidth": 1.8, "linestyle": "--" if dashed else "-"}
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", **style))


def save(figure: Figure, name: str) -> None:
    """Write ``name`` into this folder, without anything that changes between runs."""
    figure.savefig(FOLDER / name, facecolor=GROUND, metadata={"Software": None})
    plt.close(figure)


def save_trimmed(figure: Figure, name: str) -> None:
    """Write ``name`` into this folder on white, cut to what is drawn: for charts and drawings in units of their own."""
    figure.savefig(FOLDER / name, dpi=150, facecolor="white", bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
