def build_report(rows, failures, plan):
    """把行、失败和计划拼成 v2 结果。原有的键一个不少，新增的放在行内和 extension 里。"""
    decision, reasons = decide_from_rows(rows, failures)
    workload = {key: plan[key] for key in ("token_counts", "hidden_size", "dtype", "warmup", "repeats", "rounds")}
    measurement = {"pairs": plan["repeats"] * plan["rounds"], "atol": plan["atol"], "rtol": plan["rtol"]}
    return {
        "schema_version": "inference-mechanism-gpu/v2",
        "semantic_id": plan["semantic_id"],
        "profile_id": plan["profile_id"],
        "run_label": plan["run_label"],
        "workload": {"name": plan["workload"]} | workload,
        "hardware": describe_hardware(plan["device"]),
        "candidate_matrix": rows,
        "summary": summarize_rows(rows, failures, decision),
        "failure": failures or None,
        "evidence_level": "local_mechanism_benchmark",
        "decision": decision,
        "extension": {
            "name": "paired-evidence/1",
            "seed": plan["seed"],
            "measurement": measurement | measurement_notes(plan["device"]),
            "environment": describe_environment(),
            "decision_reasons": reasons,
        },
    }
