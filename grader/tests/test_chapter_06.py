"""Chapter 6: its simulator agrees with torch, its tests tell right from wrong, and it runs alone."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.model import Notebook
from grader.tests import chapter_checks
from grader.tests.mutants import framework

NAME = "06_dynamic_shapes"
SAMPLE = "assets/samples/06_dynamic_shapes_cpu.json"
SCHEMA = "dynamic-shapes-v1"
MODES = ("auto", "static", "dynamic")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def chapter() -> framework.Chapter:
    return framework.load(NAME)


def observer_source() -> str:
    """The notebook's own code that asks torch: ``observe_events(sizes, mode, limit)``."""
    observe, compare = (chapter_checks.cell_source(NAME, cell) for cell in ("exp-observe", "exp-compare"))
    return f"import torch\n{observe}\n{compare[: compare.index('demo = ')]}"


@pytest.fixture(scope="module")
def observe() -> Callable[..., list[str]]:
    names: dict[str, Any] = {}
    exec(observer_source(), names)
    return names["observe_events"]


class TestChapter(chapter_checks.ChapterTests):
    name = NAME

    def check_filled(self, done: Notebook) -> None:
        """The simulator agrees with torch in every mode."""
        assert chapter_checks.text(done, "experiment").count("same as your simulator") == len(MODES)


# torch itself


@pytest.mark.parametrize("mode", MODES)
def test_the_simulator_agrees_with_torch_event_by_event(
    chapter: framework.Chapter, observe: Callable[..., list[str]], mode: str
) -> None:
    """Random sequences of sizes and limits through real torch.compile."""
    simulate, rng = chapter.namespace()["simulate_dynamo_cache"], random.Random(mode)
    for _ in range(12):
        sizes, limit = [rng.choice((1, 2, 3, 5, 7, 8)) for _ in range(rng.randint(2, 9))], rng.choice((1, 2, 3, 8))
        assert simulate(sizes, mode, limit) == observe(sizes, mode, limit), (sizes, limit)


def test_torch_would_pass_the_tests_of_todo_1(chapter: framework.Chapter, observe: Callable[..., list[str]]) -> None:
    """Every expected event, visible or hidden, is what torch does."""
    observe([2, 3], "auto")  # imports, outside of the time limit of a test cell
    wrapper = """
def simulate_dynamo_cache(sizes, mode, limit=8):
    if mode not in DYNAMIC:
        raise ValueError(mode)
    return observe_events(sizes, mode, limit)
"""
    asked = framework.Mutant("torch", "", "asks torch", source=observer_source() + wrapper, cell="todo1")
    assert chapter.grade(asked).lost == frozenset()


def _graphs(fn: Callable[[torch.Tensor], Any], inputs: list[torch.Tensor], dynamic: bool | None) -> int:
    """How many graphs torch.compile makes for these calls, from an empty cache."""
    torch._dynamo.reset()
    compiled: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
        compiled.append(graph)
        return graph.forward

    wrapped = torch.compile(fn, backend=backend, dynamic=dynamic)
    for x in inputs:
        wrapped(x)
    return len(compiled)


def test_equal_sizes_share_a_symbol() -> None:
    """The mistake about duck shaping: (4, 4) compiles code that refuses (5, 4); (4, 6) compiles code that takes it."""
    assert _graphs(torch.relu, [torch.ones(4, 4), torch.ones(5, 4)], True) == 2
    assert _graphs(torch.relu, [torch.ones(4, 6), torch.ones(5, 6)], True) == 1


def test_two_wrappers_of_one_function_share_the_limit() -> None:
    """The mistake about the code object: entries of the second wrapper count with those of the first."""
    torch._dynamo.reset()
    counts = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    with torch._dynamo.config.patch(recompile_limit=2):
        for copy in (fn, fn, types.FunctionType(fn.__code__.replace(co_name="other"), globals())):
            compiled: list[Any] = []

            def backend(graph: torch.fx.GraphModule, _: list[Any], made: list[Any] = compiled) -> Callable[..., Any]:
                made.append(graph)
                return graph.forward

            wrapped = torch.compile(copy, backend=backend, dynamic=False)
            wrapped(torch.ones(len(counts) * 2 + 3))
            wrapped(torch.ones(len(counts) * 2 + 4))
            counts.append(len(compiled))
    assert counts == [2, 0, 2], "full for the second wrapper, empty again for another code object"


# statements of the text


def test_the_examples_of_the_text_are_right(chapter: framework.Chapter) -> None:
    names = chapter.namespace()
    simulate, choose = names["simulate_dynamo_cache"], names["choose_buckets"]
    assert simulate([5, 5, 7, 9, 1, 5, 1], "auto") == [
        "new_static", "hit", "new_dynamic", "hit", "new_one", "hit", "hit"
    ]  # fmt: skip
    assert simulate([1, 5, 7], "auto") == ["new_one", "new_dynamic", "hit"]

    def padding(lengths: list[int], buckets: list[int]) -> int:
        return sum(min(b for b in buckets if b >= n) - n for n in lengths)

    first, second = [1] * 6 + [9, 10, 20], [1, 2, 3, 4, 50, 60]
    assert (padding(first, [10, 20]), padding(first, [1, 20]), choose(first, 2)) == (55, 21, [1, 20])
    assert (padding(second, [3, 60]), padding(second, [4, 60]), choose(second, 2)) == (69, 16, [4, 60])
    greedy = [2, 3, 7, 12, 15, 18]
    assert (padding(greedy, [3, 7, 18]), padding(greedy, [3, 12, 18]), choose(greedy, 3)) == (10, 9, [3, 12, 18])
    assert len(set(names["stream"])) == 131


