def p95_nearest_rank(samples):
    """P95，最近秩法，全程整数：rank = ceil(95 n / 100)。samples 非空；单位随输入（本课程用 ms）。"""
    ordered = sorted(samples)
    rank = -(-95 * len(ordered) // 100)  # 整数向上取整，没有浮点误差
    return ordered[rank - 1]


def summarize_ms(samples_ms):
    """一条路径的样本（ms，至少 2 个）→ 中位数、P95、最小值、四分位距。原始样本一起保存，方便复查。"""
    q1, _, q3 = statistics.quantiles(samples_ms, n=4, method="inclusive")
    return {
        "median_ms": statistics.median(samples_ms),
        "p95_ms": p95_nearest_rank(samples_ms),
        "min_ms": min(samples_ms),
        "iqr_ms": q3 - q1,
        "samples_ms": list(samples_ms),
    }
