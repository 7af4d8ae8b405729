"""Dynamo, fake tensors and AOTAutograd with tensors of the chip. Inductor's own path is in tests/test_compile*.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._dynamo.device_interface import get_interface_for_device
from torch._dynamo.testing import CompileCounterWithBackend

from tests.privateuse1.inventory import covers

BACKEND = "aot_eager"


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _to_host(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).cpu() * 2


def _autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("chip", dtype=torch.float16):
        return torch.mm(x, x)


@covers("compile", "test_simple_compile", "test_compile_fullgraph_multiple_ops", "test_compile_with_autocast")
@covers("compile", "test_device_transfer_traces_fully")
@pytest.mark.parametrize(
    "function",
    [lambda x: x + 1, lambda x: torch.relu((x + 1) * 2), _to_host, _autocast],
    ids=["one", "several", "to_host", "autocast"],
)
def test_a_function_is_one_graph(function: Callable[[torch.Tensor], torch.Tensor]):
    x = torch.randn(4, 4, device="chip")
    found, expected = torch.compile(function, backend=BACKEND, fullgraph=True)(x), function(x)
    assert (found.device, found.dtype) == (expected.device, expected.dtype)
    assert torch.equal(found.cpu(), expected.cpu())


@covers("compile", "test_device_metadata")
def test_placeholders_have_the_device():
    seen = []

    def backend(graph, inputs):
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                seen.append(node.meta["example_value"].device)
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend, fullgraph=True)(torch.zeros(3, 3, device="chip:1"))
    assert seen == [torch.device("chip:1")]


@covers("compile", "test_backend_recompilation", "test_recompilation_on_shape_change")
def test_a_graph_is_compiled_again_for_another_shape_only():
    counter = CompileCounterWithBackend(BACKEND)
    function = torch.compile(lambda x: x + 1, backend=counter)
    counts = []
    for size in (4, 4, 8):
        function(torch.randn(size, device="chip"))
        counts.append(counter.frame_count)
    assert counts == [1, 1, 2]


@covers("compile", "test_dynamic_shapes")
def test_dynamic_shapes_need_one_graph():
    counter = CompileCounterWithBackend(BACKEND)
    function = torch.compile(lambda x: x + 1, backend=counter, dynamic=True)
    for size in (4, 8):
        x = torch.randn(size, device="chip")
        assert torch.equal(function(x).cpu(), x.cpu() + 1)
    assert counter.frame_count == 1


@covers("compile", "test_graph_break_resilience")
def test_a_graph_break_makes_two_graphs():
    counter = CompileCounterWithBackend(BACKEND)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    x = torch.randn(4, device="chip")
    assert torch.equal(torch.compile(function, backend=counter)(x).cpu(), (x.cpu() + 1) * 2)
    assert counter.frame_count == 2


@covers("compile", "test_autograd", "test_nn_module")
def test_a_module_and_its_gradients():
    model = torch.nn.Linear(4, 4).to("chip")
    x = torch.randn(2, 4, device="chip", requires_grad=True)
    results = []
    for call in (model, torch.compile(model, backend=BACKEND)):
        y = call(x)
        y.square().sum().backward()
        results.append([y.detach(), x.grad, model.weight.grad, model.bias.grad])
        x.grad = None
        model.zero_grad()
    assert results[1][0].device == x.device
    for eager, compiled in zip(*results, strict=True):
        assert torch.equal(eager.cpu(), compiled.cpu())


@covers("compile", "test_compile_with_default_device")
def test_default_device():
    with torch.device("chip"):
        x = torch.randn(4)
        y = torch.compile(lambda x: x + torch.zeros(4), backend=BACKEND)(x)
    assert y.device == torch.device("chip:0")
    assert torch.equal(y.cpu(), x.cpu())


@covers("compile", "test_interface_registered", "test_current_device", "test_device_count")
def test_device_interface():
    interface = get_interface_for_device("chip")
    assert interface.device_count() == 2
    with torch.accelerator.device_index(1):
        assert interface.current_device() == 1
