"""The statistics of the experiment: percentile, interval, noise band, verdict, on data whose answer is known."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.tests.experiment_support import CHAIN_SAMPLE, SWIGLU_SAMPLE, sample, shared, step5_cells


def noisy(rng: random.Random, n: int, centre: float = 1.0) -> list[float]:
    return [centre * rng.lognormvariate(0, 0.1) for _ in range(n)]


@pytest.mark.parametrize(
    ("n", "expected"),
    [(1, 1), (2, 2), (19, 19), (20, 19), (21, 20), (40, 38), (100, 95), (101, 96), (120, 114)],
)
def test_p95_is_nearest_rank_in_integers(n: int, expected: int) -> None:
    """ceil(95 n / 100) of 1..n. At n = 20, 40 and 100 `int(0.95 * n) + 1` is one rank too high."""
    values = list(range(1, n + 1))
    random.Random(0).shuffle(values)
    assert shared()["p95_nearest_rank"](values) == expected


def test_summary_is_order_free_and_keeps_the_samples() -> None:
    summary = shared()["summarize_ms"]([4.0, 1.0, 3.0, 2.0, 5.0])
    assert {k: summary[k] for k in ("median_ms", "p95_ms", "min_ms", "iqr_ms")} == {
        "median_ms": 3.0,
        "p95_ms": 5.0,
        "min_ms": 1.0,
        "iqr_ms": 2.0,
    }
    assert summary["samples_ms"] == [4.0, 1.0, 3.0, 2.0, 5.0]


def test_bootstrap_repeats_itself_and_follows_the_seed() -> None:
    rng = random.Random(1)
    a, b = noisy(rng, 120, 1.2), noisy(rng, 120)
    interval = shared()["ratio_ci95"]
    assert interval(a, b, seed=3) == interval(a, b, seed=3)
    assert interval(a, b, seed=3) != interval(a, b, seed=4)


def test_bootstrap_covers_the_true_ratio() -> None:
    """95 % intervals of 60 data sets: the true ratio 1.2 lies in nearly all, and they exclude 1."""
    rng = random.Random(2)
    intervals = [shared()["ratio_ci95"](noisy(rng, 120, 1.2), noisy(rng, 120), seed=i) for i in range(60)]
    assert sum(low <= 1.2 <= high for low, high in intervals) >= 52
    assert all(low > 1 for low, _ in intervals)


def test_bootstrap_resamples_pairs() -> None:
    """A machine that is slow for a while slows both of a pair: the ratio is exact although each side varies tenfold."""
    shared_load = [random.Random(3).uniform(1, 10) for _ in range(120)]
    low, high = shared()["ratio_ci95"]([2 * x for x in shared_load], shared_load)
    assert low == pytest.approx(2) and high == pytest.approx(2)


@pytest.mark.parametrize(
    ("aa_ci95", "band"),
    [([1.0, 1.0], 0.05), ([0.99, 1.02], 0.05), ([0.98, 1.2], 0.2), ([0.5, 1.1], 1.0)],
)
def test_noise_band_is_at_least_five_percent_and_symmetric(aa_ci95: list[float], band: float) -> None:
    assert shared()["noise_band_of"](aa_ci95) == pytest.approx(band)
    swapped = [1 / aa_ci95[1], 1 / aa_ci95[0]]
    assert shared()["noise_band_of"](swapped) == pytest.approx(band)


@pytest.mark.parametrize(
    ("ci95", "band", "verdict"),
    [
        ([1.051, 1.3], 0.05, "faster"),
        ([1.05, 1.3], 0.05, "tie"),  # on the edge is not beyond it
        ([1.051, 1.3], 0.2, "tie"),  # the A/A control was worse than that
        ([0.99, 1.9], 0.05, "tie"),
        ([0.7, 0.95], 0.05, "slower"),
        ([0.7, 0.953], 0.05, "tie"),
        ([0.5, 2.0], 0.05, "tie"),
        ([float("nan"), float("nan")], 0.05, "tie"),
    ],
)
def test_verdict(ci95: list[float], band: float, verdict: str) -> None:
    assert shared()["verdict_from_ci"](ci95, band) == verdict


def test_verdict_mirrors_when_the_paths_are_swapped() -> None:
    verdict, mirror = shared()["verdict_from_ci"], {"faster": "slower", "slower": "faster", "tie": "tie"}
    rng = random.Random(4)
    for _ in range(200):
        low, high = sorted((rng.uniform(0.5, 2), rng.uniform(0.5, 2)))
        assert verdict([1 / high, 1 / low], 0.07) == mirror[verdict([low, high], 0.07)]


def test_a_function_against_itself_is_never_faster() -> None:
    """A/A pairs with 10 % noise, a drift and bursts, 60 experiments: the naive rule accepts most, ours none."""
    rng, naive, ours = random.Random(5), 0, 0
    for seed in range(60):
        load = [1 + i / 400 + (3 if 40 <= i < 50 else 0) for i in range(120)]
        pairs = [((x * noisy(rng, 1)[0], 0.0), (x * noisy(rng, 1)[0], 0.0)) for x in load]
        control = [((x * noisy(rng, 1)[0], 0.0), (x * noisy(rng, 1)[0], 0.0)) for x in load]
        result = shared()["compare_pairs"](pairs, control, repeats=30, seed=seed)
        ours += result["verdict"] == "faster"
        naive += result["speedup"] > 1
    assert ours == 0
    assert naive > 15


def test_a_faster_b_is_found_and_drift_is_told() -> None:
    rng = random.Random(6)
    load = [1.0] * 30 + [2.0] * 90  # the machine slows down after the first round
    pairs = [((1.4 * x * noisy(rng, 1)[0], 7.0), (x * noisy(rng, 1)[0], 9.0)) for x in load]
    control = [((x * noisy(rng, 1)[0], 0.0), (x * noisy(rng, 1)[0], 0.0)) for x in load]
    result = shared()["compare_pairs"](pairs, control, repeats=30, seed=0)
    assert result["verdict"] == "faster"
    assert result["speedup"] == pytest.approx(result["a"]["median_ms"] / result["b"]["median_ms"])
    assert result["drift_ratio"] == pytest.approx(2, rel=0.15)
    assert (result["a"]["wall_median_ms"], result["b"]["wall_median_ms"]) == (7.0, 9.0)


def test_both_orders_of_a_pair_occur_and_each_time_goes_to_its_side() -> None:
    """With a clock that returns what the callable returns, a swap of the two sides would show."""
    source = next(source for slug, _, source in step5_cells() if slug == "exp-pairs")
    cells = dict(shared())
    exec(compile(source, "exp-pairs", "exec"), cells)
    cells["time_call"] = lambda fn, device, flush: fn()
    order: list[str] = []

    def path(name: str) -> Callable[[], str]:
        return lambda: order.append(name) or name

    for seed in range(20):
        pair = cells["time_pair"](path("a"), path("b"), "cpu", lambda: None, random.Random(seed))
        assert pair == ("a", "b")
    assert set(order[::2]) == {"a", "b"}


def test_the_same_seed_gives_the_same_order() -> None:
    def order_of(seed: int) -> list[str]:
        calls: list[str] = []
        shared()["measure_pair"](lambda: calls.append("a"), lambda: calls.append("b"), warmup=0, repeats=5, seed=seed)
        return calls

    assert order_of(7) == order_of(7)
    assert order_of(7) != order_of(8)


def test_every_pair_has_its_control_and_warm_up_comes_first() -> None:
    """As many (a, a) pairs as (a, b) pairs: 3 calls of a for 1 of b, after the warm-up."""
    calls: list[str] = []
    result = shared()["measure_pair"](
        lambda: calls.append("a"), lambda: calls.append("b"), warmup=4, repeats=10, rounds=3
    )
    assert calls[:8] == ["a", "b"] * 4
    assert (calls[8:].count("a"), calls[8:].count("b")) == (90, 30)
    assert len(result["a"]["samples_ms"]) == len(result["b"]["samples_ms"]) == 30


@pytest.mark.parametrize("path", [SWIGLU_SAMPLE, CHAIN_SAMPLE], ids=lambda path: path.stem)
def test_recorded_numbers_follow_from_the_recorded_samples(path: Path) -> None:
    """Medians, P95, speed-up, interval and verdict of the recorded result, computed again."""
    report, cells = sample(path), shared()
    for row in report["candidate_matrix"]:
        a, b = row["eager"]["samples_ms"], row["compiled"]["samples_ms"]
        assert len(a) == len(b) >= 100
        for side, values in (("eager", a), ("compiled", b)):
            expected = cells["summarize_ms"](values)
            assert {key: row[side][key] for key in expected} == expected
        assert row["speedup"] == statistics.median(a) / statistics.median(b)
        assert row["speedup_ci95"] == pytest.approx(cells["ratio_ci95"](a, b, report["extension"]["seed"]))
        assert row["noise_band"] == cells["noise_band_of"](row["aa_ratio_ci95"])
        assert row["verdict"] == cells["verdict_from_ci"](row["speedup_ci95"], row["noise_band"])
