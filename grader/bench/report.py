"""The table and the plot, both from the JSON that a bench wrote."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

Result = dict[str, Any]


def spread(values: list[float]) -> str:
    """Median, and the lowest and highest."""
    return f"{statistics.median(values):.1f} ({min(values):.1f}–{max(values):.1f})"


def table(result: Result) -> str:
    """Markdown."""
    machine = result["machine"]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}; load when "
        f"it began: {machine['load']:.1f}. Whole processes, everything they start included.",
        "",
        "| notebook | side | wall, s | submissions / min | CPU-s each | peak, MiB |",
        "|---|---|---|---|---|---|",
    ]
    for chapter in result["chapters"]:
        for compared in chapter["comparisons"]:
            lines += _sides(chapter["about"], compared, result["workers"])
    lines += ["", "| notebook | throughput, times stock's | CPU each, times less | CPU each, times the floor |"]
    lines += ["|---|---|---|---|"]
    for chapter in result["chapters"]:
        floor = chapter["floor"]
        least = floor["cells"] + floor["bookkeeping"]
        for compared in chapter["comparisons"]:
            ratios = compared["ratios"]
            each = statistics.median(r["cpu_s"] for r in compared["ours"]) / compared["size"]
            notebook = f"{chapter['about']}, N={compared['size']}"
            lines.append(
                f"| {notebook} | **{spread(ratios['wall'])}** | {spread(ratios['cpu'])} | {each / least:.1f} |"
            )
    lines.append("")
    for chapter in result["chapters"]:
        floor = chapter["floor"]
        lines.append(
            f"Floor, {chapter['about']}, N={floor['size']}, CPU-s each: {floor['cells']:.3f} for the cells alone, "
            f"{floor['bookkeeping']:.3f} for nbgrader's bookkeeping alone.  "
        )
    lines += ["", "| notebook | N | workers | wall, s | submissions / min | CPU-s each | peak, MiB |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for chapter in result["chapters"]:
        for run in chapter["series"]:
            lines.append(
                f"| {chapter['about']} | {run['size']} | {run['workers']} | {run['wall_s']:.1f} | "
                f"{60 * run['size'] / run['wall_s']:.0f} | {run['cpu_s'] / run['size']:.3f} | {run['peak_mb']:.0f} |"
            )
    return "\n".join(lines) + "\n"


def _sides(about: str, compared: Result, workers: int) -> list[str]:
    size = compared["size"]
    sides = {"stock `nbgrader autograde`": "stock", f"`grade`, {workers} workers, sandbox": "ours"}
    lines = []
    for label, side in sides.items():
        runs = compared[side]
        wall = statistics.median(r["wall_s"] for r in runs)
        lines.append(
            f"| {about}, N={size} | {label} | {spread([r['wall_s'] for r in runs])} | "
            f"{60 * size / wall:.0f} | {statistics.median(r['cpu_s'] for r in runs) / size:.3f} | "
            f"{max(r['peak_mb'] for r in runs):.0f} |"
        )
    return lines


def plot(result: Result, path: Path) -> None:
    """Wall time over N for each number of workers, with stock beside it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    chapters = result["chapters"]
    figure, axes = plt.subplots(1, len(chapters), figsize=(5.2 * len(chapters), 3.8), squeeze=False)
    for axis, chapter in zip(axes[0], chapters, strict=True):
        for workers in sorted({run["workers"] for run in chapter["series"]}):
            runs = sorted((r["size"], r["wall_s"]) for r in chapter["series"] if r["workers"] == workers)
            axis.plot(*zip(*runs, strict=True), marker="o", label=f"grade, {workers} worker{'s' * (workers > 1)}")
        walls = [(c["size"], run["wall_s"]) for c in chapter["comparisons"] for run in c["stock"]]
        axis.plot(*zip(*walls, strict=True), "kx", label="stock nbgrader autograde")
        axis.set(xlabel="submissions", ylabel="seconds", title=chapter["about"])
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
