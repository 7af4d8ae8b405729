"""Graphs of torch.chip: what a capture leaves unchanged, what it records, and what it refuses."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.helpers.children import output
from tests.helpers.graphs import OF_THE_CORE, capture


@OF_THE_CORE
def test_a_capture_changes_nothing_outside_its_memory():
    x, y = torch.arange(12.0, device="chip").view(3, 4), torch.ones(3, device="chip")
    images, norm = torch.randn(2, 3, 4, 4, device="chip"), torch.nn.BatchNorm2d(3).to("chip")
    host = torch.zeros(3, pin_memory=True)
    state = torch.chip.get_rng_state()

    def function() -> torch.Tensor:
        x[1:, ::2].add_(1)
        torch.add(y, 1, out=y)
        torch._foreach_mul_([x, y], 2.0)
        x.normal_()
        host.copy_(y, non_blocking=True)
        return norm(images)

    graph, result = capture(function)
    assert torch.equal(x.cpu(), torch.arange(12.0).view(3, 4))
    assert torch.equal(y.cpu(), torch.ones(3)) and torch.equal(host, torch.zeros(3))
    assert torch.equal(norm.running_mean.cpu(), torch.zeros(3)) and norm.num_batches_tracked.item() == 0
    assert torch.equal(torch.chip.get_rng_state(), state)
    graph.replay()
    graph.replay()
    torch.chip.synchronize()
    assert torch.equal(y.cpu(), torch.full((3,), 10.0)) and torch.equal(host, torch.full((3,), 10.0))
    assert norm.num_batches_tracked.item() == 2 and norm.running_mean.abs().sum().item() > 0
    assert result.shape == images.shape


ONES = torch.ones(4)
GROWN: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "pointwise": lambda x, out: torch.add(x, 1, out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
    "reduction": lambda x, out: torch.sum(x.view(2, 2), 0, out=out),
    "product": lambda x, out: torch.outer(x, x[:2], out=out),
    "index_select": lambda x, out: torch.index_select(x, 0, torch.arange(3, device=x.device), out=out),
    "arange": lambda x, out: torch.arange(5, out=out),
    "resize_": lambda x, out: out.resize_(6).fill_(3),
    "set_": lambda x, out: out.set_(out.untyped_storage(), 1, (5,)).add_(1),
    "foreach": lambda x, out: torch._foreach_copy_([out.resize_(4)], [x]),
}


@pytest.mark.parametrize("elements", [0, 2])
@pytest.mark.parametrize("name", GROWN)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_what_a_result_grows_over_is_restored(name, elements):
    x, memory = ONES.to("chip"), torch.arange(10.0, 18.0, device="chip")
    out = memory[:elements]
    graph, _ = capture(GROWN[name], x, out)
    assert memory.tolist() == [10, 11, 12, 13, 14, 15, 16, 17]
    graph.replay()
    expected = torch.arange(10.0, 18.0)
    GROWN[name](ONES, expected[:elements])
    assert memory.tolist() == expected.tolist()


@OF_THE_CORE
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_several_results_that_grow_are_restored():
    memory, places = torch.full((8,), 7.0, device="chip"), torch.full((8,), 7, device="chip")
    x = torch.tensor([[3.0, 1.0, 2.0]], device="chip")
    out = memory[:0], places[1:1]
    graph, _ = capture(lambda: torch.sort(x, 1, out=out))
    assert memory.eq(7).all() and places.eq(7).all()
    graph.replay()
    assert memory.tolist() == [1, 2, 3] + [7] * 5 and places.tolist() == [7, 1, 2, 0] + [7] * 4


@pytest.mark.parametrize("name", ["pointwise", "cat", "resize_"])
@OF_THE_CORE
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_result_that_outgrows_its_memory_keeps_what_it_had(name):
    x, out = ONES.to("chip"), torch.tensor([5.0, 6.0], device="chip")
    view = out[1:]

    def function() -> None:
        out.mul_(2)
        GROWN[name](x, out)
        out[:2].add_(1)
        out.resize_(100)

    graph, _ = capture(function)
    assert out.shape == (100,) and out[:2].tolist() == [5, 6] and view.tolist() == [6]
    gc.collect()
    torch.full((2,), -1.0, device="chip")  # may lie where the result was
    graph.replay()
    expected = ONES + 1 if name == "pointwise" else torch.ones(4)
    expected = torch.full((4,), 3.0) if name == "resize_" else expected
    assert out[:2].tolist() == (expected[:2] + 1).tolist() and out[2:4].tolist() == expected[2:4].tolist()


def test_overlapping_writes_are_restored():
    def function(x: torch.Tensor) -> None:
        for part in (x[2:4], x[3:7], x[:3], x, x[5:]):
            part.add_(1)

    x, expected = torch.arange(8.0, device="chip"), torch.arange(8.0)
    graph, _ = capture(function, x)
    assert torch.equal(x.cpu(), expected)
    graph.replay()
    function(expected)
    assert torch.equal(x.cpu(), expected)


MODELS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "convolution": lambda x: F.conv2d(x.view(1, 1, 4, 6), x.view(1, 1, 4, 6)[..., :3, :3], padding=1).relu(),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(1, 2, 2, 6)] * 3, is_causal=True),
    "sort": lambda x: torch.sort(x, 1).values + torch.topk(x, 2, 1).indices[:, :1],
    "cat": lambda x: torch.cat([x, x * 2])[1:3],
    "index": lambda x: x[:, x[0].argsort()],
    "norm": lambda x: F.layer_norm(x, (6,)) + F.softmax(x, -1) + x.var(),
    "complex": lambda x: torch.fft.fft(x).real,
    "linalg": lambda x: torch.linalg.qr(x @ x.T + torch.eye(4, device="chip"))[1],
    "out": lambda x: torch.add(x, 1, out=torch.empty(0, device="chip")),
    "half": lambda x: (x.half() @ x.half().T).float(),
    "where": lambda x: torch.where(x > 0, x, 0.5).masked_fill(x < -1, 3.0),
}


@pytest.mark.parametrize("name", MODELS)
@OF_THE_CORE
def test_replays_are_bit_equal_to_eager_calls(name):
    function, x = MODELS[name], torch.randn(4, 6, device="chip")
    graph, y = capture(function, x)
    for seed in range(2):
        x.copy_(torch.randn(4, 6, generator=torch.Generator().manual_seed(seed)))
        torch.empty(4, 6, device="chip")  # memory of eager calls is not the graph's
        graph.replay()
        assert torch.equal(y, function(x))


REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "nonzero": torch.nonzero,
    "mask": lambda x: x[x > 0],
    "to the CPU": lambda x: x.cpu(),
    "from the CPU": lambda x: torch.tensor([1.0], device="chip"),
    "print": repr,
    "synchronize": lambda x: torch.chip.synchronize(),
    "stream": lambda x: torch.chip.current_stream().synchronize(),
    "query": lambda x: torch.chip.current_stream().query(),
    "event": lambda x: torch.chip.current_stream().record_event().synchronize(),
    "index of the CPU": lambda x: x[torch.tensor([0])],
    "set_rng_state": lambda x: torch.chip.set_rng_state(STATE),
    "another stream": lambda x: torch.chip.current_stream().wait_stream(torch.chip.default_stream()),
    "sparse result": lambda x: x.view(2, 2).to_sparse(),
}
STATE = torch.Generator().manual_seed(77).get_state()


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_the_host_wait_is_refused_by_name_and_line(name):
    x = torch.ones(4, device="chip")
    graph = torch.chip.Graph()
    line = r"not permitted when stream is capturing \([^(]*tests/chip/test_graphs\.py:\d+\)"
    with pytest.raises(RuntimeError, match="capture failed.*" + line), torch.chip.graph(graph):
        with pytest.raises(RuntimeError, match=line):
            REFUSED[name](x)
        x.add_(1)
    assert torch.equal(x.cpu(), torch.ones(4)), "the failed capture left a change"
    assert not torch.chip.is_current_stream_capturing()
    graph, y = capture(lambda: x + 1)
    graph.replay()
    assert y.sum().item() == 8


@pytest.mark.parametrize("given_up", [False, True])
@OF_THE_CORE
def test_a_thread_that_did_not_begin_a_capture_leaves_it_sound(given_up):
    graphs, stream = [torch.chip.Graph()], torch.chip.Stream()
    x = torch.ones(4, device="chip")
    errors: list[str] = []

    def elsewhere() -> None:
        if given_up:
            graphs.pop()
            gc.collect()
            return
        try:
            graphs[0].capture_end()
        except RuntimeError as error:
            errors.append(str(error))

    with torch.chip.stream(stream):
        graphs[0].capture_begin()
        y = x + 1
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        z = y + 1  # allocates in the thread that began
        if given_up:
            assert not stream.is_capturing() and z.sum().item() == 12
        else:
            assert "another thread" in errors[0] and stream.is_capturing()
            graphs[0].capture_end()
    graph, y = capture(lambda: x + 1)
    x.fill_(3)
    for each in [graph, *graphs]:
        each.replay()
    assert torch.all(y == 4) and (given_up or torch.all(z == 5))


@OF_THE_CORE
def test_the_first_random_numbers_of_a_process_are_drawn_in_a_capture():
    code = """
        import torch
        torch.manual_seed(3)
        graph = torch.chip.Graph()
        with torch.chip.graph(graph):
            x = torch.rand(4, device="chip")
        graph.replay()
        torch.manual_seed(3)
        print(torch.equal(x, torch.rand(4, device="chip")))
    """
    assert output(code).strip() == "True"


def test_a_python_error_ends_the_capture():
    x = torch.ones(4, device="chip")
    with pytest.raises(ZeroDivisionError):
        capture(lambda: (x.add_(1), 1 // 0))
    assert torch.equal(x.cpu(), torch.ones(4))
    x.add_(1)
    assert x.sum().item() == 8


@OF_THE_CORE
def test_work_of_a_stream_that_is_not_joined_fails_the_capture():
    x, side = torch.ones(4, device="chip"), torch.chip.Stream()

    def function() -> None:
        side.wait_stream(torch.chip.current_stream())
        with torch.chip.stream(side):
            x.add_(1)

    with pytest.raises(RuntimeError, match="first stream does not wait"):
        capture(function)
    assert not side.is_capturing() and x.sum().item() == 4


def test_a_stream_may_be_joined_by_two_others():
    x, (side, other) = torch.ones(4, device="chip"), (torch.chip.Stream(), torch.chip.Stream())

    def function() -> None:
        side.wait_stream(torch.chip.current_stream())
        with torch.chip.stream(side):
            x.add_(1)
        done = side.record_event()
        other.wait_event(done)
        torch.chip.current_stream().wait_event(done)

    graph, _ = capture(function)
    graph.replay()
    assert x.sum().item() == 8


def test_calls_on_other_streams_are_not_captured():
    x, y = torch.ones(4, device="chip"), torch.ones(4, device="chip")

    def function() -> None:
        x.add_(1)
        with torch.chip.stream(torch.chip.default_stream()):
            y.add_(1)

    graph, _ = capture(function)
    assert y.sum().item() == 8 and x.sum().item() == 4
    graph.replay()
    assert y.sum().item() == 8 and x.sum().item() == 8


def test_pinned_memory_is_read_and_written_at_each_replay():
    given, result = torch.zeros(1000, pin_memory=True), torch.zeros(1000, pin_memory=True)

    def function() -> torch.Tensor:
        x = torch.empty(1000, device="chip")
        x.copy_(given, non_blocking=True)
        y = x * 2
        result.copy_(y, non_blocking=True)
        return y

    graph, _ = capture(function)
    for value in (1.0, 2.0):
        given.fill_(value)
        graph.replay()
        torch.chip.synchronize()
        assert torch.all(result == 2 * value)


def test_memory_of_a_graph_is_not_given_to_others_when_memory_is_short():
    gc.collect()
    torch.chip.empty_cache()
    x = torch.ones(1 << 20, device="chip")
    graph, y = capture(lambda: (x + 1) * 2 + 3)
    reserved = torch.chip.memory_reserved()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 40, device="chip")
    torch.chip.empty_cache()
    assert torch.chip.memory_reserved() >= reserved - (20 << 20)
    others = [torch.zeros(1 << 20, device="chip") for _ in range(8)]
    graph.replay()
    assert torch.all(y == 7) and all(torch.all(other == 0) for other in others)
    del graph, y, others
    torch.chip.empty_cache()


def test_a_pool_of_use_mem_pool_serves_a_graph():
    pool = torch.chip.MemPool()
    graph, _y = capture(lambda: torch.ones(1000, device="chip") + 1, pool=pool.id)
    assert graph.pool() == pool.id
    assert [segment["segment_pool_id"] for segment in pool.snapshot()] == [pool.id]
    del graph
    gc.collect()
    assert len(pool.snapshot()) == 1


def test_a_graph_is_replayed_in_another_thread_of_the_autograd_engine():
    x = torch.ones(4, device="chip", requires_grad=True)
    graph, y = capture(lambda: x.detach() * 3)

    class Replay(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            graph.replay()
            return y * grad

    Replay.apply(x).sum().backward()
    assert torch.equal(x.grad.cpu(), torch.full((4,), 3.0))


@OF_THE_CORE
def test_the_profiler_shows_the_kernels_of_a_replay():
    x = torch.ones(4, device="chip")
    graph, _ = capture(lambda: torch.exp(x + 1))
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]
    with torch.profiler.profile(activities=activities) as profile:
        graph.replay()
    kernels = [event.name for event in profile.events() if event.device_type.name == "CHIP"]
    assert kernels == ["aten::add.Tensor", "aten::exp"]


def test_a_graph_outlives_what_it_captured():
    def build() -> tuple[torch.chip.Graph, torch.Tensor, torch.Tensor]:
        x = torch.ones(100, device="chip")
        graph, y = capture(lambda: torch.relu(x * 2) + 1)
        return graph, x, y

    built = [build() for _ in range(3)]
    gc.collect()
    for graph, x, y in built:
        x.fill_(4)
        graph.replay()
        assert torch.all(y == 9)
