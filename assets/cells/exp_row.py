def measure_shape(token_count, fn, args, plan):
    """一个形状的完整测量 → candidate_matrix 里的一行。顺序：编译、核对数值、配对计时、剖析同一个函数。"""
    device = plan["device"]
    compiled_fn, explainer = compile_fresh(fn)
    eager, compiled = (lambda: fn(*args)), (lambda: compiled_fn(*args))
    expected, exact = eager(), float64_output(fn, args)
    output, first_ms, cached = first_call(lambda: (compiled(), synchronize(device))[0])
    compiled()
    graphs_before = len(explainer.graphs)
    pair = measure_pair(eager, compiled, device, plan["warmup"], plan["repeats"], plan["rounds"], plan["seed"])
    recompiles = len(explainer.graphs) - graphs_before  # 预热和计时期间不该再有编译
    kernels, counts = profile_kernels(compiled, device), capture_counts(explainer)
    paths = {"eager": pair.pop("a"), "compiled": pair.pop("b")}
    for name, call in (("eager", eager), ("compiled", compiled)):
        paths[name]["peak_allocated_bytes"], paths[name]["peak_delta_bytes"] = peak_memory(call, device)
    numerics = {"eager_max_error": max_abs_error(expected, exact), "compiled_max_error": max_abs_error(output, exact)}
    medians = paths["eager"]["median_ms"], paths["compiled"]["median_ms"]
    return {
        "token_count": token_count,
        "output_close": torch.allclose(output, expected, atol=plan["atol"], rtol=plan["rtol"]),
        "numerics": numerics,
        **counts,
        "gpu_operator_keys": sorted(kernels),
        "evidence": {"kernels": kernels, "level": evidence_level(counts["graph_count"], kernels)},
        "compile": compile_cost(first_ms, cached, recompiles, *medians),
        **paths,
        **pair,
    }
