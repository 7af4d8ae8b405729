"""The graph backend: torch.compile on a chip with kernels and no compiler."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import Graph, Node

import isthmus
from isthmus.chip.compile.backend import Settings
from isthmus.chip.compile.backend.grouping import groups_of, sort
from tests.helpers.children import output, run
from tools.repository import ROOT

TRAIN = """
    import torch
    from torch import nn

    def results(model, forward, inputs, target):
        loss = nn.functional.cross_entropy(forward(inputs), target)
        loss.backward()
        found = [loss.detach(), *(parameter.grad for parameter in model.parameters())]
        model.zero_grad()
        return [each.cpu() for each in found]

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to("chip")
    batch = torch.randn(5, 8, device="chip"), torch.randint(0, 4, (5,), device="chip")
    expected = results(model, model, *batch)
"""
BLOCK = """
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(16))

        def forward(self, x):
            wide = x.to(torch.float32)
            return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def rotated(x, cos, sin):
        half = torch.cat((-x[..., 4:], x[..., :4]), dim=-1)
        return x * cos + half * sin

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = Norm(), Norm(), nn.LayerNorm(16)
            self.packed, self.out = nn.Linear(16, 48, bias=False), nn.Linear(16, 16, bias=False)
            self.gate, self.up, self.down = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x, cos, sin):
            q, k, v = (each.transpose(1, 2) for each in self.packed(self.first(x)).view(2, 6, 6, 8).chunk(3, 2))
            q, k = (rotated(each, cos.unsqueeze(1), sin.unsqueeze(1)) for each in (q, k))
            weights = F.softmax(torch.matmul(q, k.transpose(2, 3)) * 8 ** -0.5, dim=-1)
            x = x + self.out(F.dropout(weights, 0.0).matmul(v).transpose(1, 2).reshape(2, 6, 16))
            h = self.second(x)
            return self.third(x + self.down(F.silu(self.gate(h)) * self.up(h)))

    torch.manual_seed(0)
    model = Block().to("chip")
    inputs = [torch.randn(shape, device="chip") for shape in ((2, 6, 16), (1, 6, 8), (1, 6, 8))]

    def step(forward):
        out = forward(*inputs)
        out.square().sum().backward()
        gradients = [parameter.grad.cpu() for parameter in model.parameters()]
        model.zero_grad()
        return [out.detach().cpu(), *gradients]
