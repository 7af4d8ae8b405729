"""Compiled for the CPU and run on the chip: the numbers, graphs and recompilations of torch.compile on CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from isthmus import _C
from isthmus.chip.compile import host_inductor
from tests.helpers.compile_on_each import lists, on_each


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# ---- Inductor, and not eager kernels


def make_model() -> torch.nn.Module:
    layers = [torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.GELU(), torch.nn.Dropout(0.5)]
    return torch.nn.Sequential(*layers, torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))


def test_training_runs_inductors_kernels_bit_equal_to_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = []

    def spy(*args: Any, **options: Any) -> Any:
        compiled = compile_fx_inner(*args, **options)
        sources.append(compiled.source_code)
        return compiled

    compile_fx_inner = host_inductor.compile_fx_inner
    monkeypatch.setattr(host_inductor, "compile_fx_inner", spy)

    def train(device: str) -> Any:
        model = make_model().to(device)
        compiled = torch.compile(model, fullgraph=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        x, losses = torch.randn(32, 8).to(device), []
        torch.manual_seed(1)  # the CPU's generator created the data; later numbers are drawn on the device
        torch.chip.reset_dispatch_stats()
        for _ in range(3):
            loss = compiled(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss)
        return losses, list(model.parameters()), list(model.buffers())

    on_each(train)
    assert ["cpp_fused" in source for source in sources] == [True, True]  # forward and backward
    eager = {name.partition(".")[0] for name in torch.chip.dispatch_stats()["operators"]}
    inside = {"addmm", "gelu", "gelu_backward", "native_batch_norm", "native_layer_norm", "bernoulli_"}
    assert not eager & {f"aten::{name}" for name in inside}
    assert _C.host_view_blocks() == 0


def test_a_second_compilation_finds_the_code_on_disk() -> None:
    def compile_again() -> int:
        torch._dynamo.reset()
        counters.clear()
        torch.compile(lambda x: torch.relu(x) * 3 + 1)(torch.ones(5, device="chip"))
        return int(counters["inductor"]["fxgraph_cache_hit"])

    compile_again()
    assert compile_again() == 1


def test_memory_is_the_chips() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4))).chip()
    x = torch.randn(1024, 64).chip()
    use = {}
    for name, forward in {"eager": model, "compiled": torch.compile(model)}.items():
        for _ in range(2):  # compilation allocates too
            before = torch.chip.memory_allocated()
            torch.chip.reset_peak_memory_stats()
            loss = forward(x).square().mean()
            saved = torch.chip.memory_allocated() - before
            loss.backward()
            peak = torch.chip.max_memory_allocated() - before
            model.zero_grad()
            del loss
        use[name] = (saved, peak)
    assert use["compiled"][0] >= 3 * x.nbytes
    assert use["compiled"][1] <= use["eager"][1]  # backward frees tensors as it proceeds
    assert _C.host_view_blocks() == 0


def test_running_out_of_memory_is_the_chips_error() -> None:
    @torch.compile
    def function(x: Tensor) -> Tensor:
        return torch.sort(x.expand(1 << 20, 1 << 12)).values

    with pytest.raises(torch.OutOfMemoryError, match="chip 0 is out of memory"):
        function(torch.ones(1, device="chip"))
    assert torch.compile(torch.sin)(torch.zeros(1, device="chip")).item() == 0


# ---- Shapes, inputs and outputs


@pytest.mark.full
def test_dynamic_shapes_recompile_as_on_cpu() -> None:
    def run(device: str) -> Any:
        automatic = torch.compile(lambda x: x.exp().sum(0))
        marked = torch.compile(lambda x: x.softmax(-1).sum(0))
        results = []
        for size in (3, 5, 9):
            x, y = torch.randn(size, 4).to(device), torch.randn(size, 4).to(device)
            torch._dynamo.mark_dynamic(y, 0)
            results += [automatic(x), marked(y)]
        return results

    on_each(run)


def test_inputs_are_mutated_and_outputs_share_their_memory() -> None:
    def run(device: str) -> Any:
        @torch.compile
        def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            x.add_(y)
            x[0] = 7
            return x.view(-1), x.t(), y, y * 2, y[1:] * 2

        x, y = torch.ones(2, 3).to(device), torch.full((2, 3), 2.0).to(device)
        flat, turned, same, *fresh = function(x, y)
        assert {tensor.device.type for tensor in (flat, turned, same, *fresh)} == {device}
        assert (flat.data_ptr(), turned.data_ptr()) == (x.data_ptr(), x.data_ptr()) and same is y
        return x, x._version, flat, turned, fresh

    on_each(run)


@pytest.mark.full
def test_constants_cpu_tensors_and_breaks() -> None:
    def run(device: str) -> Any:
        constant = torch.arange(3.0).to(device)

        @torch.compile
        def function(x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
            y = x * scale + constant + torch.tensor([1.0, 2.0, 3.0], device=x.device)
            copied = y.cpu()
            if y.sum().item() > 0:
                y = y + 1
            return y, copied, copied.to(x.device) * y, constant

        results = function(torch.ones(3).to(device), torch.tensor(3.0))
        assert [result.device.type for result in results] == [device, "cpu", device, device]
        constant.add_(1)
        return results, function(torch.ones(3).to(device), torch.tensor(3.0))

    on_each(run)


@pytest.mark.full
def test_convolution_whose_layout_inductor_changes() -> None:
    def run(device: str) -> Any:
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).to(
            device
        )
        loss = torch.compile(model)(torch.randn(4, 3, 8, 8).to(device)).square().mean()
        loss.backward()
        return loss, [parameter.grad for parameter in model.parameters()], list(model.buffers())

    on_each(run)


def test_the_other_device() -> None:
    compiled = torch.compile(lambda x: x * 2 + torch.ones(2, device=x.device))
    result = compiled(torch.ones(2, device="chip:1"))
    assert (result.tolist(), result.device) == ([3, 3], torch.device("chip:1"))


def test_graphs_with_several_devices_run_eager_kernels(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(lambda x, y: (x * 2, x.to(y.device) + y))
    results = compiled(torch.ones(2, device="chip:0"), torch.ones(2, device="chip:1"))
    assert lists(results) == [[2, 2], [2, 2]]
    assert [result.device.index for result in results] == [0, 1]
    assert "a graph on several devices (chip:0, chip:1) runs as eager kernels" in caplog.text
