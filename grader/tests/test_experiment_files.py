"""The experiment's modes, labels, result files and reader: what is refused, what survives, what is printed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grader.tests.experiment_support import (
    CHAIN_SAMPLE,
    ROOT,
    SWIGLU_SAMPLE,
    original_form,
    paths_in,
    plan,
    row,
    run_step5,
    sample,
    shared,
    step5_cells,
    step5_text,
)

SETTINGS = {
    "RUN_MODE": "dry_run",
    "RUN_LABEL": "default",
    "PROFILE_ID": "INF-CUDA-MECHANISM",
    "GPU_RESULT_PATH": "benchmarks/results/inf_execution_dispatch_compile_default.json",
    "GPU_DTYPE": "float16",
    "GPU_TOKEN_COUNTS": [1, 32, 256],
    "GPU_HIDDEN_SIZE": 1024,
    "GPU_WARMUP": 10,
    "GPU_REPEATS": 30,
    "GPU_ROUNDS": 4,
    "GPU_ATOL": 2e-2,
    "GPU_RTOL": 2e-2,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- settings and modes ---------------------------------------------------------------------------------------------


def test_the_settings_cell_assigns_exactly_these_names() -> None:
    namespace, _ = run_step5({}, tags={"settings"})
    assert {name: value for name, value in namespace.items() if not name.startswith("__")} == SETTINGS


def test_the_label_is_part_of_the_path() -> None:
    namespace, _ = run_step5({"RUN_LABEL": "second"}, tags={"settings"})
    assert namespace["GPU_RESULT_PATH"] == "benchmarks/results/inf_execution_dispatch_compile_second.json"


def test_dry_run_measures_nothing_and_says_how_to_switch_on(folder: Path) -> None:
    _, printed = run_step5({}, tags={"settings", "experiment", "reader"})
    assert "RUN_MODE" in printed and "'real_cpu'" in printed and "'real_gpu'" in printed
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("mode", ["real", "REAL_CPU", "", None])
def test_an_unknown_mode_lists_the_choices(folder: Path, mode: str | None) -> None:
    with pytest.raises(ValueError, match="dry_run.*real_cpu.*real_gpu"):
        run_step5({"RUN_MODE": mode}, tags={"settings", "experiment"})
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("mode", ["dry_run", "real_cpu", "real_gpu"])
def test_another_profile_lists_the_choice_in_every_mode(folder: Path, mode: str) -> None:
    with pytest.raises(ValueError, match="INF-CUDA-MECHANISM"):
        run_step5({"RUN_MODE": mode, "PROFILE_ID": "INF-CPU"}, tags={"settings", "experiment"})


def test_real_gpu_without_cuda_is_an_error_that_names_the_way_out(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(RuntimeError, match="CUDA.*real_cpu"):
        run_step5({"RUN_MODE": "real_gpu"}, tags={"settings", "experiment"})
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("mode", ["real_cpu", "real_gpu"])
def test_no_torch_compile_is_an_error(folder: Path, monkeypatch, mode: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.delattr("torch.compile")
    with pytest.raises(RuntimeError, match="torch.compile"):
        run_step5({"RUN_MODE": mode}, tags={"settings", "experiment"})


def test_real_gpu_with_cuda_goes_to_the_gpu(monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert shared()["experiment_device"]("real_gpu", "INF-CUDA-MECHANISM") == "cuda"


@pytest.mark.parametrize(
    ("device", "workload", "expected"),
    [("cuda", "", "r/x_a.json"), ("cpu", "", "r/x_a_cpu.json"), ("cuda", "chain", "r/x_a_chain.json"),
     ("cpu", "chain", "r/x_a_chain_cpu.json")],
)  # fmt: skip
def test_result_paths_differ_by_device_and_workload(device: str, workload: str, expected: str) -> None:
    assert shared()["result_path"]("r/x_a.json", device, workload) == expected


# --- labels and atomic writing --------------------------------------------------------------------------------------


def save(path: Path, label: str, capsys) -> str:
    shared()["save_report"](path, shared()["build_report"]([row(1)], [], plan(run_label=label)))
    return capsys.readouterr().out


def test_default_is_replaced_and_says_so(folder: Path, capsys) -> None:
    path = folder / "deep" / "x_default.json"
    assert "已保存" in save(path, "default", capsys)
    assert "已替换" in save(path, "default", capsys)


def test_an_existing_label_is_refused_and_kept(folder: Path, capsys) -> None:
    path = folder / "x_mine.json"
    save(path, "mine", capsys)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="RUN_LABEL"):
        save(path, "mine", capsys)
    assert path.read_bytes() == before


def test_an_existing_label_is_refused_before_anything_is_measured(folder: Path) -> None:
    path = folder / "x_mine.json"
    path.write_text("{}")

    def make_case(token_count: int):
        raise AssertionError("it measured")

    with pytest.raises(FileExistsError):
        shared()["run_experiment"](path, make_case, plan(run_label="mine"))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), object()])
def test_what_json_cannot_hold_leaves_the_old_file(folder: Path, bad: object) -> None:
    path = folder / "x.json"
    shared()["write_json_atomic"](path, {"old": 1})
    with pytest.raises((ValueError, TypeError)):
        shared()["write_json_atomic"](path, {"new": bad})
    assert json.loads(path.read_text()) == {"old": 1}
    assert [item.name for item in folder.iterdir()] == ["x.json"]


def test_a_full_disk_leaves_the_old_file_and_no_rubbish(folder: Path, monkeypatch) -> None:
    path = folder / "x.json"
    shared()["write_json_atomic"](path, {"old": 1})

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        shared()["write_json_atomic"](path, {"new": 1})
    assert json.loads(path.read_text()) == {"old": 1}
    assert [item.name for item in folder.iterdir()] == ["x.json"]


def test_killed_in_the_middle_leaves_the_old_file(folder: Path) -> None:
    """The process stops between writing and renaming, and is killed there."""
    path = folder / "x.json"
    shared()["write_json_atomic"](path, {"old": 1})
    cells = {slug: source for slug, _, source in step5_cells()}
    program = "import json, os, time\nfrom pathlib import Path\n" + cells["exp-file"]
    program += "\nos.replace = lambda *paths: (print('written', flush=True), time.sleep(60))\n"
    program += f"write_json_atomic({str(path)!r}, {{'new': 1}})\n"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "written\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert json.loads(path.read_text()) == {"old": 1}


def test_failure_messages_hold_the_reason_but_no_path() -> None:
    error = RuntimeError("CppCompileError: g++ /tmp/torchinductor/x.cpp failed\n\nSet TORCHDYNAMO_VERBOSE=1 …")
    failure = shared()["describe_failure"](32, error)
    assert failure == {
        "token_count": 32,
        "type": "RuntimeError",
        "message": "CppCompileError: g++ …/x.cpp failed",
    }
    assert shared()["describe_failure"](1, ValueError())["message"]


@pytest.mark.parametrize("path", [SWIGLU_SAMPLE, CHAIN_SAMPLE], ids=lambda path: path.stem)
def test_recorded_samples_name_their_hardware_and_no_machine(path: Path) -> None:
    report = sample(path)
    assert report["hardware"]["device"] and report["hardware"]["cuda"] is None
    texts = {value for _, value in paths_in(report) if isinstance(value, str)}
    assert {text for text in texts if "/" in text} == {"inference-mechanism-gpu/v2", "paired-evidence/1"}
    assert not [text for text in texts if re.search(r"\b(root|home|localhost)\b", text)]


def test_the_text_quotes_the_recorded_samples() -> None:
    """The table of 5.4: speed-ups (two decimals) and verdicts of both workloads are those of the files."""
    quoted = re.findall(r"^\| (\d+) \| (\S+) \|(?: `(\w+)`)? \| (\S+) \| `(\w+)` \|$", step5_text(), re.MULTILINE)
    swiglu, chain = (
        {row["token_count"]: (f"{row['speedup']:.2f}", row["verdict"]) for row in sample(path)["candidate_matrix"]}
        for path in (SWIGLU_SAMPLE, CHAIN_SAMPLE)
    )
    assert {int(t): (ratio, verdict) for t, _, _, ratio, verdict in quoted} == chain
    assert {int(t): (ratio, verdict) for t, ratio, verdict, _, _ in quoted if verdict} == swiglu


# --- reader ---------------------------------------------------------------------------------------------------------


def read(path: Path, capsys) -> str:
    shared()["print_report"](path)
    return capsys.readouterr().out


def test_the_reader_prints_head_then_rows(folder: Path, capsys) -> None:
    lines = read(CHAIN_SAMPLE, capsys).splitlines()
    report = sample(CHAIN_SAMPLE)
    heads = ["workload", "hardware", "summary", "failure", "evidence_level", "decision"]
    assert [line.split(":")[0] for line in lines[:6]] == heads
    assert len(lines) == 6 + len(report["candidate_matrix"])
    for line, one in zip(lines[6:], report["candidate_matrix"], strict=True):
        values = dict(re.findall(r"(\S+|eager median|compiled median|compiled P95)=(\S+)", line))
        assert values["token_count"] == str(one["token_count"])
        assert (values["output_close"], values["graph_break_count"]) == ("True", "0")
        numbers = [one["eager"]["median_ms"], one["compiled"]["median_ms"], one["compiled"]["p95_ms"], one["speedup"]]
        assert re.findall(r"\d+\.\d{4}\b", line) == [f"{number:.4f}" for number in numbers]


def test_the_reader_accepts_the_original_form_and_a_failure(folder: Path, capsys) -> None:
    report = original_form(sample(SWIGLU_SAMPLE))
    report["failure"] = [{"token_count": 512, "type": "RuntimeError", "message": "out of memory"}]
    Path("x.json").write_text(json.dumps(report))
    printed = read(Path("x.json"), capsys)
    assert "out of memory" in printed and "speedup=" in printed and "verdict" not in printed


def test_no_file_names_the_path_and_the_step(folder: Path, capsys) -> None:
    printed = read(Path("benchmarks/results/x.json"), capsys)
    assert "benchmarks/results/x.json" in printed and "5.2" in printed


def test_the_newest_of_gpu_and_cpu_result_is_read(folder: Path) -> None:
    newest = shared()["newest_result"]
    assert newest("x.json") == "x.json"
    Path("x_cpu.json").write_text("{}")
    assert newest("x.json") == "x_cpu.json"
    Path("x.json").write_text("{}")
    later = time.time() + 10
    os.utime("x.json", (later, later))
    assert newest("x.json") == "x.json"
    assert newest("x.json", "chain") == "x_chain.json"


def test_without_results_the_readers_name_both_paths(folder: Path) -> None:
    _, printed = run_step5({}, tags={"settings", "experiment", "reader"})
    assert "inf_execution_dispatch_compile_default.json" in printed
    assert "inf_execution_dispatch_compile_default_chain.json" in printed


def test_cells_need_nothing_but_the_standard_library_torch_and_matplotlib() -> None:
    """Anything else would be missing on a hosted notebook."""
    imported = set()
    for _, _, source in step5_cells():
        imported |= set(re.findall(r"^\s*(?:from|import) (\w+)", source, re.MULTILINE))
    assert imported - set(sys.stdlib_module_names) == {"torch", "matplotlib"}


def test_every_shared_cell_is_used_and_documented() -> None:
    """A cell that no chapter includes is dead; one that the README does not list can't be found."""
    masters = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("solutions/*/*.py"))
    readme = (ROOT / "assets" / "cells" / "README.md").read_text(encoding="utf-8")
    cells = sorted((ROOT / "assets" / "cells").glob("*.py"))
    assert [path.name for path in cells if f"assets/cells/{path.name}" not in masters] == []
    assert [path.stem for path in cells if f"`{path.stem}`" not in readme] == []