"""
BENCHMARKS = ROOT / "benchmarks"
FUSED = (
    "rms_norm add_rms_norm rms_norm_backward rotary swiglu swiglu_backward attention attention_backward "
    "dropout_add_norm dropout_add_norm_backward"
)


def on_numpy(code: str, **environment: str) -> list[str]:
    return output(code, ISTHMUS_DRIVER="numpy", **environment).splitlines()


# ---- Results


def test_an_unfused_training_step_is_equal_to_the_bit_and_then_captured() -> None:
    """Captured calls do not pass through the dispatcher."""
    first, later = on_numpy(
        TRAIN
        + """
    unfused = torch.compile(model, backend="isthmus", options={"fuse": False}, fullgraph=True)
    for _ in range(2):
        assert all(map(torch.equal, results(model, unfused, *batch), expected))
    from torch._dynamo.utils import counters
    assert not any(name.startswith("fxgraph_cache") for name in counters["inductor"])

    compiled = torch.compile(lambda x: (x.sum(-1) + 1).softmax(-1), backend="isthmus", options={"fuse": False})
    for _ in range(2):
        torch.chip.reset_dispatch_stats()
        compiled(torch.ones(2, 3, device="chip"))
        print(sum(name != "aten::fill_.Scalar" for name, row in torch.chip.dispatch_stats()["operators"].items()
                  if row["route"] == "kernel"))
    """
    )
    assert (int(first), int(later)) == (3, 0)


def test_patterns_and_pointwise_runs_are_fused() -> None:
    expected = " ".join(sorted(f"isthmus::{name}" for name in FUSED.split()))
    fused, generated = on_numpy(
        BLOCK
        + """
    expected = step(model)
    fused = torch.compile(model, backend="isthmus", options={"capture": False}, fullgraph=True)
    for got, want in zip(step(fused), expected):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    torch.chip.reset_dispatch_stats()
    step(fused)
    rows = torch.chip.dispatch_stats()["operators"]
    print(*sorted(name for name in rows if name.startswith("isthmus::")))
    print(sum(row["route"] == "kernel" for name, row in rows.items() if name.startswith("isthmus_fused::")))
    """
    )
    assert fused == expected
    assert int(generated) > 0


def test_a_run_of_more_operands_than_a_kernel_takes_is_split() -> None:
    (calls,) = on_numpy(
        """
    import torch
    from isthmus.chip.compile.backend import runs

    generator = runs.code_generator()
    runs.code_generator = lambda: generator._replace(most_operands=5)

    def function(first, *others):
        for each in others:
            first = first * 0.5 + each.relu()
        return first

    tensors = [torch.randn(4, 5) for _ in range(12)]
    compiled = torch.compile(function, backend="isthmus", fullgraph=True)
    got = compiled(*(tensor.to("chip") for tensor in tensors))
    torch.testing.assert_close(got.cpu(), function(*tensors))
    rows = torch.chip.dispatch_stats()["operators"]
    assert not {"aten::mul.Tensor", "aten::relu"} & rows.keys(), rows
    print(sum(row["calls"] for name, row in rows.items() if name.startswith("isthmus_fused::")))
    """
    )
    assert int(calls) >= 3


@pytest.mark.full
def test_without_a_compiler_pointwise_operators_are_not_fused() -> None:
    result = run(
        TRAIN
        + """
    for got, want in zip(results(model, torch.compile(model), *batch), expected):
        torch.testing.assert_close(got, want)
    assert not any(name.startswith("isthmus_fused") for name in torch.chip.dispatch_stats()["operators"])
    """,
        ISTHMUS_DRIVER="numpy",
        CC="no-such-compiler",
    )
    assert result.returncode == 0, result.stderr
    assert "isthmus: pointwise operators are not fused: no C compiler 'no-such-compiler'" in result.stderr


@pytest.mark.full
def test_pointwise_runs_are_fused_by_triton(tmp_path: Path) -> None:
    """Triton's interpreter fuses them, since the numpy chip has no Triton backend."""
    pytest.importorskip("triton")
    numpy = Path(isthmus.__file__).parent / "drivers" / "numpy"
    text = (numpy / "driver.toml").read_text().replace('code_generator = "c"', 'code_generator = "triton"')
    text = text.replace("../host", f"{numpy.parent}/host").replace(
        '"operators.py"', f'"{numpy}/operators.py"'
    )
    (tmp_path / "driver.toml").write_text(text)
    (generated,) = output(
        """
    import torch

    x, y = torch.randn(5, 7, device="chip", requires_grad=True), torch.randn(7, device="chip")
    function = lambda: torch.where(x > 0, (x * 2 + y).sigmoid() * y, x.bfloat16().float() - y).square().sum()
    (expected,) = torch.autograd.grad(function(), x)
    for capture in (True, False):
        compiled = torch.compile(function, backend="isthmus", fullgraph=True, options={"capture": capture})
        for _ in range(3):
            torch.testing.assert_close(compiled(), function())
            torch.testing.assert_close(torch.autograd.grad(compiled(), x)[0], expected)
        torch.compiler.reset()
    rows = torch.chip.dispatch_stats()["operators"]
    print(sum(row["route"] == "kernel" for name, row in rows.items() if name.startswith("isthmus_fused::")))
    """,
        ISTHMUS_DRIVER=str(tmp_path / "driver.toml"),
    ).splitlines()
    assert int(generated) > 0


@pytest.mark.full
def test_constants_mutation_randomness_and_asserts() -> None:
    """Results are fresh although they depend on constants alone; written inputs, random numbers, CPU numbers."""
    on_numpy(
        """
    import torch

    def constant(x):
        mask = torch.ones(4, 4, device=x.device).tril()
        return mask, x * mask.sum(-1)

    def mutates(x):
        x.add_(1).mul_(2)
        return x.relu().clone()

    def draws(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x), x.new_empty(3).normal_()

    def one_hot(x):
        return torch.nn.functional.one_hot(x.long().abs(), 4) * x

    for fuse in (False, True):
        for function in (constant, mutates, draws, one_hot):
            results = []
            compiled = torch.compile(function, backend="isthmus", options={"fuse": fuse})
            for each in (function, compiled, compiled):
                torch.manual_seed(3)
                x = torch.arange(4.0, device="chip")
                results.append([x, *([found] if isinstance(found := each(x), torch.Tensor) else found)])
                results[-1][1].add_(0)
            eager, first, second = results
            assert all(map(torch.equal, *([x.cpu() for x in side] for side in (eager, first)))), function
            assert all(map(torch.equal, *([x.cpu() for x in side] for side in (eager, second)))), function
            found = torch.compile(constant, backend="isthmus", options={"fuse": fuse})
            found(x)[0].zero_()
            assert found(x)[0].sum().item() == 10
    number = torch.compile(lambda x, n: x * n + 1, backend="isthmus")
    assert [number(torch.ones(1, device="chip"), torch.tensor(n)).item() for n in (2.0, 3.0)] == [3, 4]
    """
    )


