def plot_report(report, note=""):
    """一份 v2 结果 → figure。只读数据，从不测量。note 写在标题开头，例如样例数据的说明。"""
    workload, hardware, rows = report["workload"], report["hardware"], report["candidate_matrix"]
    tokens, failed = [row["token_count"] for row in rows], [item["token_count"] for item in report["failure"] or []]
    with plt.style.context("default"):  # 白底黑字，跟使用者的主题无关
        fig, axes = plt.subplots(1, 2, figsize=(11, 4.2))
        if rows:
            draw_times(axes[0], rows)
            draw_speedup(axes[1], rows, report["summary"].get("accepted_token_counts", []))
        for axis in axes:
            axis.set_xticks(tokens, [str(token) for token in tokens], fontsize=8)  # 小一点，1024 和 2048 才不会连成一串
            axis.minorticks_off()
        if failed:
            axes[0].text(0.98, 0.02, f"failed: T = {failed}", transform=axes[0].transAxes, ha="right")
        name = f"{workload.get('name', 'workload')}, H={workload['hidden_size']}, {workload['dtype']}"
        fig.suptitle(f"{note}{name}\n{hardware['device']}, torch {hardware['torch_version']}")
        fig.tight_layout()
    return fig


def plot_saved(path, sample=None):
    """有自己的结果就画自己的；没有就画录好的样例，并在标题里写明；都没有就说文件该在哪里。"""
    report = load_report(path)
    if report is None and sample is None:
        print(f"还没有结果文件：{path}")
        return None
    if report is not None:
        return plot_report(report)
    print(f"没有找到 {path}，下面画的是录好的样例，不是你的机器。")
    return plot_report(sample, note="Recorded sample, not your machine: ")
