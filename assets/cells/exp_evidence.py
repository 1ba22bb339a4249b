COMPILED_KERNEL = r"triton_|cpp_fused"  # Inductor 生成的 kernel：GPU 上叫 triton_…，CPU 上叫 …cpp_fused_…
NOT_A_KERNEL = r"^(##|Torch-Compiled|ProfilerStep|Memcpy|Memset|TorchDynamo|Pregraph|AOTDispatcher)"


def profile_kernels(fn, device="cpu", calls=5, pattern=COMPILED_KERNEL):
    """剖析 fn 的 calls 次调用（fn 必须已预热）→ {kernel 名: {"calls": 次数, "self_us": 自身时间 µs}}。

    GPU：只留设备上的事件，主机算子（aten::…）不算 kernel。CPU 没有这个区别，只留名字符合 pattern 的。
    """
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CPU] + ([activity.CUDA] if device == "cuda" else [])
    with torch.inference_mode(), one_cpu_thread(), torch.profiler.profile(activities=activities) as prof:
        for _ in range(calls):
            fn()
        synchronize(device)
    kernels = {}
    for event in prof.key_averages():
        on_device = str(event.device_type).rsplit(".", 1)[-1].lower() == device
        annotation = getattr(event, "is_user_annotation", False) or re.search(NOT_A_KERNEL, event.key)
        if on_device and not annotation and (device == "cuda" or re.search(pattern, event.key)):
            self_us = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
            kernels[event.key] = {"calls": event.count, "self_us": round(self_us, 3)}
    return kernels


def evidence_level(graph_count, kernels, pattern=COMPILED_KERNEL):
    """三级证据：none 什么也没有；capture_only 捕获到图；kernel_observed 看见了名字符合 pattern 的 kernel。"""
    if any(re.search(pattern, name) for name in kernels):
        return "kernel_observed"
    return "capture_only" if graph_count else "none"
