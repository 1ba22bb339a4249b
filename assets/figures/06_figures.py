"""Draws the figures of chapter 6 into this folder: ``python assets/figures/06_figures.py``."""

from __future__ import annotations

import random

import matplotlib.pyplot as plt
from drawing import INK, NAVY, RUST, save_trimmed
from matplotlib.axes import Axes

# event → (fill, ink, short name): fills differ in lightness, so grey prints work
EVENTS = {
    "new_static": (RUST, "white", "new\nstatic"),
    "new_dynamic": (NAVY, "white", "new\ndynamic"),
    "new_one": ("#e0a070", INK, "new\none"),
    "hit": ("#e6eef7", INK, "hit"),
    "eager_limit": ("white", INK, "eager\nlimit"),
}


def simulate(sizes: list[int], mode: str, limit: int) -> list[str]:
    """The rules of the chapter's step 2.4."""
    static, dynamic, events = set(), False, []
    for n in sizes:
        if n in static or (dynamic and n != 1):
            events.append("hit")
        elif len(static) + dynamic >= limit:
            events.append("eager_limit")
        elif n == 1 or mode == "static" or (mode == "auto" and not static):
            static.add(n)
            events.append("new_one" if n == 1 else "new_static")
        else:
            dynamic = True
            events.append("new_dynamic")
    return events


def cache() -> None:
    """One row of calls per mode, each call marked by what torch does."""
    sizes, modes = [5, 5, 7, 1, 9, 8, 5, 7], ["static", "dynamic", "auto"]
    fig, axis = plt.subplots(figsize=(10, 3.6))
    for y, mode in enumerate(reversed(modes)):
        axis.text(-0.15, y + 0.45, mode, ha="right", va="center", fontsize=11)
        for x, event in enumerate(simulate(sizes, mode, 3)):
            fill, ink, text = EVENTS[event]
            hatch = "//" if event == "eager_limit" else None
            axis.add_patch(plt.Rectangle((x, y), 0.92, 0.9, facecolor=fill, edgecolor=INK, hatch=hatch))
            back = {"facecolor": "white", "edgecolor": "none", "pad": 1} if hatch else None
            axis.text(x + 0.46, y + 0.45, text, ha="center", va="center", color=ink, fontsize=10, bbox=back)
    for x, n in enumerate(sizes):
        axis.text(x + 0.46, 3.1, str(n), ha="center", fontsize=12, weight="bold")
    axis.text(-0.15, 3.1, "size", ha="right", fontsize=11)
    axis.set(xlim=(-1.2, 8), ylim=(-0.1, 3.5))
    axis.axis("off")
    axis.set_title("recompile_limit = 3", fontsize=11)
    save_trimmed(fig, "06_cache.png")


def request_lengths(count: int = 200, seed: int = 0) -> list[int]:
    """The chapter's request stream."""
    rng = random.Random(seed)
    return [min(512, max(1, round(rng.lognormvariate(4.4, 0.7)))) for _ in range(count)]


def best_buckets(lengths: list[int], k: int) -> list[int]:
    """Buckets with the least padding, by the recurrence of the chapter's step 3.3."""
    u = sorted(set(lengths))

    def waste(i: int, j: int) -> int:
        return sum(u[j] - n for n in lengths if u[i] <= n <= u[j])

    table = {(i, j): waste(i, j) for i in range(len(u)) for j in range(i, len(u))}
    layer = [(table[0, j], [u[j]]) for j in range(len(u))]
    for used in range(1, k):
        layer = [(10**9, [])] * used + [
            min((layer[i][0] + table[i + 1, j], layer[i][1] + [u[j]]) for i in range(used - 1, j))
            for j in range(used, len(u))
        ]
    return layer[-1][1]


def draw_buckets(axis: Axes, lengths: list[int], buckets: list[int], name: str) -> None:
    """Sorted lengths, the bucket of each as a step, the padding between them shaded."""
    ordered = sorted(lengths)
    steps = [min(b for b in buckets if b >= n) for n in ordered]
    axis.fill_between(range(len(ordered)), ordered, steps, step="mid", color="#e0a070", label="padding")
    axis.step(range(len(ordered)), steps, where="mid", color=RUST, linewidth=1.5, label="bucket")
    axis.plot(range(len(ordered)), ordered, color=NAVY, linewidth=2, label="length")
    share = sum(steps) / sum(ordered) - 1
    axis.set_title(f"{name}: {buckets}, padding {share:.0%}", fontsize=10)
    axis.set(ylabel="tokens", xlim=(0, len(ordered) - 1), ylim=(0, None))


def buckets() -> None:
    lengths = request_lengths()
    top = max(lengths)
    equal = [-(-top * i // 4) for i in range(1, 5)]
    fig, axes = plt.subplots(2, 1, figsize=(8, 5.4), sharex=True)
    draw_buckets(axes[0], lengths, equal, "Equal width")
    draw_buckets(axes[1], lengths, best_buckets(lengths, 4), "Least padding")
    axes[0].legend(frameon=False, loc="upper left")
    axes[1].set_xlabel("request, sorted by length")
    fig.tight_layout()
    save_trimmed(fig, "06_buckets.png")


if __name__ == "__main__":
    cache()
    buckets()
