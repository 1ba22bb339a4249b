def describe_failure(token_count, error):
    """异常 → 失败记录。只留开头的原因；torch 的调试提示和本机路径不写进文件。"""
    reason = " ".join(str(error).split("Set TORCH")[0].split())
    message = re.sub(r"(?:/[^/\s'\"]+)+/", "…/", reason)[:300] or "no message"
    return {"token_count": token_count, "type": type(error).__name__, "message": message}


def run_matrix(make_case, plan):
    """逐个形状测量 → (rows, failures)。make_case(token_count) 返回 (fn, args)；一个形状失败不影响其他形状。"""
    rows, failures = [], []
    with torch.inference_mode(), one_cpu_thread():
        for token_count in plan["token_counts"]:
            try:
                fn, args = make_case(token_count)
                rows.append(measure_shape(token_count, fn, args, plan))
            except Exception as error:  # 编译器缺失、显存不足……都要记下来，而不是让整个实验停住
                failures.append(describe_failure(token_count, error))
                print(f"T={token_count} 失败：{failures[-1]['type']}: {failures[-1]['message']}")
    return rows, failures


def run_experiment(path, make_case, plan):
    """检查标签 → 测量 → 决策 → 保存。返回保存的结果（dict）。"""
    check_label(path, plan["run_label"])
    rows, failures = run_matrix(make_case, plan)
    report = build_report(rows, failures, plan)
    save_report(path, report)
    return report
