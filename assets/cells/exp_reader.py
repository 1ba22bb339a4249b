def newest_result(path, workload=""):
    """同一个标签可能有 GPU 和 CPU 两份结果，取较新的一份；都没有就返回 GPU 那份该在的路径。"""
    candidates = [result_path(path, device, workload) for device in ("cuda", "cpu")]
    return max(candidates, key=lambda name: Path(name).stat().st_mtime if Path(name).exists() else 0)


def load_report(path):
    """读一份 v2 结果（带不带 extension 都行）；文件不在就返回 None。"""
    if not Path(path).exists():
        return None
    return json.loads(Path(path).read_text(encoding="utf-8"))


def print_report(path):
    """打印一份结果文件：先总后分，每个形状一行。时间单位 ms。"""
    report = load_report(path)
    if report is None:
        print(f"还没有结果文件：{path}\n请先在 5.1 把 RUN_MODE 改成 'real_cpu' 或 'real_gpu'，再运行 5.2。")
        return
    for key in ("workload", "hardware", "summary", "failure", "evidence_level", "decision"):
        print(f"{key}: {json.dumps(report[key], ensure_ascii=False)}")
    for row in report["candidate_matrix"]:
        extra = f"  verdict={row['verdict']}" if "verdict" in row else ""
        print(
            f"token_count={row['token_count']}  output_close={row['output_close']}"
            f"  graph_break_count={row['graph_break_count']}  eager median={row['eager']['median_ms']:.4f}"
            f"  compiled median={row['compiled']['median_ms']:.4f}  compiled P95={row['compiled']['p95_ms']:.4f}"
            f"  speedup={row['speedup']:.4f}{extra}"
        )
