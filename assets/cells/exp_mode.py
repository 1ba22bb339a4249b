RUN_MODES = ("dry_run", "real_cpu", "real_gpu")


def experiment_device(run_mode, profile_id, expected_profile="INF-CUDA-MECHANISM"):
    """检查设置 → None（dry_run）、"cpu" 或 "cuda"。写错抛 ValueError，条件不够抛 RuntimeError。"""
    if run_mode not in RUN_MODES:
        raise ValueError(f"RUN_MODE={run_mode!r} 不认识，可选：{', '.join(RUN_MODES)}")
    if profile_id != expected_profile:
        raise ValueError(f"PROFILE_ID={profile_id!r} 不认识，可选：{expected_profile}")
    if run_mode == "dry_run":
        return None
    if not hasattr(torch, "compile"):
        raise RuntimeError("这个 PyTorch 没有 torch.compile，请升级到 2.6 或更新的版本。")
    if run_mode == "real_gpu" and not torch.cuda.is_available():
        raise RuntimeError("RUN_MODE='real_gpu' 需要 CUDA，这里没有检测到。可以改用 RUN_MODE='real_cpu'。")
    return "cuda" if run_mode == "real_gpu" else "cpu"


def result_path(path, device, workload=""):
    """结果文件名：'….json' →（第二种负载）'…_chain.json' →（CPU）'…_cpu.json'。"""
    suffix = (f"_{workload}" if workload else "") + ("_cpu" if device == "cpu" else "")
    return path.removesuffix(".json") + suffix + ".json"