@pytest.mark.full
def test_dynamic_shapes() -> None:
    on_numpy(
        """
    import torch

    def function(x):
        return (x.reshape(-1, x.shape[0]).softmax(-1) * x.shape[1]).exp() + 1

    for fuse in (False, True):
        compiled = torch.compile(function, backend="isthmus", options={"fuse": fuse}, dynamic=True)
        for rows, columns in ((2, 3), (4, 5), (7, 2), (4, 5)):
            x = torch.randn(rows, columns, device="chip")
            torch.testing.assert_close(compiled(x).cpu(), function(x).cpu(), rtol=1e-6 * fuse, atol=0)
    """
    )


@pytest.mark.full
@pytest.mark.parametrize("name", ["llama", "bert", "resnet"])
def test_models_of_transformers(name: str) -> None:
    on_numpy(
        f"""
    import os, sys
    sys.path.insert(0, {str(BENCHMARKS)!r})
    import graph_backend
    graph_backend.Case(graph_backend.{name}).check()
    """
    )


@pytest.mark.full
def test_captured_kernels_follow_inputs_and_results() -> None:
    """Inputs that share memory or not, two forward passes before a backward, errors of kernels, inference mode."""
    (warned,) = on_numpy(
        """
    import torch

    buffer = torch.arange(8.0, device="chip")
    add = torch.compile(lambda a, b: a * 2 + b, backend="isthmus", options={"fuse": False})
    pairs = [(slice(0, 4), slice(2, 6)), (slice(0, 4), slice(4, 8)), (slice(1, 5), slice(3, 7))]
    for one, other in pairs:
        a, b = buffer[one], buffer[other]
        assert add(a, b).tolist() == add(a.clone(), b.clone()).tolist() == (a * 2 + b).tolist()
    kept = [add(buffer[i:i + 1], buffer[:1]) for i in range(3)]
    assert [each.item() for each in kept] == [0, 2, 4]

    layer = torch.nn.Linear(4, 4).to("chip")
    function = lambda x: layer(x).relu().square().sum()
    compiled = torch.compile(function, backend="isthmus", options={"fuse": False})
    inputs = [torch.randn(2, 4, device="chip") for _ in range(2)]
    gradients = []
    for each in (function, compiled, compiled):
        sum(map(each, inputs)).backward()
        gradients.append(layer.weight.grad.cpu())
        layer.zero_grad()
    assert torch.equal(gradients[0], gradients[1]) and torch.equal(gradients[0], gradients[2])

    index = torch.compile(lambda x, i: x[i] + 1, backend="isthmus")
    good, bad = (torch.tensor(each, device="chip") for each in ([1, 2], [1, 99]))
    for i in (good, bad, good):
        try:
            assert index(buffer, i).tolist() == [2, 3]
        except IndexError:
            assert i is bad
    with torch.inference_mode():
        assert add(buffer, buffer).is_inference() and add(buffer, buffer).is_inference()
    views = torch.compile(lambda x: x.view(2, 4).t(), backend="isthmus")
    print(views(buffer).shape)
    select = torch.compile(lambda x: x[x > 2] * 2, backend="isthmus")
    assert select(buffer).tolist() == [6, 8, 10, 12, 14] and select(buffer + 5).numel() == 8
    """
    )
    assert warned == "torch.Size([4, 2])"