def test_the_compiler_cannot_hit_the_default_limit_when_dynamic(chapter: framework.Chapter) -> None:
    """auto holds at most three entries, dynamic at most two, whatever comes."""
    simulate, rng = chapter.namespace()["simulate_dynamo_cache"], random.Random(0)
    for mode, most in (("auto", 3), ("dynamic", 2)):
        for _ in range(200):
            events = simulate([rng.randint(1, 6) for _ in range(30)], mode)
            assert sum(event.startswith("new_") for event in events) <= most
            assert "eager_limit" not in events


# files and figures


def test_the_recorded_sample_is_valid_and_small() -> None:
    sample = chapter_checks.load_json(SAMPLE)
    chapter_checks.validate(sample, SCHEMA)
    assert sample["hardware"]["device"] and sample["workload"]["backend"] == "inductor"
    assert (framework.ROOT / SAMPLE).stat().st_size < 20_000


def test_the_sample_counts_what_the_simulator_says(chapter: framework.Chapter) -> None:
    """Graphs and eager calls of the recorded run are those that the simulator predicts for its stream."""
    names, sample = chapter.namespace(), chapter_checks.load_json(SAMPLE)
    lengths, buckets = sample["stream"]["lengths"], sample["stream"]["buckets"]
    padded = [names["bucket_for"](n, buckets) for n in lengths]
    rows = {row["strategy"]: row for row in sample["strategies"]}
    for name, sizes, mode in (
        ("auto", lengths, "auto"),
        ("dynamic", lengths, "dynamic"),
        ("static", lengths, "static"),
        ("buckets", padded, "static"),
    ):
        events = names["simulate_dynamo_cache"](sizes, mode)
        assert rows[name]["graphs"] == sum(event.startswith("new_") for event in events)
        assert rows[name]["eager_calls"] == events.count("eager_limit")
    assert names["choose_buckets"](lengths, 4) == buckets
    assert sum(padded) == sample["stream"]["padded_tokens"]


def test_the_plot_shows_the_numbers_of_the_file() -> None:
    """The axes' data, not pixels; English text only."""
    names = chapter_checks.plot_names(NAME, "exp-plot-parts", "exp-plot")
    sample = chapter_checks.load_json(SAMPLE)
    figure = names["plot_stream"](sample)
    warm, total = figure.axes
    rows = sample["strategies"]
    assert [bar.get_height() for bar in warm.patches] == [row["warm"]["median_ms"] for row in rows]
    for line, row in zip(total.lines, rows, strict=True):
        assert line.get_label() == row["strategy"]
        assert line.get_ydata()[0] == row["cold_ms"] / 1e3
    assert sample["hardware"]["device"] in figure.get_suptitle()
    chapter_checks.check_words_are_english(figure)
    names["plt"].close(figure)


@pytest.mark.parametrize(
    ("cold", "warm", "eager", "streams"), [(100, 10, 30, 5), (20, 10, 30, 1), (100, 30, 30, None), (31, 1, 30, 2)]
)
def test_break_even_counts_whole_streams(cold: float, warm: float, eager: float, streams: int | None) -> None:
    names: dict[str, Any] = {"math": __import__("math")}
    exec(chapter_checks.cell_source(NAME, "exp-row"), names)
    found = names["break_even_streams"](cold, warm, eager)
    assert found == streams
    if found is not None:
        assert cold + (found - 1) * warm <= found * eager
        assert found == 1 or cold + (found - 2) * warm > (found - 1) * eager


@pytest.mark.slow
def test_real_run_on_the_cpu_writes_a_valid_file(tmp_path: Path) -> None:
    """Each strategy compiles what the text says, and the reader shows the decision."""
    settings: dict[str, Any] = {"GPU_REQUESTS": 40, "GPU_HIDDEN_SIZE": 64, "GPU_ROUNDS": 3}
    report, done = chapter_checks.run_for_real(
        NAME, tmp_path, "inf_dynamic_shapes_stream_default_cpu.json", SCHEMA, **settings
    )
    rows = {row["strategy"]: row for row in report["strategies"]}
    assert all(row["output_close"] for row in rows.values())
    assert [rows[name]["graphs"] for name in ("eager", "auto", "dynamic", "static", "buckets")] == [0, 2, 1, 8, 4]
    assert rows["eager"]["eager_calls"] == 40 and rows["static"]["eager_calls"] > 0
    assert f"decision: {report['decision']}" in chapter_checks.text(done, "reader")
