def cpu_name():
    """CPU 型号；读不到就写架构名。"""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def describe_hardware(device):
    on_gpu = device == "cuda"
    return {
        "device": torch.cuda.get_device_name(0) if on_gpu else cpu_name(),
        "torch_version": torch.__version__,
        "cuda": torch.version.cuda if on_gpu else None,
    }


def describe_environment():
    """复现需要的环境，不含主机名、用户名和路径。"""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu_count": os.cpu_count(),
        "cxx_found": any(shutil.which(name) for name in ("g++", "clang++", "cl")),
    }


def measurement_notes(device):
    """计时方法里跟设备有关的部分。"""
    if device == "cuda":
        return {"clock": "cuda_events_and_wall", "cache": "l2_flushed", "order": "random_pairs_with_aa_control"}
    return {"clock": "perf_counter", "cache": "hot", "order": "random_pairs_with_aa_control", "threads": 1}
