"""Chapter 3: its tests tell right from wrong, its text and files agree, and it runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grader.model import Notebook
from grader.tests import chapter_checks
from grader.tests.mutants import framework

NAME = "03_flash_attention"
MODULE = framework.mutants_of(NAME)
SAMPLE = "assets/samples/03_flash_attention_cpu.json"
SCHEMA = "attention-backends-v1"


@pytest.fixture(scope="module")
def chapter() -> framework.Chapter:
    return framework.load(NAME)


class TestChapter(chapter_checks.ChapterTests):
    name = NAME

    def check_filled(self, done: Notebook) -> None:
        """What falls back to math is what the text says: four inputs take flash, four do not."""
        printed = chapter_checks.text(done, "experiment")
        paths = {line[:18].strip(): line[19:25].strip() for line in printed.splitlines()}
        assert {name for name, path in paths.items() if path == "flash"} == {
            "plain", "causal", "attn_mask", "decode, Nq=1"
        }  # fmt: skip
        assert {name for name, path in paths.items() if path == "math"} == {
            "dropout_p=0.1", "3-D input", "d=32, dv=16", "last stride not 1"
        }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "wrong_scale"),
    [("t2_no_scale", "没有乘缩放"), ("t2_scale_by_d", "用了 1/d"), ("t2_scale_by_dv", "用了 1/sqrt(dv)")],
)
def test_the_message_names_the_wrong_scale(chapter: framework.Chapter, name: str, wrong_scale: str) -> None:
    mutant = next(mutant for mutant in MODULE.MUTANTS if mutant.name == name)
    assert wrong_scale in chapter_checks.report_of(chapter, mutant)["todo2_scale"].message


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
    assert cause in chapter_checks.report_of(chapter, mutant)["todo2_causal"].message


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


# files and figures


def test_the_recorded_sample_is_valid_and_small() -> None:
    sample = chapter_checks.load_json(SAMPLE)
    chapter_checks.validate(sample, SCHEMA)
    assert sample["hardware"]["device"]
    assert sample["summary"]["paths_confirmed"]
    assert 1 in sample["summary"]["faster_token_counts"], "the text explains why N = 1 is faster in the sample"
    assert (framework.ROOT / SAMPLE).stat().st_size < 20_000


def test_the_plot_shows_the_numbers_of_the_file() -> None:
    """The axes' data, not pixels; English text only."""
    names = chapter_checks.plot_names(NAME, "exp-plot-parts", "exp-plot")
    sample = chapter_checks.load_json(SAMPLE)
    figure = names["plot_attention"](sample)
    times, speedups = figure.axes
    rows = sample["candidate_matrix"]
    wanted = [[row[path][key] for row in rows] for path in ("math", "flash") for key in ("median_ms", "p95_ms")]
    assert [list(line.get_ydata()) for line in times.lines] == wanted
    assert list(speedups.lines[0].get_ydata()) == [row["speedup"] for row in rows]
    assert sample["hardware"]["device"] in figure.get_suptitle()
    chapter_checks.check_words_are_english(figure)
    names["plt"].close(figure)


@pytest.mark.slow
def test_real_run_on_the_cpu_writes_a_valid_file(tmp_path: Path) -> None:
    """And the reader shows it."""
    settings: dict[str, Any] = {"GPU_TOKEN_COUNTS": [1, 64], "GPU_REPEATS": 5, "GPU_ROUNDS": 2}
    report, done = chapter_checks.run_for_real(
        NAME, tmp_path, "inf_flash_attention_sdpa_default_cpu.json", SCHEMA, **settings
    )
    assert [row["token_count"] for row in report["candidate_matrix"]] == [1, 64]
    assert report["summary"]["correctness_passed"] and report["summary"]["paths_confirmed"]
    assert f"decision: {report['decision']}" in chapter_checks.text(done, "reader")
