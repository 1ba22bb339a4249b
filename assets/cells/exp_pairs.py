def time_call(fn, device, flush):
    """调用一次 fn() → (时间 ms, 墙钟 ms)。GPU 的时间取 CUDA event，墙钟含同步；CPU 上两者相同。"""
    flush()
    synchronize(device)
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
    begin_ns = time.perf_counter_ns()
    fn()
    if device == "cuda":
        end.record()
        synchronize(device)
    wall_ms = (time.perf_counter_ns() - begin_ns) / 1e6
    return (start.elapsed_time(end) if device == "cuda" else wall_ms), wall_ms


def time_pair(a, b, device, flush, rng):
    """a、b 各调用一次，先后由 rng 决定 → (a 的时间, b 的时间)。挨着测，两边碰到的是同一段机器状态。"""
    if rng.random() < 0.5:
        first = time_call(a, device, flush)
        return first, time_call(b, device, flush)
    second = time_call(b, device, flush)
    return time_call(a, device, flush), second
