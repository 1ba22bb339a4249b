def float64_output(fn, args):
    """用 float64 再算一遍，当作标准答案。fn 是 nn.Module 时连参数也转成 float64。"""
    exact = copy.deepcopy(fn).double() if isinstance(fn, torch.nn.Module) else fn
    return exact(*(arg.double() for arg in args))


def max_abs_error(output, exact):
    """逐元素最大绝对误差；出现 NaN 或 Inf 时返回 None（JSON 里没有 NaN）。"""
    error = (output.double() - exact).abs().max().item()
    return error if math.isfinite(error) else None


def peak_memory(fn, device):
    """一次调用的显存峰值 → (总峰值, 比调用前多出的部分)，字节。CPU 上没有这个计数，返回 (None, None)。"""
    if device != "cuda":
        return None, None
    synchronize(device)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    fn()
    synchronize(device)
    peak = torch.cuda.max_memory_allocated()
    return peak, peak - before
