"""Random numbers in graphs, as PyTorch's test/test_cuda.py tests those of CUDA."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.helpers.graphs import OF_THE_CORE, capture
from tests.privateuse1.inventory import covers

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
    "dropout": lambda x: torch.nn.functional.dropout(x, p=0.1),
    "rrelu": lambda x: torch.nn.functional.rrelu(x - 0.5, training=True),
}


@covers("cuda_graphs", "test_graph_rng_distributions", "test_graph_rng_functional")
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
        expected = [draw(x) for _ in range(4)]
        torch.chip.manual_seed(seed)
        drawn = []
        for _ in range(2):
            graph.replay()
            drawn += [first.clone(), second.clone()]
        assert all(map(torch.equal, drawn, expected))


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


def test_a_graph_registers_generators_of_any_device():
    for generator in torch.chip.default_generators:
        torch.chip.Graph().register_generator_state(generator)
    with pytest.raises(RuntimeError, match="'chip' device type"):
        torch.chip.Graph().register_generator_state(torch.default_generator)


@OF_THE_CORE
@pytest.mark.full
def test_compiled_code_draws_once_per_replay_from_the_state_of_the_capture():
    from torch._inductor import inductor_prims

    from isthmus.chip.compile import chip_calls, host_inductor, rewrite

    seeds = chip_calls.on_chip(inductor_prims.seeds, 0)
    code = host_inductor._Compiled(
        lambda _: [seeds(2, torch.device("cpu"))], 0, rewrite.Outputs(inputs={}, on_cpu=())
    )
    default = torch.chip.default_generators[0]
    outer, state = default.graphsafe_get_state(), default.clone_state().manual_seed(5)
    default.graphsafe_set_state(state)
    expected = [code([])[0].tolist() for _ in range(3)]
    state.manual_seed(5)
    graph, (result,) = capture(code, [])
    default.graphsafe_set_state(outer)
    before, found = outer.get_state(), []
    for _ in range(3):
        graph.replay()
        found.append(result.tolist())
    assert found == expected and torch.equal(default.get_state(), before)
