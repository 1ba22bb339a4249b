"""Chapter 3: its tests tell right from wrong, its text and files agree, and it runs alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from grader.tests import chapter_checks
from grader.tests.mutants import framework

NAME = "03_flash_attention"
MODULE = framework.mutants_of("mutants_03")
SAMPLE = "assets/samples/03_flash_attention_cpu.json"
SCHEMA = "assets/schema/attention-backends-v1.schema.json"
TESTS_OF_TYPE_AND_SHAPE = {"todo1_shape", "todo2_shape"}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As in the sandbox; with more, tiny tensors spend their time waiting for the other thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def chapter() -> framework.Chapter:
    return framework.load(NAME)


def test_the_reference_earns_all_points(chapter: framework.Chapter) -> None:
    report = chapter.grade()
    assert not report.lost
    assert report.score == sum(cell.points for cell in chapter.tests) == 100


@pytest.mark.parametrize("unfilled", [{1}, {2}, {3}, {1, 2, 3}], ids=str)
def test_an_unfilled_todo_earns_nothing_and_is_named(chapter: framework.Chapter, unfilled: set[int]) -> None:
    """And costs no other TODO, although tiled_attention calls TODO 1."""
    report = chapter.grade(unfilled=unfilled)
    for cell in chapter.tests:
        outcome = report[cell.grade_id]
        if cell.todo in unfilled:
            assert (outcome.score, outcome.error) == (0, "NotImplementedError")
            assert f"TODO {cell.todo}" in outcome.message
        else:
            assert outcome.score == cell.points


@pytest.mark.parametrize("mutant", MODULE.MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mistake_is_caught_by_the_test_that_names_it(chapter: framework.Chapter, mutant: framework.Mutant) -> None:
    chapter_checks.check_caught(chapter, mutant)


def test_visible_tests_catch_most_mistakes() -> None:
    chapter_checks.check_mutants(framework.load(NAME), MODULE.MUTANTS)


def test_few_mistakes_are_caught_by_type_and_shape_alone(chapter: framework.Chapter) -> None:
    alone = [mutant.name for mutant in MODULE.MUTANTS if chapter.grade(mutant).lost <= TESTS_OF_TYPE_AND_SHAPE]
    assert len(alone) <= 5


@pytest.mark.parametrize("variant", MODULE.VARIANTS, ids=lambda variant: variant.name)
def test_other_styles_keep_all_points(chapter: framework.Chapter, variant: framework.Mutant) -> None:
    assert chapter.grade(variant).lost == frozenset()


@pytest.mark.parametrize(
    ("name", "wrong_scale"),
    [("t2_no_scale", "没有乘缩放"), ("t2_scale_by_d", "用了 1/d"), ("t2_scale_by_dv", "用了 1/sqrt(dv)")],
)
def test_the_message_names_the_wrong_scale(chapter: framework.Chapter, name: str, wrong_scale: str) -> None:
    mutant = next(mutant for mutant in MODULE.MUTANTS if mutant.name == name)
    assert wrong_scale in chapter.grade(mutant)["todo2_scale"].message


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("t2_causal_excludes_itself", "少看了自己"),
        ("t2_causal_sees_one_ahead", "多看了一个未来位置"),
        ("t2_causal_ignored", "没有遮"),
    ],
)
def test_the_message_names_the_causal_mistake(chapter: framework.Chapter, name: str, cause: str) -> None:
    mutant = next(mutant for mutant in MODULE.MUTANTS if mutant.name == name)
    assert cause in chapter.grade(mutant)["todo2_causal"].message


# statements of the text


def test_the_solution_agrees_with_pytorch(chapter: framework.Chapter) -> None:
    """Bottom-right alignment is SDPA's own causal_lower_right mask; Nq = Nk agrees with is_causal."""
    tiled, rng = chapter.namespace()["tiled_attention"], torch.Generator().manual_seed(0)
    for nq, nk in ((7, 7), (3, 8)):
        q, k, v = (torch.randn(n, 4, generator=rng) for n in (nq, nk, nk))
        mask = torch.ones(nq, nk, dtype=torch.bool).tril(nk - nq)
        want = torch.nn.functional.scaled_dot_product_attention(
            q[None, None], k[None, None], v[None, None], attn_mask=mask
        )
        torch.testing.assert_close(tiled(q, k, v, 3, True), want[0, 0])


def test_the_hand_calculation_of_step_2_is_right(chapter: framework.Chapter) -> None:
    update = chapter.namespace()["online_softmax_update"]
    state = torch.tensor([float("-inf")]), torch.zeros(1), torch.zeros(1, 1)
    rounded = []
    for scores, values in (([[2.0, 1.0]], [[1.0], [2.0]]), ([[4.0]], [[3.0]])):
        state = update(*state, torch.tensor(scores), torch.tensor(values))
        rounded.append([round(x.item(), 4) for x in (*state, state[2] / state[1])])
    assert rounded == [[2.0, 1.3679, 1.7358, 1.2689], [4.0, 1.1851, 3.2349, 2.7296]]


