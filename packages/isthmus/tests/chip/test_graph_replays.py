"""Replays of torch.chip's graphs: they depend on the capture, not on the modes and threads of their caller."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from isthmus import _C as core
from tests.helpers.children import output
from tests.helpers.enqueued_libraries import write_slow_chip
from tests.helpers.graphs import OF_THE_CORE, capture

pytestmark = OF_THE_CORE


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("replayed_with_gradients", [False, True])
def test_recurrent_modules_are_replayed_bit_equal(kind, replayed_with_gradients):
    """oneDNN's LSTM makes a workspace if gradients are enabled: as at the capture, not as at the replay."""
    module = kind(4, 8, num_layers=2, bidirectional=True, dropout=0.2, batch_first=True).to("chip")
    x = torch.randn(2, 5, 4, device="chip", requires_grad=True)

    def infer() -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return (module(x)[0],)

    def train() -> tuple[torch.Tensor, ...]:
        result = module(x)[0]
        return result, *torch.autograd.grad(result.sum(), (x, *module.parameters()))

    for function in (infer, train):
        graph, results = capture(function)
        with torch.no_grad():
            x.copy_(torch.randn(2, 5, 4))
        torch.chip.manual_seed(3)
        with torch.set_grad_enabled(replayed_with_gradients):
            graph.replay()
        assert torch.is_grad_enabled()
        torch.chip.manual_seed(3)
        assert all(map(torch.equal, results, function()))


class Refuses(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was dispatched")


def test_modes_of_the_caller_do_not_see_kernels():
    x, y = torch.randn(30, 30, device="chip"), torch.randn(30, 30, device="chip")
    graph, distance = capture(torch.cdist, x, y)
    x.copy_(torch.randn(30, 30))
    with Refuses(), torch.autocast("cpu", dtype=torch.bfloat16):
        graph.replay()
    assert torch.equal(distance, torch.cdist(x, y))


def test_operators_that_compiled_code_calls_run_once_in_a_replay():
    calls, x = torch.zeros((), device="chip"), torch.ones(3, device="chip")

    def code(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        calls.add_(1)
        return [inputs[0] + 1]

    graph, (y,) = capture(core.call_on_host, code, [x], 0, [])
    calls.zero_()
    graph.replay()
    assert (calls.item(), y.tolist()) == (1, [2, 2, 2])


def test_a_result_that_is_resized_by_its_kernel_shares_no_memory_with_workspaces():
    a, b = torch.randn(2, 3, 3, device="chip"), torch.randn(2, 3, 3, device="chip")
    graph, solution = capture(lambda: torch.linalg.lstsq(a, b, driver="gelsd").solution)
    for _ in range(2):
        a.copy_(torch.randn(2, 3, 3))
        graph.replay()
        assert torch.equal(solution, torch.linalg.lstsq(a, b, driver="gelsd").solution)


def test_replays_of_one_graph_in_several_threads_run_one_after_the_other():
    x, total = torch.randn(40, 40, device="chip"), torch.zeros((), device="chip")
    graph, _ = capture(lambda: total.add_(torch.linalg.svdvals(x @ x).mean() * 0 + 1))
    threads = [threading.Thread(target=lambda: [graph.replay() for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total.item() == 80


def test_a_forked_process_cannot_replay():
    x = torch.zeros(4, device="chip")
    graph, _ = capture(lambda: x.add_(1))
    if (child := os.fork()) == 0:
        try:
            graph.replay()
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert x.sum().item() == 0


def test_copies_between_chips_are_refused():
    code = """
        import torch
        x, other = torch.ones(2, device="chip:0"), torch.zeros(2, device="chip:1")
        for function in (lambda: x.to("chip:1"), lambda: other.copy_(x), lambda: x.copy_(other)):
            try:
                with torch.chip.graph(torch.chip.Graph()):
                    function()
            except RuntimeError as error:
                print("a copy between chips: operation not permitted" in str(error), x[0].item(), other[0].item())
    """
    assert output(code, ISTHMUS_HOST_DEVICES="2").split() == ["True", "1.0", "0.0"] * 3


def test_a_sparse_gradient_is_refused_by_name_and_line():
    table, index = nn.Embedding(10, 4, sparse=True).to("chip"), torch.tensor([1, 2], device="chip")

    def function() -> tuple[Any, ...]:
        return torch.autograd.grad(table(index).sum(), table.weight)

    with pytest.raises(RuntimeError, match=r"sparse.*not permitted.*test_graph_replays.py:\d+"):
        capture(function)


SLOW = """
import gc, json, torch
def capture(call):
    graph = torch.chip.Graph()
    with torch.chip.graph(graph):
        result = call()
    return graph, result
def replay(graph, stream):
    with torch.chip.stream(stream):
        graph.replay()
one, y = torch.ones(4, device="chip"), torch.zeros(4, device="chip")
streams = [torch.chip.Stream() for _ in range(3)]
found = {}
graph, _ = capture(lambda: y.add_(one))
found["after the capture"] = y.tolist()
for i in range(6):
    replay(graph, streams[i % 3])
torch.chip.synchronize()
found["replays"] = y.tolist()

# The temporary is memory of the graph, which the capture itself still fills when the first replay begins.
x = torch.zeros(4, device="chip")
graph, z = capture(lambda: (x + one) + one)
x.fill_(1)
replay(graph, streams[0])
torch.chip.synchronize()
found["after its own capture"] = z.tolist()

# Work before the replay on its own stream, and of a copy at its end.
host = torch.zeros(4, pin_memory=True)
def copied():
    y.add_(one)
    host.copy_(y, non_blocking=True)
graph, _ = capture(copied)
for stream in streams:
    replay(graph, stream)
torch.chip.synchronize()
found["copies"] = host.tolist()

# The graph is gone while its last replay runs.
graph, _ = capture(lambda: y.add_(one))
replay(graph, streams[0])
replay(graph, streams[1])
del graph
gc.collect()
torch.chip.empty_cache()
torch.chip.synchronize()
found["released"] = y.tolist()
graph, _ = capture(lambda: y.add_(one))
replay(graph, streams[0])
graph.reset()
found["reset"] = y.tolist()

# A capture that another stream ends.
graph = torch.chip.Graph()
with torch.chip.stream(streams[0]):
    graph.capture_begin()
    y.add_(one)
graph.capture_end()
found["ended elsewhere"] = y.tolist()
print(json.dumps(found))
"""


def test_replays_on_several_streams_run_one_after_the_other(tmp_path):
    found = json.loads(output(SLOW, ISTHMUS_DRIVER=str(write_slow_chip(tmp_path))))
    assert found == {
        "after the capture": [0] * 4,
        "replays": [6] * 4,
        "after its own capture": [3] * 4,
        "copies": [9] * 4,
        "released": [11] * 4,
        "reset": [12] * 4,
        "ended elsewhere": [12] * 4,
    }
