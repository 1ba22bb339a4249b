def row_problems(row):
    """这一行有哪些硬伤（有一条就不能接受整份报告）。纯函数，只看数据。"""
    checks = {
        "not_finite": not math.isfinite(row["speedup"] if row["speedup"] is not None else math.nan),
        "output_mismatch": row["output_close"] is not True,
        "not_captured": row["graph_count"] < 1,
        "graph_break": row["graph_break_count"] != 0,
        "recompile": row["compile"]["recompiles_during_measurement"] != 0,
    }
    return [name for name, failed in checks.items() if failed]


def decide_from_rows(rows, failures):
    """决策表的代码版 → (decision, reasons)。reasons 为空当且仅当 decision 是 accept_for_selected_shapes。"""
    reasons = ["failure"] if failures else []
    reasons += [f"T={row['token_count']}: {problem}" for row in rows for problem in row_problems(row)]
    faster = [row for row in rows if row["verdict"] == "faster"]
    slower = [row for row in rows if row["verdict"] == "slower"]
    if not any(row["evidence"]["level"] == "kernel_observed" for row in faster):
        reasons.append("no_faster_shape_with_observed_kernel")
    if len(slower) > len(faster):
        reasons.append("more_slower_than_faster")
    return ("tune_or_fallback" if reasons else "accept_for_selected_shapes"), reasons
