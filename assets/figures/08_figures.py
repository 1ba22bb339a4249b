"""Draws the figures of chapter 8 into this folder: ``python assets/figures/08_figures.py``."""

from __future__ import annotations

from drawing import BLUE, GREEN, INK, MUTED, VERMILION, arrow, box, canvas, save


def loop() -> None:
    figure, axes = canvas(9.6, 3.8)
    box(axes, 0.25, 2.3, 1.7, 1.1, "graph\nbackends\nworkload", INK)
    box(axes, 2.6, 2.3, 1.9, 1.1, "build_plan\npath + reasons\nper segment", BLUE)
    box(axes, 5.15, 2.3, 1.9, 1.1, "dispatch\ncache: fields\nthat were read", BLUE)
    box(axes, 7.7, 2.3, 1.65, 1.1, "run\nkernels,\noperators", INK)
    for start, end in ((1.95, 2.6), (4.5, 5.15), (7.05, 7.7)):
        arrow(axes, (start, 2.85), (end, 2.85))
    box(axes, 4.0, 0.35, 2.6, 1.1, "audit: confirmed,\nfell_back or unproven", GREEN, fontweight="bold")
    arrow(axes, (3.55, 2.3), (4.3, 1.45))
    axes.text(4.15, 1.9, "what should\nhappen", ha="left", va="center", color=MUTED, fontsize=10)
    arrow(axes, (8.5, 2.3), (6.6, 1.1))
    axes.text(8.0, 1.45, "what happened\n(evidence)", ha="left", va="center", color=MUTED, fontsize=10)
    arrow(axes, (4.0, 0.8), (2.9, 2.3), VERMILION, dashed=True)
    axes.text(2.55, 1.05, "change plan\nor gate", ha="right", va="center", color=INK, fontsize=10)
    save(figure, "08_loop.png")


def cache_key() -> None:
    figure, axes = canvas(9.6, 3.4)
    panels = [
        (0.25, "key = (dtype, seq_len)", "HIT: flash", "wrong: flash takes no dropout", VERMILION),
        (5.05, "key = every field a check read", "MISS: plan again, math", "right: dropout_p is in the key", GREEN),
    ]
    for x, key, second, remark, color in panels:
        axes.text(x, 3.1, key, color=INK, fontsize=11.5, fontweight="bold", va="center")
        box(axes, x, 2.15, 2.1, 0.6, "dropout_p = 0.0", INK, fontsize=10.5)
        box(axes, x + 2.35, 2.15, 1.95, 0.6, "MISS: plan flash", BLUE, fontsize=10)
        arrow(axes, (x + 2.1, 2.45), (x + 2.35, 2.45))
        box(axes, x, 1.1, 2.1, 0.6, "dropout_p = 0.1", INK, fontsize=10.5)
        box(axes, x + 2.35, 1.1, 1.95, 0.6, second, color, fontsize=10)
        arrow(axes, (x + 2.1, 1.4), (x + 2.35, 1.4))
        axes.text(x, 0.6, remark, color=INK, fontsize=10.5, va="center")
    axes.plot([4.8, 4.8], [0.35, 3.2], color=MUTED, linewidth=1, linestyle=":")
    save(figure, "08_cache_key.png")


def verdicts() -> None:
    figure, axes = canvas(9.6, 2.7)
    box(axes, 0.25, 1.4, 2.2, 0.9, "any path's\nsignature seen?", BLUE)
    box(axes, 3.55, 1.4, 2.3, 0.9, "another path's\nsignature seen?", BLUE)
    box(axes, 7.15, 1.4, 2.1, 0.9, "confirmed", GREEN, fontweight="bold")
    box(axes, 0.45, 0.2, 1.8, 0.6, "unproven", MUTED, fontweight="bold")
    box(axes, 3.8, 0.2, 1.8, 0.6, "fell_back", VERMILION, fontweight="bold")
    for start, end, word, place in (
        ((2.45, 1.85), (3.55, 1.85), "yes", (3.0, 2.0)),
        ((5.85, 1.85), (7.15, 1.85), "no: only the planned one", (6.5, 2.5)),
        ((1.35, 1.4), (1.35, 0.8), "no", (1.6, 1.1)),
        ((4.7, 1.4), (4.7, 0.8), "yes", (5.0, 1.1)),
    ):
        arrow(axes, start, end)
        axes.text(*place, word, ha="center", va="center", color=INK, fontsize=10)
    axes.text(6.2, 0.5, "same signature as planned: not another path", va="center", color=MUTED, fontsize=10)
    save(figure, "08_verdicts.png")


if __name__ == "__main__":
    loop()
    cache_key()
    verdicts()