def test_captured_calls_do_not_pass_through_the_dispatcher() -> None:
    """A call whose capture fails does; the next one captures."""
    failed, first, later = on_numpy(
        """
    import torch
    from isthmus.chip.compile.backend import execute
    compiled = torch.compile(lambda x: (x.sum(-1) + 1).softmax(-1), backend="isthmus", options={"fuse": False})
    capture = execute._Captures._capture
    for attempt in range(3):
        execute._Captures._capture = capture if attempt else lambda *_: None
        torch.chip.reset_dispatch_stats()
        compiled(torch.ones(2, 3, device="chip"))
        print(sum(name != "aten::fill_.Scalar" for name, row in torch.chip.dispatch_stats()["operators"].items()
                  if row["route"] == "kernel"))
    """
    )
    assert (int(failed), int(first), int(later)) == (3, 3, 0)


def test_calls_while_a_graph_of_the_caller_is_captured() -> None:
    """Calls run on its stream, on which it was captured before, and in another thread, which would capture it now."""
    on_numpy(
        """
    import threading
    import torch

    x, graph, stream = torch.ones(4, device="chip"), torch.chip.Graph(), torch.chip.Stream()
    function = lambda x: (x * 2).cumsum(0)
    compiled = torch.compile(function, backend="isthmus", options={"fuse": False}, dynamic=True)
    other, of_thread = torch.ones(5, device="chip"), []
    compiled(other)
    with torch.chip.stream(stream):
        for _ in range(3):
            compiled(x)
    thread = threading.Thread(target=lambda: of_thread.append(compiled(other)))
    with torch.chip.graph(graph, stream=stream):
        found = compiled(x)
        thread.start()
        thread.join()
    x.fill_(3)
    graph.replay()
    assert found.tolist() == [6, 12, 18, 24]
    assert of_thread[0].tolist() == [2, 4, 6, 8, 10]
    """
    )


def test_fused_numbers_constants_and_pools() -> None:
    """Numbers at the boundary of a comparison, lerp from 0.5 on, quotients of bool, equal runs, views of constants,
    conversions that name the device, empty graphs, and memory of captures that are gone.
    """
    on_numpy(
        """
    import gc, warnings
    import torch
    from isthmus.chip.compile.backend import execute
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", module="torch")

    def function(x, y):
        return (x == 0.1, x <= 0.1, torch.where(x > 0.7, x, -x), torch.lerp(x * 1e30, y, 1.0), (x > 1) / (x > 5) * 2,
                (x.t() + y.t()).t() * 2, (x + y) * 2, torch.nn.functional.softmin(x, 1, dtype=torch.float64))

    x, y = torch.tensor([[0.1, 0.7, 3.0], [-0.1, 0.2, 1.0]]), torch.ones(2, 3)
    compiled = torch.compile(function, backend="isthmus")
    for dtype in (torch.float32, torch.bfloat16):
        inputs = x.to(dtype), y.to(dtype)
        for got, want in zip(compiled(*(each.to("chip") for each in inputs)), function(*inputs)):
            torch.testing.assert_close(got.cpu(), want, equal_nan=True)

    def view(x):
        return torch.arange(10, device="chip")[:x.shape[0]], x + 1

    compiled = torch.compile(view, backend="isthmus", dynamic=True)
    for _ in range(2):
        found = compiled(torch.ones(6, device="chip"))[0]
        assert found.tolist() == [0, 1, 2, 3, 4, 5]
        found.add_(100)
    torch.compile(lambda x: x * 2 + 1, backend="isthmus")(torch.ones(0, device="chip"))
    assert len(execute._pools) == 1
    del compiled
    torch._dynamo.reset()
    gc.collect()
    assert len(execute._pools) == 0
    """
    )


@pytest.mark.full
def test_a_result_at_the_place_of_a_dead_value_moves_alone() -> None:
    """A capture places the result (2 MiB) where a value of 16 MiB died; calls write the result alone."""
    (line,) = on_numpy(
        """
    import torch

    def function(x):
        return x.exp().sum(0).expand(512, 1024) + 1

    x = torch.zeros(4096, 1024, device="chip")
    compiled = torch.compile(function, backend="isthmus", options={"fuse": False})
    want = compiled(x).cpu()
    neighbours = [torch.full((512, 1024), 7.0, device="chip") for _ in range(24)]
    del neighbours[1::2]
    found = [compiled(x) for _ in range(6)]
    print(all(bool((each == 7).all()) for each in neighbours), all(torch.equal(each.cpu(), want) for each in found))
    """
    )
    assert line == "True True"


