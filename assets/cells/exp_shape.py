def first_call(fn):
    """第一次调用：编译就发生在这里 → (输出, 耗时 ms, 是否用了磁盘缓存)。"""
    hits, begin = cache_hits(), time.perf_counter()
    output = fn()
    return output, (time.perf_counter() - begin) * 1e3, cache_hits() > hits


def compile_cost(first_ms, cached, recompiles, eager_ms, compiled_ms):
    """编译要花多少、多少次调用才回本（省不下时间就是 None）。时间单位 ms。"""
    saved_ms = eager_ms - compiled_ms
    return {
        "first_call_ms": first_ms,
        "cache_hit": cached,
        "dynamic": False,
        "recompiles_during_measurement": recompiles,
        "break_even_calls": math.ceil(first_ms / saved_ms) if saved_ms > 0 else None,
    }
