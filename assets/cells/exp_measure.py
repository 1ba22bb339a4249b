def measure_pair(a, b, device="cpu", warmup=10, repeats=30, rounds=4, seed=0):
    """配对比较两个无参函数。→ {"a", "b": 各自统计, "speedup" = a/b, 区间, 噪声带, verdict, drift_ratio}。

    预热 warmup 次，再测 rounds 轮，每轮 repeats 对 (a, b)，接着 repeats 对 A/A 对照。时间单位 ms。
    对照不夹在每一对中间：那样 a 的调用是 b 的三倍，b 总是刚被挤出缓存，会显得偏慢。
    """
    rng, flush, ab, aa = random.Random(seed), make_cache_flusher(device), [], []
    with torch.inference_mode(), one_cpu_thread():
        for _ in range(warmup):
            a()
            b()
        for _ in range(rounds):
            ab += [time_pair(a, b, device, flush, rng) for _ in range(repeats)]
            aa += [time_pair(a, a, device, flush, rng) for _ in range(repeats)]
    return compare_pairs(ab, aa, repeats, seed)


def compare_pairs(ab, aa, repeats, seed):
    """ab、aa：每一对是 ((时间, 墙钟), (时间, 墙钟))，ms → measure_pair 的结果。纯函数，可以用手写数据检验。"""
    a_ms, b_ms = [a[0] for a, _ in ab], [b[0] for _, b in ab]
    aa_ci95 = ratio_ci95([a[0] for a, _ in aa], [b[0] for _, b in aa], seed)
    ci95, band = ratio_ci95(a_ms, b_ms, seed), noise_band_of(aa_ci95)
    return {
        "a": summarize_ms(a_ms) | {"wall_median_ms": statistics.median(a[1] for a, _ in ab)},
        "b": summarize_ms(b_ms) | {"wall_median_ms": statistics.median(b[1] for _, b in ab)},
        "speedup": statistics.median(a_ms) / statistics.median(b_ms),
        "speedup_ci95": ci95,
        "aa_ratio_ci95": aa_ci95,
        "noise_band": band,
        "verdict": verdict_from_ci(ci95, band),
        "drift_ratio": statistics.median(a_ms[-repeats:]) / statistics.median(a_ms[:repeats]),  # 末轮 / 首轮
    }
