def compile_fresh(fn):
    """忘掉以前的编译，按静态形状重新编译 fn → (compiled, explainer)。编译发生在第一次调用时。

    explainer 是 backend 的外壳：数一数真正交给 Inductor 的图。每换一个形状就要重新调用一次本函数。
    """
    import torch._inductor.config as inductor_config
    from torch._dynamo.backends.debugging import ExplainWithBackend

    torch._dynamo.reset()
    if hasattr(inductor_config.cpp, "enable_kernel_profile"):
        inductor_config.cpp.enable_kernel_profile = True  # 不打开，CPU kernel 不会出现在 profiler 里
    explainer = ExplainWithBackend("inductor")
    return torch.compile(fn, backend=explainer, dynamic=False), explainer


def capture_counts(explainer):
    """→ {"graph_count", "graph_break_count"}。一张图也没有时，断点数是 0，不是 -1。"""
    graphs = len(explainer.graphs)
    return {"graph_count": graphs, "graph_break_count": max(len(explainer.break_reasons), graphs - 1, 0)}


def cache_hits():
    """Inductor 磁盘缓存命中的次数。命中时“首次调用”偏短，结果文件要写明。"""
    from torch._dynamo.utils import counters

    return counters["inductor"].get("fxgraph_cache_hit", 0)
