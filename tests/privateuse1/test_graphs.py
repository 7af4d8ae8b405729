"""Graphs, as PyTorch's test/test_cuda.py tests those of CUDA."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import ASGD, SGD, Adadelta, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop, Rprop
from torch.utils.checkpoint import checkpoint

from tests.privateuse1 import covers

OF_THE_CORE = pytest.mark.host(
    "a driver's own graphs refuse random numbers, external events and copies to the host, and name no kernels"
)

POOLS = ("own", "of another graph", "of a handle")


def capture(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[torch.chip.Graph, Any]:
    """Return a graph of the call and its result."""
    graph = torch.chip.Graph()
    with torch.chip.graph(graph, **options):
        result = function(*args)
    return graph, result


def add_ten_times(x: torch.Tensor) -> torch.Tensor:
    for _ in range(10):
        x = x + 1
    return x


@covers("cuda_graphs", "test_graph_is_current_stream_capturing")
def test_a_stream_knows_whether_it_is_captured():
    stream, graph = torch.chip.Stream(), torch.chip.Graph()
    assert not torch.chip.is_current_stream_capturing()
    with torch.chip.stream(stream), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not stream.is_capturing()
        graph.capture_begin()
        assert torch.chip.is_current_stream_capturing() and stream.is_capturing()
        assert not torch.chip.default_stream().is_capturing()
        graph.capture_end()
    assert not stream.is_capturing()


@covers("cuda_graphs", "test_graph_capture_simple")
def test_a_replay_runs_what_was_captured():
    x = torch.ones(1000, device="chip")
    stream, graph = torch.chip.Stream(), torch.chip.Graph()
    with torch.chip.stream(stream):
        torch.chip.empty_cache()
        graph.capture_begin()
        y = add_ten_times(x)
        graph.capture_end()
    torch.chip.current_stream().wait_stream(stream)
    x.fill_(5)
    graph.replay()
    assert y.sum().item() == 15000


@covers("cuda_graphs", "test_accelerator_graph_simple")
def test_the_graph_of_the_accelerator():
    stream, graph = torch.Stream(), torch.accelerator.Graph()
    with stream, graph:
        x = torch.full((1000,), 1, device="chip")
        assert stream.is_capturing()
        y = add_ten_times(x)
    assert not torch.accelerator.current_stream().is_capturing()
    y.zero_()
    graph.replay()
    assert y.sum().item() == 11000


@covers("cuda_graphs", "test_graph_capture_reset_recapture")
def test_a_graph_can_be_captured_again_after_reset():
    x = torch.ones(1000, device="chip")
    graph, y = capture(add_ten_times, x)
    graph.replay()
    assert y.sum().item() == 11000
    with pytest.raises(RuntimeError, match="reset"), torch.chip.graph(graph):
        pass
    graph.reset()
    with torch.chip.graph(graph):
        y.fill_(2)
        z = add_ten_times(y)
    graph.replay()
    assert z.sum().item() == 12000
    graph.reset()
    with pytest.raises(RuntimeError, match="captured nothing"):
        graph.replay()


@covers("cuda_graphs", "test_cuda_graph_raw_graph_reset_and_recapture")
@covers("cuda_graphs", "test_cuda_graph_raw_graph_keep_graph_false")
def test_instantiate():
    graph, x = torch.chip.Graph(keep_graph=True), torch.zeros(2000, device="chip")
    for step in (1.0, 2.0):
        x = torch.zeros(2000, device="chip")
        with torch.chip.graph(graph, capture_error_mode="relaxed"):
            x += step
        for i in (1, 2):
            graph.instantiate()
            graph.replay()
            assert torch.all(x == i * step)
        graph.reset()
    graph, _ = capture(lambda: x + 1)
    with pytest.raises(RuntimeError, match="only when keep_graph=true"):
        graph.instantiate()
    with pytest.raises(RuntimeError, match="cudaGraph_t"):
        graph.raw_cuda_graph()


@covers("cuda_graphs", "test_graph_debugdump")
@OF_THE_CORE
def test_debug_dump(tmp_path):
    x, graph, side = torch.ones(100, device="chip"), torch.chip.Graph(), torch.chip.Stream()
    graph.enable_debug_mode()
    with torch.chip.graph(graph):
        y = x * 2
        side.wait_stream(torch.chip.current_stream())
        with torch.chip.stream(side):
            z = y + 1
        torch.chip.current_stream().wait_stream(side)
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert "aten::mul" in text and "aten::add" in text and "->" in text
    graph.replay()
    assert torch.all(z == 3)


@covers("cuda_graphs", "test_graph_error")
def test_the_default_stream_is_not_captured():
    with pytest.raises(RuntimeError, match="graphs must be captured on a non-default stream"):
        torch.chip.Graph().capture_begin()
    assert torch.ones(1, device="chip").item() == 1


@covers("cuda_graphs", "test_graph_warn_if_has_zero_nodes")
@OF_THE_CORE
def test_an_empty_graph_warns():
    with pytest.warns(UserWarning, match="graph is empty"):
        capture(lambda: None)


@covers("cuda_graphs", "test_graph_capture_oom")
@OF_THE_CORE
def test_out_of_memory_in_a_capture():
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="out of memory"):
        capture(lambda: torch.zeros(2**40, device="chip"))
    graph, y = capture(lambda: torch.ones(3, device="chip"))
    graph.replay()
    assert y.sum().item() == 3


@covers("cuda_graphs", "test_repeat_graph_capture_cublas_workspace_memory")
def test_captures_leave_no_memory_behind():
    a, b = torch.rand(256, 128, device="chip"), torch.rand(128, 64, device="chip")
    torch.mm(a, b)
    torch.chip.empty_cache()
    before = torch.chip.mem_get_info()[0]
    for _ in range(20):
        graph, _ = capture(torch.mm, a, b)
        graph.replay()
        del graph, _
    torch.chip.empty_cache()
    assert torch.chip.mem_get_info()[0] >= before - 2**21


@covers("cuda_graphs", "test_graph_rng_functional")
@pytest.mark.parametrize(
    "function",
    [lambda x: torch.nn.functional.dropout(x, p=0.1), lambda x: torch.nn.functional.rrelu(x, training=True)],
)
@OF_THE_CORE
def test_random_layers_advance_the_generator_at_each_replay(function):
    x = torch.randn(1000, device="chip")
    torch.chip.manual_seed(5)
    expected = x
    for _ in range(6):
        expected = function(expected)
    fixed = x.clone()
    torch.chip.manual_seed(5)
    graph, result = capture(lambda: function(function(fixed)))
    graph.replay()
    fixed.copy_(function(function(result)))
    graph.replay()
    assert torch.equal(result, expected)
    for seed in (6, 128):
        torch.chip.manual_seed(seed)
        fixed.copy_(x)
        for _ in range(3):
            graph.replay()
        assert not torch.equal(result, expected)
        torch.chip.manual_seed(seed)
        for _ in range(3):
            expected = function(function(x))
        assert torch.equal(result, expected)


P = torch.rand(100, generator=torch.Generator().manual_seed(1))
DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "bernoulli": torch.bernoulli,
    "normal": lambda x: torch.normal(x, 1.0),
    "poisson": torch.poisson,
    "rand": lambda x: torch.rand(100, device=x.device),
    "randint": lambda x: torch.randint(0, 3, (100,), device=x.device),
    "randn": lambda x: torch.randn(100, device=x.device),
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(x),
    "cauchy_": lambda x: torch.empty_like(x).cauchy_(),
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
    "geometric_": lambda x: torch.empty_like(x).geometric_(0.3),
    "log_normal_": lambda x: torch.empty_like(x).log_normal_(),
    "normal_": lambda x: torch.empty_like(x).normal_(),
    "random_": lambda x: torch.empty_like(x).random_(),
    "uniform_": lambda x: torch.empty_like(x).uniform_(),
}


@covers("cuda_graphs", "test_graph_rng_distributions")
@pytest.mark.parametrize("name", DRAWS)
@OF_THE_CORE
def test_a_replay_draws_the_numbers_of_eager(name):
    draw, x = DRAWS[name], P.to("chip")
    torch.chip.manual_seed(5)
    state = torch.chip.get_rng_state()
    graph, (first, second) = capture(lambda: (draw(x), draw(x)))
    assert torch.equal(torch.chip.get_rng_state(), state), "the capture drew numbers"
    for seed in (6, 314):
        torch.chip.manual_seed(seed)
        expected = [draw(x), draw(x)]
        torch.chip.manual_seed(seed)
        graph.replay()
        assert torch.equal(first, expected[0]) and torch.equal(second, expected[1])


@covers("cuda_graphs", "test_graphsafe_set_get_rng_state")
@OF_THE_CORE
def test_states_of_generators_are_those_of_the_capture():
    def states(generator: torch.Generator) -> tuple[torch.Generator, torch.Generator]:
        generator.manual_seed(0)
        return generator.graphsafe_get_state(), generator.clone_state()

    def draw(generator: torch.Generator, old: torch.Generator, new: torch.Generator) -> list[torch.Tensor]:
        generator.graphsafe_set_state(new)
        drawn = [torch.rand(5, device="chip", generator=generator)]
        generator.graphsafe_set_state(old)
        return drawn + [torch.rand(5, device="chip", generator=generator) for _ in range(2)]

    own, default = torch.Generator(device="chip"), torch.chip.default_generators[0]
    own_states, default_states = states(own), states(default)
    graph = torch.chip.Graph()
    for state in default_states:
        graph.register_generator_state(state)
    with torch.chip.graph(graph):
        result = draw(default, *default_states)
    for _ in range(3):
        expected = draw(own, *own_states)
        graph.replay()
        assert [state.get_offset() for state in own_states] == [
            state.get_offset() for state in default_states
        ]
        assert all(map(torch.equal, result, expected))


@covers("cuda_graphs", "test_memory_stats_of_multiple_generators_and_graphs")
@OF_THE_CORE
def test_graphs_and_generators_leave_no_memory():
    gc.collect()
    torch.chip.empty_cache()
    before = torch.chip.memory_stats()["active_bytes.all.current"]
    graphs = [torch.chip.Graph() for _ in range(3)]
    generator = torch.chip.default_generators[0]
    for graph in graphs:
        for state in (generator.graphsafe_get_state(), generator.clone_state()):
            graph.register_generator_state(state)
        with torch.chip.graph(graph):
            torch.rand(1, device="chip")
        graph.replay()
    del graph
    graphs.clear()
    gc.collect()
    torch.chip.empty_cache()
    assert torch.chip.memory_stats()["active_bytes.all.current"] == before


@covers("cuda_graphs", "test_graph_manual_seed_mismatch_raises")
@OF_THE_CORE
def test_a_capture_takes_no_other_seed():
    torch.chip.manual_seed(0)
    with pytest.raises(RuntimeError, match="manual_seed"):
        capture(lambda: torch.chip.manual_seed(1))
    graph, y = capture(lambda: (torch.chip.manual_seed(0), torch.rand(3, device="chip"))[1])
    graph.replay()
    torch.chip.manual_seed(0)
    assert torch.equal(y, torch.rand(3, device="chip"))


@covers("cuda_graphs", "test_graph_checkpoint_preserve_rng_state")
@OF_THE_CORE
def test_checkpoint_restores_the_generator_in_a_graph():
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(torch.randn(1, device="chip"))

    def step() -> torch.Tensor:
        x = torch.ones(1, device="chip", requires_grad=True)
        return torch.autograd.grad(checkpoint(function, x, use_reentrant=False), x)[0]

    graph, result = capture(step)
    for seed in (42, 43):
        torch.chip.manual_seed(seed)
        expected, following = step(), torch.rand(3, device="chip")
        torch.chip.manual_seed(seed)
        graph.replay()
        assert torch.equal(result, expected)
        assert torch.equal(torch.rand(3, device="chip"), following)


def pools(kind: str, first: torch.chip.Graph | None = None) -> dict[str, Any]:
    if kind == "own":
        return {}
    return {"pool": torch.chip.graph_pool_handle() if first is None else first.pool()}


def add_with_temporaries(x: torch.Tensor, value: int) -> torch.Tensor:
    return (x.clone() + value) + (x.clone() + value)


@covers("cuda_graphs", "test_graph_two_successive")
def test_two_graphs_in_succession():
    def several(x: torch.Tensor, value: int, count: int = 5) -> torch.Tensor:
        for _ in range(count):
            x = add_with_temporaries(x, value)
        return x

    reserved = {}
    for kind in POOLS:
        torch.chip.empty_cache()
        x = torch.ones(1000, device="chip")
        options = pools(kind) if kind == "of a handle" else {}
        first, a = capture(lambda x: several(x.clone(), 1), x, **options)
        second, b = capture(several, a, 1, **(pools(kind, first) if kind == "of another graph" else options))
        del a
        c = several(x.clone(), 3, 2)
        first.replay()
        c = several(c, 3, 2)
        second.replay()
        c = several(c, 3, 2)
        assert b.sum().item() == 1000 * 3070 and c.sum().item() == 1000 * 442
        reserved[kind] = torch.chip.memory_stats()["reserved_bytes.all.current"]
        del x, b, c, first, second
    assert reserved["own"] - reserved["of a handle"] == 2 << 20
    assert reserved["own"] - reserved["of another graph"] == 2 << 20


@covers("cuda_graphs", "test_graph_three_successive")
@pytest.mark.parametrize("kind", POOLS)
def test_graphs_that_share_a_pool_are_replayed_in_their_order(kind):
    x = torch.ones(1000, device="chip")
    options = pools(kind) if kind == "of a handle" else {}
    g0, (c, d) = capture(lambda: (x + 1, x + 2), **options)
    later = pools(kind, g0) if kind == "of another graph" else options
    held = [c]
    del c
    g1, e = capture(lambda: held.pop() + 3, **later)
    g2, f = capture(lambda: d + 4, **later)
    for graph in (g0, g1, g2):
        graph.replay()
    assert e.sum().item() == 5000 and f.sum().item() == 7000
    # f took the memory of c, which was free.
    for graph in (g0, g2, g1):
        graph.replay()
    assert e.sum().item() == (5000 if kind == "own" else 10000) and f.sum().item() == 7000


@covers("cuda_graphs", "test_graph_concurrent_replay")
def test_graphs_replayed_on_two_streams():
    x = torch.ones(100000, device="chip")
    first, a = capture(lambda: add_with_temporaries(x.clone(), 1))
    second, b = capture(lambda: add_with_temporaries(x.clone(), 2))
    streams = [torch.chip.Stream(), torch.chip.Stream()]
    torch.chip.synchronize()
    streams[1].wait_stream(streams[0])
    for stream, graph in zip(streams, (first, second), strict=True):
        with torch.chip.stream(stream):
            graph.replay()
    for stream in streams:
        torch.chip.current_stream().wait_stream(stream)
    assert a.sum().item() == 100000 * 4 and b.sum().item() == 100000 * 6


@covers("cuda_graphs", "test_graph_memory_stats_and_use_result_after_destroy_graph")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("elements", [128, 1 << 18, (10 << 18) + 128])
def test_memory_of_a_graph(elements):
    gc.collect()
    torch.chip.empty_cache()
    pool = "small_pool" if elements * 4 <= 1 << 20 else "large_pool"

    def stats() -> dict[str, int]:
        found = torch.chip.memory_stats()
        return {
            name: found[f"{name}.{pool}.current"]
            for name in ("segment", "reserved_bytes", "active", "requested_bytes")
        }

    def several(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for _ in range(5):
            x = x.clone() + 1
        return x

    x = torch.ones(elements, device="chip")
    before = stats()
    graph, y = capture(several, x)
    captured = stats()
    assert captured["active"] - before["active"] == 1
    assert captured["requested_bytes"] - before["requested_bytes"] == elements * 4
    for _ in range(2):
        graph.replay()
        assert stats() == captured
        assert y.sum().item() == 6 * elements
        torch.chip.empty_cache()
    del graph
    torch.chip.empty_cache()
    after = stats()
    assert y.sum().item() == 6 * elements
    assert after["segment"] - before["segment"] == 1
    assert after["requested_bytes"] - before["requested_bytes"] == elements * 4


@covers("cuda_graphs", "test_graph_record_stream")
def test_record_stream_in_a_capture():
    streams = [torch.chip.Stream() for _ in range(3)]
    pending = torch.zeros(3, device="chip")
    x, graph = torch.zeros(3, device="chip"), torch.chip.Graph()
    torch.chip.synchronize()
    with torch.chip.stream(streams[0]):
        pending.record_stream(streams[0])
        pending.fill_(1)
    del pending
    with torch.chip.stream(streams[1]):
        graph.capture_begin()
        y = x.clone()
        address = y.data_ptr()
        streams[2].wait_stream(streams[1])
        with torch.chip.stream(streams[2]):
            y.fill_(1)
            y.record_stream(streams[2])
            del y
        assert torch.empty(3, device="chip").data_ptr() != address
        streams[1].wait_stream(streams[2])
        graph.capture_end()
    torch.chip.synchronize()
    torch.zeros(3, device="chip")
    graph.replay()


@covers("cuda_graphs", "test_graph_cudnn_dropout")
@OF_THE_CORE
def test_a_recurrent_layer_with_dropout():
    model = torch.nn.LSTM(16, 16, 2, dropout=0.5).to("chip")
    x = torch.ones(5, 4, 16, device="chip")
    model(x)
    graph, (y, _) = capture(model, x)
    torch.chip.manual_seed(3)
    expected, following = model(x)[0], model(x)[0]
    torch.chip.manual_seed(3)
    graph.replay()
    assert torch.equal(y, expected)
    assert torch.equal(model(x)[0], following)


@covers("cuda_graphs", "test_cuda_graph_error_options")
@pytest.mark.parametrize("mode", ["thread_local", "relaxed"])
def test_other_threads_allocate_during_a_capture(mode):
    def allocate() -> None:
        with torch.chip.stream(torch.chip.Stream()):
            torch.chip.caching_allocator_delete(torch.chip.caching_allocator_alloc(1024))

    def function() -> torch.Tensor:
        x = torch.zeros(2000, device="chip")
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
        return x + x + x

    graph, y = capture(function, capture_error_mode=mode)
    y.fill_(1)
    graph.replay()
    assert y.sum().item() == 0
    with pytest.raises(RuntimeError, match="Unknown capture error mode"):
        capture(function, capture_error_mode="strict")


@covers("cuda_graphs", "test_cuda_graph_allocator_propagates_stream")
def test_streams_of_a_capture_share_its_pool():
    x = torch.randn(1 << 20, device="chip")
    known = {segment["segment_pool_id"] for segment in torch.chip.memory_snapshot()}
    graph, streams = torch.chip.Graph(), [torch.chip.Stream(), torch.chip.Stream()]
    with torch.chip.stream(streams[0]):
        graph.capture_begin()
        y = x + x
    with torch.chip.stream(streams[1]):
        streams[1].wait_stream(streams[0])
        z = y + x
    streams[0].wait_stream(streams[1])
    with torch.chip.stream(streams[0]):
        graph.capture_end()
    found = [segment["segment_pool_id"] for segment in torch.chip.memory_snapshot()]
    assert [id for id in found if id not in known] == [graph.pool()] * 2
    z.zero_()
    graph.replay()
    assert torch.equal(z, x + x + x)


@covers("cuda_graphs", "test_cuda_graph_tensor_item_not_allowed")
def test_item_is_refused_with_the_line_that_called_it():
    x, index = torch.rand(5, 5, device="chip"), torch.zeros(5, dtype=torch.int64, device="chip")
    graph = torch.chip.Graph()
    with (
        pytest.raises(
            RuntimeError, match=r"failed.*item.*not permitted when stream is capturing.*test_graphs.py:"
        ),
        torch.chip.graph(graph),
        pytest.raises(
            RuntimeError, match=r"item.*not permitted when stream is capturing \(.*test_graphs.py:"
        ),
    ):
        x[0] *= x[index[0].item()]
    graph.reset()
    with torch.chip.graph(graph):
        y = x + 1
    graph.replay()
    assert torch.equal(y, x + 1)


def mlp(width: int = 16) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(width, width), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(width, width)
    ).to("chip")


class Named(torch.nn.Module):
    """Takes its input from a dictionary, of which it leaves one tensor unused."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.net(inputs["x"])