def test_the_figures_of_step_4_are_right(chapter: framework.Chapter) -> None:
    count = chapter.namespace()["attention_io_bytes"]
    assert count(8, 2, 24, 1) == {"standard": 320, "flash": 128}
    ratios = [count(4096, 64, sram, 2) for sram in (49152, 1024)]
    assert [round(r["standard"] / r["flash"], 1) for r in ratios] == [5.7, 0.1]
    assert round(ratios[1]["flash"] / ratios[1]["standard"], 1) == 7.9


def test_what_falls_back_to_math_is_what_the_text_says(tmp_path: Path) -> None:
    """The cell asks PyTorch; the text names four inputs that take flash and four that do not."""
    done = chapter_checks.run_notebook(chapter_checks.master(NAME), tmp_path)
    assert "✅" in chapter_checks.text(done, "summary")
    printed = chapter_checks.text(done, "experiment")
    paths = {
        line[:18].strip(): line[19:25].strip()
        for line in printed.splitlines()
        if line[19:25].strip() in ("flash", "math")
    }
    flash = {"plain", "causal", "attn_mask", "decode, Nq=1"}
    assert {name for name, path in paths.items() if path == "flash"} == flash
    assert {name for name, path in paths.items() if path == "math"} == {
        "dropout_p=0.1",
        "3-D input",
        "d=32, dv=16",
        "last stride not 1",
    }
    assert "dry_run" in printed
    assert chapter_checks.has_figure(done)
    assert not (tmp_path / "benchmarks").exists()


# files and figures


def test_the_recorded_sample_is_valid_and_small() -> None:
    sample = chapter_checks.load_json(SAMPLE)
    jsonschema.Draft202012Validator(chapter_checks.load_json(SCHEMA)).validate(sample)
    assert sample["hardware"]["device"]
    assert sample["summary"]["paths_confirmed"]
    assert 1 in sample["summary"]["faster_token_counts"], "the text explains why N = 1 is faster in the sample"
    assert (framework.ROOT / SAMPLE).stat().st_size < 20_000


def _plot_functions() -> dict[str, Any]:
    import matplotlib

    matplotlib.use("Agg")
    cells = {cell["id"]: cell["source"] for cell in chapter_checks.master(NAME)["cells"]}
    source = cells["exp-plot-parts"] + "\n" + cells["exp-plot"]
    names: dict[str, Any] = {"plt": __import__("matplotlib.pyplot").pyplot}
    exec(source[: source.index("\npath, report = ")], names)
    return names


def test_the_plot_shows_the_numbers_of_the_file() -> None:
    """The axes' data, not pixels; English text only."""
    names, sample = _plot_functions(), chapter_checks.load_json(SAMPLE)
    figure = names["plot_attention"](sample)
    times, speedups = figure.axes
    rows = sample["candidate_matrix"]
    wanted = [[row[path][key] for row in rows] for path in ("math", "flash") for key in ("median_ms", "p95_ms")]
    assert [list(line.get_ydata()) for line in times.lines] == wanted
    assert list(speedups.lines[0].get_ydata()) == [row["speedup"] for row in rows]
    assert sample["hardware"]["device"] in figure.get_suptitle()
    words = [axis.get_title() + axis.get_xlabel() + axis.get_ylabel() for axis in figure.axes]
    assert "".join(words).isascii()
    names["plt"].close(figure)


# the notebook as a whole


def test_runs_alone_unfilled(tmp_path: Path) -> None:
    """The student's edition in an empty folder: the only errors are the three reminders, and the figure is there."""
    done = chapter_checks.run_notebook(chapter_checks.tolerant(chapter_checks.student(NAME)), tmp_path)
    found = chapter_checks.errors(done)
    assert {kind for kind, _ in found} == {"NotImplementedError"}
    assert {message[:12] for _, message in found} == {f"请先完成 TODO {n}：" for n in (1, 2, 3)}
    assert chapter_checks.has_figure(done)


def test_real_run_on_the_cpu_writes_a_valid_file(tmp_path: Path) -> None:
    """The file is valid, the reader shows it, and the plot draws it in place of the sample."""
    settings: dict[str, Any] = {"RUN_MODE": "real_cpu", "GPU_TOKEN_COUNTS": [1, 64], "GPU_REPEATS": 5, "GPU_ROUNDS": 2}
    done = chapter_checks.run_notebook(chapter_checks.master(NAME), tmp_path, **settings)
    report = chapter_checks.load_json(tmp_path / "benchmarks/results/inf_flash_attention_sdpa_default_cpu.json")
    jsonschema.Draft202012Validator(chapter_checks.load_json(SCHEMA)).validate(report)
    assert [row["token_count"] for row in report["candidate_matrix"]] == [1, 64]
    assert report["summary"]["correctness_passed"] and report["summary"]["paths_confirmed"]
    assert f"decision: {report['decision']}" in chapter_checks.text(done, "reader")
    assert "样例" not in chapter_checks.text(done, "plot")
    assert chapter_checks.has_figure(done)
