"""The GPU branch of the experiment against stand-ins: order of calls, filtering. It proves nothing about a real GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from grader.tests.experiment_support import shared


class Recorder:
    """Stand-in for torch.cuda that writes down what is called."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.allocated, self.peak = 100, 100

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def memory_allocated(self) -> int:
        return self.allocated

    def reset_peak_memory_stats(self) -> None:
        self.peak = self.allocated

    def max_memory_allocated(self) -> int:
        return self.peak

    def get_device_properties(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(L2_cache_size=1000)

    def get_device_name(self, index: int) -> str:
        return "Some GPU"

    def Event(self, enable_timing: bool) -> SimpleNamespace:  # noqa: N802 - torch's name
        assert enable_timing
        return SimpleNamespace(record=lambda: self.log.append("record"), elapsed_time=lambda end: 1.25)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    for name in ("synchronize", "memory_allocated", "reset_peak_memory_stats", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, getattr(recorder, name))
    for name in ("get_device_properties", "get_device_name", "Event"):
        monkeypatch.setattr(torch.cuda, name, getattr(recorder, name))
    return recorder


def test_a_gpu_call_is_timed_between_events_after_flush_and_sync(cuda: Recorder) -> None:
    """Flush, wait for it, record, call, record, wait: else the flush or an unfinished kernel would be timed."""
    log = cuda.log
    device_ms, wall_ms = shared()["time_call"](lambda: log.append("call"), "cuda", lambda: log.append("flush"))
    assert log == ["flush", "synchronize", "record", "call", "record", "synchronize"]
    assert device_ms == 1.25
    assert 0 < wall_ms != 1.25


def test_a_cpu_call_needs_no_gpu(cuda: Recorder) -> None:
    device_ms, wall_ms = shared()["time_call"](lambda: None, "cpu", lambda: None)
    assert device_ms == wall_ms > 0
    assert cuda.log == []


def test_the_flush_buffer_is_twice_the_cache(cuda: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    empty = torch.empty

    def on_cpu(size: int, dtype: torch.dtype, device: str) -> torch.Tensor:
        made.append((size, dtype, device))
        return empty(size, dtype=dtype)

    monkeypatch.setattr(torch, "empty", on_cpu)
    shared()["make_cache_flusher"]("cuda")()
    assert made == [(2000, torch.int8, "cuda")]


def test_memory_is_the_peak_and_what_the_call_added(cuda: Recorder) -> None:
    def call() -> None:
        cuda.peak = 175

    cuda.peak = 999  # an older peak must not count
    assert shared()["peak_memory"](call, "cuda") == (175, 75)
    assert shared()["peak_memory"](call, "cpu") == (None, None)


def test_hardware_names_the_gpu_and_its_cuda(cuda: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    assert shared()["describe_hardware"]("cuda") == {
        "device": "Some GPU",
        "torch_version": torch.__version__,
        "cuda": "12.4",
    }
    assert shared()["measurement_notes"]("cuda")["cache"] == "l2_flushed"
    assert shared()["measurement_notes"]("cpu")["cache"] == "hot"


def event(key: str, device: str, count: int = 5, annotation: bool = False) -> SimpleNamespace:
    return SimpleNamespace(
        key=key,
        device_type=f"DeviceType.{device}",
        count=count,
        self_cpu_time_total=7.0,
        self_device_time_total=3.0,
        is_user_annotation=annotation,
    )


EVENTS = [
    event("aten::mm", "CPU"),
    event("cudaLaunchKernel", "CPU"),
    event("triton_poi_fused_mul_silu_0", "CPU"),  # the host side of the launch
    event("triton_poi_fused_mul_silu_0", "CUDA"),
    event("sm90_xmma_gemm_f16f16", "CUDA", count=10),
    event("Torch-Compiled Region: 0/0", "CUDA", annotation=True),
    event("## Call CompiledFxGraph abc ##", "CUDA"),
    event("Memcpy DtoD (Device -> Device)", "CUDA"),
    event("graph_0_cpp_fused_add_0", "CPU"),
]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (
            "cuda",
            {
                "triton_poi_fused_mul_silu_0": {"calls": 5, "self_us": 3.0},
                "sm90_xmma_gemm_f16f16": {"calls": 10, "self_us": 3.0},
            },
        ),
        (
            "cpu",
            {
                "triton_poi_fused_mul_silu_0": {"calls": 5, "self_us": 7.0},
                "graph_0_cpp_fused_add_0": {"calls": 5, "self_us": 7.0},
            },
        ),
    ],
)
def test_only_kernels_of_the_device_are_kept(
    cuda: Recorder, monkeypatch: pytest.MonkeyPatch, device: str, expected: dict
) -> None:
    """Host operators, launches, annotations and copies are no kernels; a host event doesn't count for the GPU."""

    class Profiler:
        def __init__(self, activities: list) -> None:
            assert (torch.profiler.ProfilerActivity.CUDA in activities) == (device == "cuda")

        def __enter__(self) -> Profiler:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def key_averages(self) -> list:
            return EVENTS

    monkeypatch.setattr(torch.profiler, "profile", Profiler)
    calls: list[int] = []
    assert shared()["profile_kernels"](lambda: calls.append(1), device) == expected
    assert len(calls) == 5
