# 线型、标记、深浅都不同：灰度打印也分得开。
PATH_STYLES = {"eager": ("#b34700", "o"), "compiled": ("#003f7f", "s")}


def draw_times(axis, rows):
    """左图：两条路径的中位数（实线）和 P95（虚线），ms，双对数轴。"""
    tokens = [row["token_count"] for row in rows]
    for path, (color, marker) in PATH_STYLES.items():
        for key, style in (("median_ms", "-"), ("p95_ms", ":")):
            label = f"{path} {'median' if key == 'median_ms' else 'P95'}"
            fill = color if key == "median_ms" else "white"
            values = [row[path][key] for row in rows]
            axis.plot(tokens, values, style, color=color, marker=marker, markerfacecolor=fill, label=label)
    axis.set(xlabel="token count T", ylabel="time per call (ms)", xscale="log", yscale="log", title="Time per call")
    axis.legend(frameon=False)


def draw_speedup(axis, rows, accepted):
    """右图：加速比、95% 区间、噪声带；被接受的形状画星号。没有 extension 的文件只有点。"""
    tokens, speedups = [row["token_count"] for row in rows], [row["speedup"] for row in rows]
    if all("speedup_ci95" in row for row in rows):
        tops = [1 + row["noise_band"] for row in rows]
        axis.fill_between(tokens, [1 / top for top in tops], tops, color="0.85", label="noise band")
        below = [max(0, row["speedup"] - row["speedup_ci95"][0]) for row in rows]
        above = [max(0, row["speedup_ci95"][1] - row["speedup"]) for row in rows]
        axis.errorbar(tokens, speedups, yerr=[below, above], fmt="none", ecolor="0.2", capsize=4, label="95% interval")
    axis.plot(tokens, speedups, "-", color="0.2", marker="o", label="median ratio")
    stars = [row["speedup"] for row in rows if row["token_count"] in accepted]
    if stars:
        axis.plot(accepted, stars, "*", color="black", markerfacecolor="#ffcc33", markersize=18, label="accepted")
    axis.axhline(1, color="0.4", linestyle="--", linewidth=1)
    axis.set(xlabel="token count T", ylabel="speed-up (eager / compiled)", xscale="log", title="Speed-up")
    axis.legend(frameon=False)
