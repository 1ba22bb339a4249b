"""Draws the figures of chapter 3 into this folder: ``python assets/figures/03_figures.py``."""

from __future__ import annotations

import matplotlib.pyplot as plt
from drawing import GREY, INK, NAVY, PALE, RUST, Point, save_trimmed
from matplotlib.axes import Axes


def box(axis: Axes, x: float, y: float, width: float, height: float, text: str, color: str, ink: str = INK) -> None:
    """A labelled rectangle, lower left corner at (x, y), in plain units."""
    axis.add_patch(plt.Rectangle((x, y), width, height, facecolor=color, edgecolor=INK, linewidth=1.2))
    axis.text(x + width / 2, y + height / 2, text, ha="center", va="center", color=ink, fontsize=10)


def arrow(axis: Axes, start: Point, end: Point, style: str = "-|>") -> None:
    axis.annotate("", end, start, arrowprops={"arrowstyle": style, "color": INK, "linewidth": 1.5})


def standard_side(axis: Axes) -> None:
    """Left half: the score matrix and the weights live in HBM."""
    axis.set_title("Standard: S and P go through HBM", fontsize=11)
    axis.text(0.2, 7.5, "HBM", fontsize=10, weight="bold")
    box(axis, 0.2, 4.6, 1.6, 2.4, "Q, K, V\nN x d", PALE)
    box(axis, 3.0, 4.6, 2.4, 2.4, "S\nN x N", RUST, "white")
    box(axis, 6.2, 4.6, 2.4, 2.4, "P\nN x N", RUST, "white")
    box(axis, 9.4, 4.6, 1.2, 2.4, "O\nN x d", PALE)
    axis.plot([0, 10.8], [3.9, 3.9], "--", color="0.4")
    axis.text(0.2, 0.3, "on chip", fontsize=10, weight="bold")
    for x, text in ((1.6, "matmul"), (4.6, "softmax"), (7.9, "matmul")):
        box(axis, x, 1.2, 1.8, 1.2, text, GREY)
    for a, b in ((1.0, 2.2), (4.2, 5.2), (7.4, 8.5)):
        arrow(axis, (a, 4.55), (b, 2.45))
    for a, b in ((2.9, 3.9), (5.8, 7.0), (9.2, 10.0)):
        arrow(axis, (a, 2.45), (b, 4.55))


def tiled_side(axis: Axes) -> None:
    """Right half: one query block stays on chip, key and value blocks stream past."""
    axis.set_title("Tiled: only a score tile, only on chip", fontsize=11)
    axis.text(0.2, 7.5, "HBM", fontsize=10, weight="bold")
    for i, shade in enumerate((NAVY, PALE, PALE)):
        box(axis, 0.2, 6.2 - 0.8 * i, 1.6, 0.8, f"Q{i}", shade, "white" if i == 0 else INK)
    for j in range(4):
        box(axis, 2.8 + 1.4 * j, 5.4, 1.3, 1.2, f"K{j}, V{j}", NAVY if j == 1 else PALE, "white" if j == 1 else INK)
    for i, shade in enumerate((NAVY, PALE, PALE)):
        box(axis, 9.2, 6.2 - 0.8 * i, 1.4, 0.8, f"O{i}", shade, "white" if i == 0 else INK)
    axis.plot([0, 10.8], [3.9, 3.9], "--", color="0.4")
    axis.text(0.2, 0.3, "on chip", fontsize=10, weight="bold")
    box(axis, 0.6, 1.2, 1.4, 1.2, "Q0", NAVY, "white")
    box(axis, 3.4, 1.2, 2.2, 1.2, "score tile\nBq x Bk", RUST, "white")
    box(axis, 7.2, 1.2, 2.6, 1.2, "m, l, acc", GREY)
    arrow(axis, (1.0, 4.55), (1.2, 2.45))
    arrow(axis, (4.85, 5.35), (4.6, 2.45))
    arrow(axis, (2.05, 1.8), (3.35, 1.8))
    arrow(axis, (5.65, 1.8), (7.15, 1.8))
    arrow(axis, (9.0, 2.45), (9.8, 4.55))


def tiling() -> None:
    fig, axes = plt.subplots(1, 2, figsize=(12, 4.4))
    for axis, draw in zip(axes, (standard_side, tiled_side), strict=True):
        axis.set(xlim=(0, 10.8), ylim=(0, 8.2))
        axis.axis("off")
        draw(axis)
    save_trimmed(fig, "03_tiling.png")


def mask_grid(axis: Axes, rows: int, cols: int, shift: int, title: str) -> None:
    """Dark cells: query i sees key j, that is j <= i + shift."""
    for i in range(rows):
        for j in range(cols):
            seen = j <= i + shift
            axis.add_patch(plt.Rectangle((j, rows - 1 - i), 1, 1, facecolor=NAVY if seen else "white", edgecolor=INK))
            axis.text(
                j + 0.5, rows - 0.5 - i, "1" if seen else "0", ha="center", va="center", color="white" if seen else INK
            )
    axis.set(xlim=(-0.05, cols + 0.05), ylim=(-0.05, rows + 0.05), aspect="equal", xticks=[], yticks=[])
    axis.set_xlabel("key j")
    axis.set_ylabel("query i")
    axis.set_title(title, fontsize=10)
    for side in axis.spines.values():
        side.set_visible(False)


def causal() -> None:
    fig, axes = plt.subplots(1, 3, figsize=(11, 3.4), width_ratios=[5, 5, 3])
    mask_grid(axes[0], 2, 5, 0, "Nq=2, Nk=5, upper left\n(SDPA is_causal=True)")
    mask_grid(axes[1], 2, 5, 3, "Nq=2, Nk=5, bottom right\n(this chapter, flash-attn)")
    mask_grid(axes[2], 5, 2, -3, "Nq=5, Nk=2, bottom right\n3 rows see nothing: output 0")
    save_trimmed(fig, "03_causal.png")


def io_bytes(n: int, d: int, sram: int) -> tuple[int, int]:
    """(standard, flash) HBM traffic of one fp16 head in bytes, with the constants of the chapter's step 4."""
    blocks = -(-n // (sram // (4 * d)))
    return 2 * (4 * n * d + 4 * n * n), 2 * (2 * n * d + blocks * 2 * n * d)


def traffic() -> None:
    fig, axis = plt.subplots(figsize=(7.5, 4.2))
    sizes = range(64, 4097, 16)
    axis.plot(sizes, [io_bytes(n, 64, 1024)[0] / 2**20 for n in sizes], color=RUST, linewidth=2.5, label="standard")
    for sram, style in ((1024, ":"), (49152, "-")):
        traffic_mib = [io_bytes(n, 64, sram)[1] / 2**20 for n in sizes]
        axis.plot(sizes, traffic_mib, style, color=NAVY, linewidth=2.5, label=f"tiled, M = {sram} elements")
    axis.set(xlabel="sequence length N", ylabel="HBM traffic (MiB)", xscale="log", yscale="log")
    axis.set_title("One head, d = 64, fp16")
    axis.set_xticks([64, 256, 1024, 4096], ["64", "256", "1024", "4096"])
    axis.minorticks_off()
    axis.grid(color="0.9")
    axis.legend(frameon=False)
    save_trimmed(fig, "03_io.png")


if __name__ == "__main__":
    tiling()
    causal()
    traffic()
