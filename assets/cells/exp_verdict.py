def ratio_ci95(a_ms, b_ms, seed=0, resamples=1000):
    """median(a) / median(b) 的 95% 区间 [low, high]，配对 bootstrap：重抽的是“一对”，不是单次调用。"""
    rng, n = random.Random(seed), len(a_ms)
    ratios = []
    for _ in range(resamples):
        picks = rng.choices(range(n), k=n)
        ratios.append(statistics.median(a_ms[i] for i in picks) / statistics.median(b_ms[i] for i in picks))
    ratios.sort()
    tail = resamples * 25 // 1000  # 两端各去掉 2.5%
    return [ratios[tail], ratios[-1 - tail]]


def noise_band_of(aa_ci95, floor=0.05):
    """A/A 对照（同一个函数跟自己比）偏离 1 的幅度，至少 5%。比它小的差别一律算噪声。"""
    low, high = aa_ci95
    return max(floor, high - 1, 1 / low - 1)


def verdict_from_ci(ci95, band):
    """整个区间都越过噪声带才下结论；a、b 对调时 faster 与 slower 正好互换。"""
    low, high = ci95
    if low > 1 + band:
        return "faster"
    return "slower" if high < 1 / (1 + band) else "tie"