class Gather(torch.nn.Module):
    """Has no parameters."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        index = torch.arange(x.size(0), device=x.device).view(-1, 1).repeat(1, x.size(1))
        return {"output": torch.gather(x, 0, index)}


def build() -> torch.nn.Sequential:
    return torch.nn.Sequential(Named(), mlp(), Gather())


@covers("cuda_graphs", "test_graph_make_graphed_callables")
@pytest.mark.parametrize(("amp", "unused"), [(False, True), (True, True), (False, False)])
@OF_THE_CORE
def test_graphed_callables_train_as_eager_ones(amp, unused):
    control, graphed = build(), build()
    graphed.load_state_dict(control.state_dict())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (graphed, control)]
    x = torch.randn(8, 16, device="chip")
    h, h2, y_pred, other = (torch.randn(8, 16, device="chip", requires_grad=True) for _ in range(4))
    y = torch.randn(8, 16, device="chip")
    inputs = {"x": x, "unused_input": other} if unused else {"x": x}
    relu, loss = torch.nn.functional.relu, torch.nn.functional.mse_loss
    with torch.autocast("chip", enabled=amp, cache_enabled=False):
        *parts, relu_graphed, loss_graphed = torch.chip.make_graphed_callables(
            (*graphed, relu, loss),
            ((inputs,), (h,), (h2,), (y_pred,), (y_pred, y)),
            allow_unused_input=unused,
        )
    graphed = torch.nn.Sequential(*parts)
    data = [(torch.rand_like(x), torch.rand_like(y)) for _ in range(4)]
    for model, optimizer, activation, criterion in (
        (graphed, optimizers[0], relu_graphed, loss_graphed),
        (control, optimizers[1], relu, loss),
    ):
        torch.chip.manual_seed(5)
        for given, target in data:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("chip", enabled=amp, cache_enabled=False):
                result = model({**inputs, "x": given})["output"]
                criterion(activation(result), target).backward()
            optimizer.step()
    for ours, theirs in zip(graphed.parameters(), control.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    graphed.eval(), control.eval()
    assert torch.equal(graphed(inputs)["output"], control(inputs)["output"])


@covers("cuda_graphs", "test_graph_make_graphed_callables")
def test_graphed_callables_refuse_what_cannot_be_graphed():
    x = torch.randn(4, 16, device="chip", requires_grad=True)
    with torch.autocast("chip"), pytest.raises(RuntimeError, match="cache_enabled=False"):
        torch.chip.make_graphed_callables(mlp(), (x,))
    with pytest.raises(AssertionError, match="only tensors"):
        torch.chip.make_graphed_callables(torch.add, (x, 1))
    hooked = mlp()
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(AssertionError, match="hooks"):
        torch.chip.make_graphed_callables(hooked, (x,))
    with pytest.raises(RuntimeError, match="allow_unused"):
        torch.chip.make_graphed_callables(lambda x, y: x * 2, (x, x.detach().clone().requires_grad_()))
    graphed = torch.chip.make_graphed_callables(lambda x: x * 2, (x.detach(),))
    with pytest.raises(ValueError, match=r"\(1, 16\).*\(4, 16\)"):
        graphed(x.detach()[:1])


@covers("cuda_graphs", "test_graph_make_graphed_callables_parameterless_nograd_module")
def test_a_graphed_module_without_gradients():
    x, module = torch.randn(4, 16, device="chip"), Gather()
    graphed = torch.chip.make_graphed_callables(module, (x,))
    for _ in range(2):
        x = torch.rand(4, 16, device="chip", requires_grad=True)
        assert torch.equal(graphed(x)["output"], Gather()(x)["output"])
    graphed.eval()
    assert torch.equal(graphed(x)["output"], x)


@covers("cuda_graphs", "test_graph_make_graphed_callables_same_pool")
def test_graphed_callables_of_one_pool():
    pool = torch.chip.graph_pool_handle()
    models, graphed = [torch.nn.Linear(16, 16).to("chip") for _ in range(3)], []
    for model in models:
        copy = torch.nn.Linear(16, 16).to("chip")
        copy.load_state_dict(model.state_dict())
        graphed.append(
            torch.chip.make_graphed_callables(copy, (torch.randn(4, 16, device="chip"),), pool=pool)
        )
    for model, copy in zip(models, graphed, strict=True):
        x = torch.randn(4, 16, device="chip")
        ours, theirs = copy(x), model(x)
        ours.norm().backward()
        theirs.norm().backward()
        assert torch.equal(ours, theirs)
        for mine, other in zip(copy.parameters(), model.parameters(), strict=True):
            assert torch.equal(mine.grad, other.grad) and mine.grad.data_ptr() != other.grad.data_ptr()


CAPTURABLE = (ASGD, Adadelta, Adam, AdamW, Adamax, NAdam, RAdam, RMSprop, Rprop)


def step_with(
    optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor], grads: list[torch.Tensor]
) -> None:
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad.clone()
    optimizer.step()


@covers("cuda_graphs", "test_graph_optims")
@pytest.mark.parametrize("kind", CAPTURABLE, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True, "weight_decay": 0.1}])
def test_captured_optimizers(kind, options):
    if kind is Rprop:
        options = {"foreach": options["foreach"]}
    start = [torch.randn(5, 5, device="chip"), torch.randn((), device="chip")]
    control, graphed = ([x.clone().requires_grad_() for x in start] for _ in range(2))
    grads = [[torch.randn_like(x) for x in start] for _ in range(5)]
    optimizer = kind(control, lr=0.1, capturable=False, **options)
    for each in grads:
        step_with(optimizer, control, each)
    optimizer = kind(graphed, lr=0.1, capturable=True, **options)
    for each in grads[:3]:
        step_with(optimizer, graphed, each)
    graph, _ = capture(optimizer.step)
    for each in grads[3:]:
        for parameter, grad in zip(graphed, each, strict=True):
            parameter.grad.copy_(grad)
        graph.replay()
    torch.testing.assert_close(graphed, control)


@covers("cuda_graphs", "test_graph_optims_with_explicitly_capturable_param_groups")
@pytest.mark.parametrize("kind", CAPTURABLE, ids=lambda kind: kind.__name__)
def test_a_group_that_is_not_capturable_is_refused(kind):
    first, second = (torch.ones(1, device="chip", requires_grad=True) for _ in range(2))
    groups = [{"params": [first], "capturable": True}, {"params": [second], "capturable": False}]
    optimizer = kind(groups)
    step_with(optimizer, [first, second], [torch.ones_like(first)] * 2)
    with pytest.raises(RuntimeError, match="Attempting CUDA graph capture"):
        capture(optimizer.step)


@covers("cuda_graphs", "test_graph_scaling_fused_optimizers")
@pytest.mark.parametrize("kind", [Adam, AdamW, SGD], ids=lambda kind: kind.__name__)
@OF_THE_CORE
def test_captured_fused_optimizers_with_a_scaler(kind):
    start = [torch.randn(5, 5, device="chip") for _ in range(2)]
    grads = [[torch.randn_like(x) for x in start] for _ in range(4)]

    def train(graphs: bool) -> list[torch.Tensor]:
        parameters = [x.clone().requires_grad_() for x in start]
        options = {} if kind is SGD else {"capturable": True}
        optimizer = kind(parameters, lr=0.1, fused=True, **options)
        scaler = torch.amp.GradScaler("chip", init_scale=128.0)
        scaler._lazy_init_scale_growth_tracker(torch.device("chip"))

        def step() -> None:
            scaler.step(optimizer)
            scaler.update()

        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
        graph = None
        for index, each in enumerate(grads):
            for parameter, grad in zip(parameters, each, strict=True):
                parameter.grad.copy_(grad)
            if graphs and index == 2:
                graph, _ = capture(step)
            graph.replay() if graph else step()
        return parameters

    torch.testing.assert_close(train(True), train(False), rtol=0, atol=0)


@covers("cuda_graphs", "test_graph_grad_scaling")
def test_a_scaler_of_captured_gradients():
    scaler = torch.amp.GradScaler("chip", init_scale=4.0, growth_interval=1000)
    weight = torch.ones(100, device="chip", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    given = torch.ones_like(weight)

    def step() -> None:
        scaler.scale((weight.half() * given).sum()).backward()

    step()
    optimizer.zero_grad(set_to_none=True)
    graph, _ = capture(step)
    for value, scale, grad in ((5, 4, 20), (20000, 2, float("inf")), (5, 2, 10), (40000, 1, float("inf"))):
        given.fill_(value)
        weight.grad.zero_()
        graph.replay()
        assert torch.all(weight.grad == grad)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale


@covers("cuda_graphs", "test_graph_timing", "test_graph_external_wait_and_record")
@OF_THE_CORE
def test_external_events_are_those_of_each_replay():
    x = torch.ones(1000, device="chip")
    start, end = (torch.chip.Event(enable_timing=True, external=True) for _ in range(2))

    def function() -> torch.Tensor:
        start.record()
        y = x + 1
        end.record()
        return y

    graph, _ = capture(function)
    assert start.query(), "recorded by the capture"
    waiting, z = capture(lambda: (end.wait(), x * 2)[1])
    for _ in range(2):
        graph.replay()
        with torch.chip.stream(torch.chip.Stream()):
            waiting.replay()
        torch.chip.synchronize()
        assert end.query() and start.elapsed_time(end) > 0
        assert torch.all(z == 2)


def pinned(x: torch.Tensor) -> torch.Tensor:
    return x.pin_memory()


@covers("cuda_graphs", "test_pin_memory_no_use", "test_pin_memory_no_use2", "test_pin_memory_use")
def test_pinned_memory_in_a_capture():
    def function() -> torch.Tensor:
        first, second = torch.empty(8, pin_memory=True), torch.empty(8, pin_memory=True)
        assert first.data_ptr() != second.data_ptr()
        address = second.data_ptr()
        del second
        used = pinned(torch.arange(8.0))
        assert used.data_ptr() == address
        x = torch.zeros(8, device="chip")
        x.copy_(used, non_blocking=True)
        held.append(used)
        return x + 1

    held: list[torch.Tensor] = []
    graph, y = capture(function, capture_error_mode="thread_local")
    for value in (3, 4):
        held[0].fill_(value)
        graph.replay()
        assert torch.all(y == value + 1)


@covers("cuda_graphs", "test_two_graphs")
@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("deleted", [True, False])
def test_pinned_memory_of_two_graphs(used, deleted):
    pool, held, addresses = torch.chip.graph_pool_handle(), [], []

    def function() -> None:
        data = torch.empty(1 << 10).pin_memory()
        x = torch.zeros(1 << 10, device="chip")
        if used:
            x.copy_(data, non_blocking=True)
        addresses.append(data.data_ptr())
        if not deleted:
            held.append(data)

    first, second = capture(function, pool=pool), capture(function, pool=pool)
    assert addresses[0] != addresses[1] or (deleted and not used)
    del first, second


@covers("cuda_graphs", "test_unpinned_memory_use", "test_unpinned_memory_use_device_to_host")
@pytest.mark.parametrize("to_device", [True, False])
def test_pageable_memory_is_not_copied_in_a_capture(to_device):
    ends = [torch.ones(8), torch.ones(8, device="chip")]
    to, source = reversed(ends) if to_device else ends
    with pytest.raises(
        RuntimeError, match=r"a copy (to|from) the chip.*not permitted when stream is capturing"
    ):
        capture(lambda: to.copy_(source, non_blocking=True))
