"""Chapter 5: its tests tell right from wrong, its recorded graph is what torch exports today, and it runs alone."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from grader.tests import chapter_checks
from grader.tests.mutants import framework

NAME = "05_graph_capture"
MODULE = framework.mutants_of(NAME)
BLOCK = "assets/samples/05_llama_block.json"
SAMPLE = "assets/samples/05_graph_capture_cpu.json"
SCHEMA = "graph-capture-v1"


@pytest.fixture(scope="module")
def chapter() -> framework.Chapter:
    return framework.load(NAME)


@pytest.fixture(scope="module")
def experiment() -> dict[str, Any]:
    """The names of the notebook's experiment cells over the reference solutions, in dry_run."""
    recorder = runpy.run_path(str(framework.ROOT / "assets/samples/05_record.py"))
    return recorder["experiment_names"](framework.load(NAME).namespace())


class TestChapter(chapter_checks.ChapterTests):
    name = NAME


RULES_STATED = {
    "t1_last_input": "也只看第 0 个",
    "t1_no_get_attr": "`placeholder` 或 `get_attr` 的，角色是 `'input'`",
    "t1_target_first": "`placeholder` 或 `get_attr` 的，角色是 `'input'`",
    "t1_in_place": "不改 `nodes` 和两张表",
    "t2_index_error": "没有那么多输入，就不匹配",
    "t2_wraps": "没有那么多输入，就不匹配",
    "t2_consumes_pattern": "不改 `graph`、`pattern`",
    "t3_convex_only": "把已经收下的每个组、再加上正在考虑的这一个，各缩成一个点",
    "t3_sorts_matches": "也不给它们排序",
}


def test_each_rule_that_only_a_hidden_test_checks_is_stated_before_its_todo(chapter: framework.Chapter) -> None:
    hidden = {mutant.name for mutant in MODULE.MUTANTS if not chapter.grade(mutant, hidden_tests=False).lost}
    assert set(RULES_STATED) == hidden
    cells = chapter_checks.master(NAME)["cells"]
    for name, phrase in RULES_STATED.items():
        end = next(i for i, cell in enumerate(cells) if cell["id"] == f"todo{name[1]}")
        assert any(phrase in cell["source"] for cell in cells[:end] if cell["cell_type"] == "markdown"), name


def test_what_is_graded_needs_no_torch(chapter: framework.Chapter) -> None:
    assert chapter_checks.imports(chapter) == {"copy", "itertools", "json", "random"}


def test_the_recorded_graph_is_what_torch_exports_today(experiment: dict[str, Any]) -> None:
    """Node by node. After an upgrade of torch that changes it: record again, then reread the chapter's numbers."""
    import torch

    nodes = experiment["record_nodes"](torch.export.export(*experiment["make_case"](1, "cpu")))
    assert nodes == chapter_checks.load_json(BLOCK)["nodes"]


def test_the_exported_program_computes_what_the_model_computes(experiment: dict[str, Any]) -> None:
    """And the weights of the norms matter, so a graph that dropped them would differ."""
    import torch

    model, args = experiment["make_case"](1, "cpu")
    exported = torch.export.export(model, args).module()
    with torch.no_grad():
        expected = model(*args)
        assert torch.allclose(exported(*args), expected, atol=1e-6)
        torch.nn.init.ones_(model.layers[0].norm2.weight)
        assert not torch.allclose(model(*args), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("writing", "order", "found"),
    [
        ("silu(self.gate(n)) * self.up(n)", ["linear", "silu", "linear", "mul"], False),
        ("(lambda u: silu(self.gate(n)) * u)(self.up(n))", ["linear", "linear", "silu", "mul"], True),
        ("self.up(n) * silu(self.gate(n))", ["linear", "linear", "silu", "mul"], True),
    ],
)
def test_the_table_of_three_ways_to_write_swiglu(
    experiment: dict[str, Any], writing: str, order: list[str], found: bool
) -> None:
    """The list of chapter 4 finds two of them, the graph all three."""
    import torch

    class Mlp(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)

        def forward(self, n: torch.Tensor) -> torch.Tensor:
            return eval(writing, {"silu": torch.nn.functional.silu, "self": self, "n": n})

    nodes = experiment["record_nodes"](torch.export.export(Mlp(), (torch.ones(2, 4),)))
    targets = [node["target"] for node in nodes if node["op"] == "call_function"]
    assert [target.split(".")[1] for target in targets] == order
    pattern = ("aten.linear.default", "aten.silu.default", "aten.mul.Tensor")
    assert bool(experiment["scan"](targets, pattern)) is found
    swiglu = next(pattern for pattern in experiment["PATTERNS"] if pattern["name"] == "swiglu")
    assert len(experiment["match_dag"](experiment["normalize_graph"](nodes), swiglu)) == 1


def test_the_list_finds_no_swiglu_in_the_recorded_block(experiment: dict[str, Any]) -> None:
    targets = [node["target"] for node in experiment["BLOCK_NODES"] if node["op"] == "call_function"]
    assert experiment["scan"](targets, ("aten.linear.default", "aten.silu.default", "aten.mul.Tensor")) == []


