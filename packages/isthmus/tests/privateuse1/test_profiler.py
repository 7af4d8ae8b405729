"""PyTorch's autograd profiler with the chip as its device."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd.profiler import profile
from torch.profiler import record_function

from tests.privateuse1.inventory import covers


@pytest.fixture(autouse=True)
def _no_error_in_a_callback(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """PyTorch prints failures in the profiler's callbacks and continues."""
    yield
    assert "Exception in RecordFunction callback" not in capfd.readouterr().err


def names(work: Callable[[], object], **options: bool) -> set[str]:
    with profile(use_device="chip", **options) as profiled:
        work()
    return {event.name for event in profiled.function_events}


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 10)).to("chip")


def noise(*shape: int, **options: object) -> torch.Tensor:
    return torch.randn(*shape, device="chip", **options)


@covers(
    "profiler", "test_profiler_basic", "test_profiler_single_device", "test_cpu_fallback_hook_captures_ops"
)
@covers("profiler", "test_abs_kernel_hook_captures_event", "test_copy_from_hook_captures_transfer")
@covers("profiler", "test_profiler_with_mixed_operations", "test_profiler_default_stream_initialization")
def test_operators_have_rows():
    def work() -> None:
        x = noise(10, 10)
        torch.relu(torch.abs(x) + x * 2.0).t().sum()
        torch.matmul(x, x)
        torch.randn(10).to("chip")

    found = names(work, record_shapes=True)
    assert {f"aten::{name}" for name in "add mul abs relu sum mm copy_".split()} <= found


@covers("profiler", "test_profiler_multiple_streams", "test_profiler_event_synchronization")
@covers("profiler", "test_profiler_multiple_devices", "test_profiler_elapsed_time")
def test_streams_events_and_devices():
    with profile(use_device="chip") as profiled:
        for index in range(2):
            stream = torch.Stream(device=f"chip:{index}")
            event = torch.Event(device="chip", enable_timing=True)
            with stream:
                x = torch.ones(100, 100, device=f"chip:{index}")
                for _ in range(3):
                    x = x @ x
                event.record(stream)
            event.synchronize()
    products = [event for event in profiled.function_events if event.name == "aten::mm"]
    assert len(products) == 6
    assert sum(event.cpu_time_total for event in products) > 0


@covers("profiler", "test_profiler_key_averages", "test_profiler_table_output", "test_profiler_with_shapes")
@covers("profiler", "test_profiler_context_manager_multiple_times")
def test_averages_and_table():
    with profile(use_device="chip", record_shapes=True) as profiled:
        for _ in range(10):
            noise(10, 20) @ noise(20, 30)
    (products,) = (row for row in profiled.key_averages() if row.key == "aten::mm")
    assert products.count == 10 and products.device_time_total > 0
    shapes = [
        row.input_shapes for row in profiled.key_averages(group_by_input_shape=True) if row.key == "aten::mm"
    ]
    assert [[10, 20], [20, 30]] in shapes
    table = profiled.key_averages().table(sort_by="cpu_time_total", row_limit=10)
    assert "aten::mm" in table and "Self CHIP" in table


@covers("profiler", "test_profiler_export_chrome_trace")
def test_chrome_trace(tmp_path: Path):
    with profile(use_device="chip") as profiled:
        x = noise(10, 10)
        x @ x
    path = tmp_path / "trace.json"
    profiled.export_chrome_trace(str(path))
    trace = json.loads(path.read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    assert "aten::mm" in {event.get("name") for event in events}


@covers("profiler", "test_profiler_with_backward_pass", "test_profiler_with_training_step")
@covers("profiler", "test_profiler_with_simple_model", "test_profiler_with_multiple_batches")
@covers("profiler", "test_profiler_table_with_model", "test_profiler_overhead")
def test_a_training_step():
    model, criterion = make_model(), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def work() -> None:
        for batch in range(2):
            with record_function(f"batch {batch}"):
                loss = criterion(model(noise(32, 10)), noise(32, 10))
                with record_function("backward"):
                    loss.backward()
                with record_function("step"):
                    optimizer.step()
                    optimizer.zero_grad()

    found = names(work, record_shapes=True)
    assert {"batch 0", "batch 1", "backward", "step", "aten::addmm", "aten::mse_loss_backward"} <= found


@covers("profiler", "test_profiler_with_inference")
def test_inference_has_no_backward():
    model = make_model().eval()

    def work() -> None:
        with torch.no_grad():
            model(noise(16, 10))

    found = names(work)
    assert "aten::addmm" in found and not any("backward" in name.lower() for name in found)


@covers("profiler", "test_profiler_empty_operations", "test_profiler_exception_handling")
def test_nothing_and_errors():
    assert not any(name.startswith("aten::") for name in names(lambda: None))
    with pytest.raises(ValueError, match="inside"), profile(use_device="chip") as profiled:
        noise(3)
        raise ValueError("inside")
    assert "aten::randn" in {event.name for event in profiled.function_events}
