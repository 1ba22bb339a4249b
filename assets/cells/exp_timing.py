def synchronize(device):
    """等 GPU 做完手上的活。CPU 上的调用本来就是同步的。"""
    if device == "cuda":
        torch.cuda.synchronize()


def make_cache_flusher(device):
    """GPU：返回一个函数，写一块两倍 L2 大小的显存，把 L2 里的旧数据挤掉。CPU：什么也不做（缓存是热的）。"""
    if device != "cuda":
        return lambda: None
    l2_bytes = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or 128 * 2**20
    return torch.empty(2 * l2_bytes, dtype=torch.int8, device=device).zero_


@contextlib.contextmanager
def one_cpu_thread():
    """CPU 上编译、计时、剖析都只用一个线程：线程调度是抖动的一大来源。"""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