def test_the_text_says_what_the_sample_holds() -> None:
    """The table of 5.4 and the times around it."""
    sample = chapter_checks.load_json(SAMPLE)
    text = next(cell["source"] for cell in chapter_checks.master(NAME)["cells"] if cell["id"] == "step-5-4")
    one, two = sample["rows"]
    for label, key in (
        ("导出的节点", "node_count"),
        ("归并后的节点", "normalized_count"),
        ("分解后的节点", "decomposed_count"),
    ):
        assert f"| {label} | {one[key]} | {two[key]} |" in text
    for pattern in ("swiglu", "add_rms_norm", "rope"):
        assert f"| `{pattern}` | {one['groups'][pattern]} | {two['groups'][pattern]} |" in text
    assert [set(row["decomposed_groups"]) for row in (one, two)] == [{"rope"}, {"rope"}]
    assert f"| {one['decomposed_groups']['rope']}（都是 `rope`） | {two['decomposed_groups']['rope']}（都是" in text
    assert f"第一次导出 {one['export_ms']:.0f} ms，第二次只要 {two['export_ms']:.0f} ms" in text
    assert f"`max_abs_error` 是 {one['max_abs_error']}" in text and one["max_abs_error"] == two["max_abs_error"]


def test_the_sample_is_valid_small_and_what_the_reference_finds(experiment: dict[str, Any]) -> None:
    """The four groups and three refusals that the text explains."""
    sample = chapter_checks.load_json(SAMPLE)
    chapter_checks.validate(sample, SCHEMA)
    assert (framework.ROOT / SAMPLE).stat().st_size < 20_000 and sample["same_as_recorded"] is True
    graph, result = experiment["find_groups"](experiment["BLOCK_NODES"])
    assert (sample["graph"], sample["groups"], sample["refused"]) == (graph, result["groups"], result["refused"])
    assert [item["pattern"] for item in result["groups"]] == ["swiglu", "add_rms_norm", "rope", "rope"]
    assert {item["pattern"]: item["reasons"] for item in result["refused"]} == {
        "two_residuals": ["would_create_cycle"],
        "silu_mul": ["overlap"],
        "add_rms_norm_1out": ["escaping_intermediate"],
    }


def test_the_schema_refuses_broken_files() -> None:
    import jsonschema

    sample = chapter_checks.load_json(SAMPLE)
    for broken in (
        {**sample, "evidence_level": "kernel_observed"},
        {**sample, "rows": []},
        {**sample, "refused": [{"pattern": "p", "nodes": ["a"], "reasons": []}]},
        {key: value for key, value in sample.items() if key != "graph"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            chapter_checks.validate(broken, SCHEMA)


def test_the_plot_shows_every_operator_once_in_the_colour_of_its_group() -> None:
    """The axes' data, not pixels: boxes don't overlap, edges go down, groups differ by number as well as by colour."""
    names = chapter_checks.plot_names(NAME, "plot-layout", "plot-function", "plot-figure")
    sample = chapter_checks.load_json(SAMPLE)
    figure = names["plot_capture"](sample, "Recorded sample. ")
    axis, side = figure.axes
    boxes = {patch.get_gid(): patch for patch in axis.patches if patch.get_gid()}
    operators = {node["id"]: node for node in sample["graph"]["nodes"] if node["role"] != "input"}
    assert set(boxes) == set(operators)
    number_of = {name: number for number, item in enumerate(sample["groups"], 1) for name in item["nodes"]}
    colors = {}
    labels = sorted(text.get_text() for text in axis.texts if text.get_text())
    assert labels == sorted(
        node["role"] + (f"  [{number_of[name]}]" if name in number_of else "") for name, node in operators.items()
    )
    for name, box in boxes.items():
        colors.setdefault(number_of.get(name), set()).add(box.get_facecolor())
        for other in operators[name]["inputs"]:
            assert other not in boxes or boxes[other].get_y() < box.get_y(), "values flow down"
    assert all(len(one) == 1 for one in colors.values())
    assert len(set.union(*colors.values())) == len(sample["groups"]) + 1
    cells = [(box.get_x(), box.get_y()) for box in boxes.values()]
    assert all(abs(x - a) > 0.9 or y != b for i, (x, y) in enumerate(cells) for a, b in cells[:i])
    listed = side.texts[0].get_text()
    assert all(reason in listed for item in sample["refused"] for reason in item["reasons"])
    assert sample["hardware"]["device"] in figure.get_suptitle()
    names["plt"].close(figure)


@pytest.mark.slow
def test_a_real_run_of_an_unfilled_notebook_says_what_is_missing(tmp_path: Path) -> None:
    done = chapter_checks.run_notebook(
        chapter_checks.tolerant(chapter_checks.student(NAME)), tmp_path, RUN_MODE="real_cpu", LAYER_COUNTS=[1]
    )
    assert {kind for kind, _ in chapter_checks.errors(done)} == {"NotImplementedError"}
    assert "请先完成 TODO 1" in chapter_checks.text(done, "experiment")
    assert not (tmp_path / "benchmarks").exists()


@pytest.mark.slow
def test_real_run_on_the_cpu_writes_a_valid_file(tmp_path: Path) -> None:
    """It holds the recorded graph's groups, and the reader prints it."""
    report, done = chapter_checks.run_for_real(NAME, tmp_path, "inf_graph_capture_default_cpu.json", SCHEMA)
    sample = chapter_checks.load_json(SAMPLE)
    assert (report["graph"], report["groups"]) == (sample["graph"], sample["groups"])
    assert "逐个节点相同" in chapter_checks.text(done, "experiment")
    assert "2 层：98 个节点" in chapter_checks.text(done, "reader")