def test_sizes_that_come_again_are_captured_in_memory_of_the_largest() -> None:
    """All sizes are compiled once, and captured at their second call; those used last are kept."""
    on_numpy(
        """
    import torch
    from isthmus.chip.compile.backend import execute
    execute.MOST_SIZES = 16

    def dispatched(size):
        x = torch.arange(float(size), device="chip")
        want = function(x).cpu()
        torch.chip.reset_dispatch_stats()
        assert torch.equal(compiled(x).cpu(), want)
        return "aten::cumsum" in torch.chip.dispatch_stats()["operators"]

    function = lambda x: ((x * 2).view(-1, 4).sum(-1, keepdim=True) + 1).sqrt().cumsum(0)
    compiled = torch.compile(function, backend="isthmus", options={"fuse": False}, dynamic=True)
    sizes = [4 * (1000 + n) for n in range(12)]
    assert all(map(dispatched, sizes))
    before = torch.chip.memory_reserved()
    assert all(map(dispatched, sizes))
    assert torch.chip.memory_reserved() - before <= 2 << 20
    assert not any(map(dispatched, sizes))
    assert all(map(dispatched, range(8, 32, 4)))
    assert [dispatched(size) for size in sizes[::-1]] == [False] * 10 + [True] * 2
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    """
    )


# ---- Options


def test_options_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.from_options(None).fuse
    monkeypatch.setenv("ISTHMUS_COMPILE_FUSE", "0")
    assert not Settings.from_options({}).fuse
    assert Settings.from_options({"fuse": True}).fuse
    with pytest.raises(ValueError, match="unknown option 'fused' of backend isthmus; expected fuse"):
        Settings.from_options({"fused": True})
    with pytest.raises(ValueError, match="option fuse is 1; expected True or False"):
        Settings.from_options({"fuse": 1})


# ---- Grouping


def graph_of(*edges: str) -> tuple[Graph, dict[str, Node]]:
    """A graph from lines such as ``"c a b"``: c is computed from a and b."""
    graph, nodes = Graph(), dict[str, Node]()
    for edge in edges:
        name, *inputs = edge.split()
        if inputs:
            nodes[name] = graph.call_function(operator.add, tuple(nodes[each] for each in inputs))
        else:
            nodes[name] = graph.placeholder(name)
    graph.output(nodes[name])
    return graph, nodes


def groups(graph: Graph, nodes: dict[str, Node], fusible: str, keys: Any = None) -> list[str]:
    names = {node: name for name, node in nodes.items()}
    found = groups_of(
        graph, {nodes[name] for name in fusible.split()}, lambda node: keys and keys[names[node]]
    )
    return ["".join(names[node] for node in group) for group in found]


def test_groups_close_no_cycle() -> None:
    graph, nodes = graph_of("x", "a x", "b a", "c a b", "d c")
    assert groups(graph, nodes, "a b c d") == ["abcd"]
    assert groups(graph, nodes, "a c d") == ["a", "cd"]  # a would be before and behind b
    assert groups(graph, nodes, "a b c d", {"a": 1, "b": 1, "c": 2, "d": 2}) == ["ab", "cd"]
    graph, nodes = graph_of("x", "y", "a x", "b y", "c a", "d b", "e c d")
    assert groups(graph, nodes, "a b c d", {"a": 1, "d": 1, "b": 2, "c": 2}) == ["a", "b", "c", "d"]
    # Each alone could be contracted; both would depend on each other.
    graph, nodes = graph_of("x", "a x", "b x", "c a b", "d a c", "e b a", "f d e")
    assert groups(graph, nodes, "a b d e", {"a": 1, "d": 1, "b": 2, "e": 2}) in (
        ["a", "be", "d"],
        ["a", "d", "be"],
    )


def test_sorting_keeps_the_order_of_random_numbers_and_of_writes() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    first = graph.call_function(torch.ops.aten.rand_like.default, (x,))
    second = graph.call_function(torch.ops.aten.rand_like.default, (x,))
    late = graph.call_function(torch.ops.aten.relu.default, (x,))
    write = graph.call_function(torch.ops.aten.copy_.default, (x, second))
    after = graph.call_function(torch.ops.aten.relu.default, (x,))
    graph.output((first, late, write, after))
    first.args = (late,)  # moves it behind
    sort(graph)
    assert [node.name for node in graph.nodes] == [
        x.name, late.name, first.name, second.name, write.name, after.name, "output"
    ]  # fmt: skip
