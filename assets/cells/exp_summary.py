def summarize_rows(rows, failures, decision):
    """→ 结果文件的 summary。total_cases 把失败也算进去；没被接受时 accepted_token_counts 是空列表。"""
    shapes = {"faster": [], "tie": [], "slower": []}
    for row in rows:
        shapes[row["verdict"]].append(row["token_count"])
    observed = [row["token_count"] for row in rows if row["evidence"]["level"] == "kernel_observed"]
    accepted = [t for t in shapes["faster"] if t in observed] if decision == "accept_for_selected_shapes" else []
    complete = bool(rows) and not failures
    return {
        "correctness_passed": complete and all(row["output_close"] for row in rows),
        "captured_without_breaks": complete
        and all(row["graph_count"] >= 1 and row["graph_break_count"] == 0 for row in rows),
        "faster_cases": len(shapes["faster"]),
        "total_cases": len(rows) + len(failures),
        "accepted_token_counts": accepted,
        "tie_token_counts": shapes["tie"],
        "slower_token_counts": shapes["slower"],
    }
