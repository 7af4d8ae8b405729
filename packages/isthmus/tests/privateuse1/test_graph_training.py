"""Graphs of training: graphed callables, optimizers, scalers, as PyTorch's test/test_cuda.py tests CUDA's."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch.optim import ASGD, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop, Rprop

from tests.helpers.graphs import OF_THE_CORE, capture
from tests.privateuse1.inventory import covers


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


def linear() -> tuple[torch.nn.Linear, Any]:
    model = torch.nn.Linear(1, 1, bias=False).to("chip")
    return model, torch.chip.make_graphed_callables(model, (torch.ones(1, 1, device="chip"),))


def value(x: float) -> torch.Tensor:
    return torch.full((1, 1), x, device="chip")


def test_gradients_of_graphed_callables_accumulate():
    model, graphed = linear()
    for x in (1.0, 10.0, 100.0):
        graphed(value(x)).sum().backward()
    assert model.weight.grad.item() == 111


def test_gradients_of_graphed_callables_keep_their_values():
    model, graphed = linear()
    kept: list[torch.Tensor] = []
    model.weight.register_hook(kept.append)
    first = torch.autograd.grad(graphed(value(3)).sum(), [model.weight])
    second = torch.autograd.grad(graphed(value(50)).sum(), [model.weight])
    assert [grad.item() for grad in (*first, *second, *kept)] == [3, 50, 3, 50]


def test_gradients_of_inputs_of_graphed_callables_keep_their_values():
    graphed = torch.chip.make_graphed_callables(
        lambda x, y: x * y, tuple(value(1.0).requires_grad_() for _ in range(2))
    )
    leaves = [value(i).requires_grad_() for i in (2.0, 3.0, 5.0)]
    inner = leaves[0] + 0
    inner.retain_grad()
    graphed(inner, leaves[1]).sum().backward()
    graphed(leaves[2], leaves[1]).sum().backward()
    assert [each.grad.item() for each in (*leaves, inner)] == [3, 7, 3, 3]


def test_the_backward_pass_of_an_overwritten_call_is_refused():
    model, graphed = linear()
    first, _second = graphed(value(2)).sum(), graphed(value(3)).sum()
    with pytest.raises(RuntimeError, match="a later call has overwritten"):
        first.backward()
    assert model.weight.grad is None
    last = graphed(value(4)).sum()
    last.backward(retain_graph=True)
    last.backward()
    assert model.weight.grad.item() == 8


class Branches(torch.nn.Module):
    """Has two outputs, of which neither needs what the other saves."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Sigmoid()) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.first(x), self.second(x).square()


def layers(depth: int, *ends: torch.nn.Module) -> torch.nn.Sequential:
    each = [(torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.LayerNorm(6)) for _ in range(depth)]
    return torch.nn.Sequential(*(layer for three in each for layer in three), *ends)


def total(result: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    return result.sum() if isinstance(result, torch.Tensor) else sum(each.sum() for each in result)


def graphed_copy(model: torch.nn.Module) -> torch.nn.Module:
    copy = deepcopy(model).to("chip")
    return torch.chip.make_graphed_callables(copy, (torch.randn(5, 6, device="chip"),))


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: layers(1), id="one"),
        pytest.param(lambda: layers(4), id="deep"),
        pytest.param(Branches, id="two"),
        pytest.param(
            lambda: layers(4, torch.nn.Dropout(0.5)),
            id="dropout",
            marks=pytest.mark.host("a graph of a driver draws no random numbers"),
        ),
    ],
)
def test_a_retained_backward_pass_of_a_graphed_callable_runs_again(build):
    model, x = build().to("chip"), torch.randn(5, 6, device="chip")
    graphed = graphed_copy(model)
    torch.chip.manual_seed(1)
    loss = total(model(x))
    expected = torch.autograd.grad(loss, list(model.parameters()))
    torch.chip.manual_seed(1)
    loss, parameters = total(graphed(x)), list(graphed.parameters())
    for retain in (True, True, False):
        found = torch.autograd.grad(loss, parameters, retain_graph=retain)
        assert all(map(torch.equal, found, expected))
    with pytest.raises(RuntimeError, match=r"a second time.*retain_graph=True"):
        loss.backward()


def test_retained_backward_passes_of_a_chain_of_graphed_callables():
    parts = [layers(2).to("chip") for _ in range(3)]
    samples = tuple((torch.randn(5, 6, device="chip", requires_grad=True),) for _ in parts)
    graphed = torch.chip.make_graphed_callables(tuple(deepcopy(part) for part in parts), samples)
    x = torch.randn(5, 6, device="chip", requires_grad=True)

    def run(functions: Any) -> list[torch.Tensor]:
        y = x
        for function in functions:
            y = function(y)
        last = list(functions[-1].parameters())
        every = [x, *(each for function in functions for each in function.parameters())]
        found = list(torch.autograd.grad(y.square().sum(), last, retain_graph=True))
        for retain in (True, False):
            found += torch.autograd.grad(y.sum(), every, retain_graph=retain)
        return found

    assert all(map(torch.equal, run(graphed), run(parts)))


def test_outputs_of_a_graphed_callable_have_one_backward_pass_each_if_it_is_retained():
    model, x = Branches().to("chip"), torch.randn(5, 6, device="chip")
    graphed = graphed_copy(model)
    for function in (model, graphed):
        first, second = function(x)
        first.sum().backward(retain_graph=True)
        second.sum().backward()
    for ours, theirs in zip(graphed.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    first, second = graphed(x)
    first.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        second.sum().backward()


@torch.no_grad()
def scale(tensor: torch.Tensor) -> None:
    tensor.mul_(3)


WRITES = {  # values written between forward and backward pass, and whether the gradient needs it
    "the weight": (lambda n, x, y: scale(n[3].weight), True),
    "a part of the weight": (lambda n, x, y: scale(n[3].weight[0]), True),
    "a frozen weight": (lambda n, x, y: scale(n[0].weight), True),
    "by an optimizer": (
        lambda n, x, y: SGD([n[3].weight], lr=0.1, weight_decay=1.0, foreach=False).step(),
        True,
    ),
    "the output": (lambda n, x, y: scale(y), True),
    "a part of the output": (lambda n, x, y: y.detach()[0].zero_(), True),
    "a bias": (lambda n, x, y: scale(n[3].bias), False),
    "a version that is not tracked": (lambda n, x, y: n[3].bias.data.mul_(3), False),
}


@pytest.mark.parametrize("write", WRITES)
def test_writes_before_the_backward_pass_of_a_graphed_callable_are_refused_as_in_eager_mode(write):
    change, needed = WRITES[write]
    x = torch.randn(5, 6, device="chip", requires_grad=True)
    model = layers(1, torch.nn.Linear(6, 6), torch.nn.Sigmoid()).to("chip")
    model[0].weight.requires_grad_(False)
    graphed = torch.chip.make_graphed_callables(deepcopy(model), (torch.zeros_like(x, requires_grad=True),))
    for each in (model, graphed):
        for parameter in each.parameters():
            # Gradient of SGD.
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        y = each(x)
        loss = y.sum()
        change(each, x, y)
        if not needed:
            loss.backward()
            continue
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        each.zero_grad()
        each(x).sum().backward()  # the next step
    for ours, theirs in zip(graphed.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.grad is None or torch.equal(ours.grad, theirs.grad)


def test_an_input_that_is_written_before_the_backward_pass():
    sample, other = (torch.ones(3, device="chip", requires_grad=True) for _ in range(2))
    graphed = torch.chip.make_graphed_callables(lambda x: x * x, (sample,))
    loss = graphed(sample).sum()
    scale(sample)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    loss = graphed(other).sum()
    scale(other)  # the graph has a copy
    loss.backward()
    assert other.grad.tolist() == [2, 2, 2]


def test_tensors_that_are_no_arguments_are_noticed_when_they_are_written():
    factor, x = torch.full((3,), 2.0, device="chip"), torch.ones(3, device="chip", requires_grad=True)
    graphed = torch.chip.make_graphed_callables(lambda x: x * factor, (x,))
    loss = graphed(x).sum()
    factor.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    graphed(x).sum().backward()
    assert x.grad.tolist() == [3, 3, 3]


def test_callables_that_share_a_sample():
    mask = torch.tensor([1.0, 0, 1], device="chip")
    hidden = [torch.ones(3, device="chip", requires_grad=True) for _ in range(2)]

    def multiply(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y

    same = torch.chip.make_graphed_callables((multiply,) * 2, tuple((h, mask) for h in hidden))
    x = torch.full((3,), 5.0, device="chip", requires_grad=True)
    same[1](same[0](x, mask.clone()), mask.clone()).sum().backward()
    assert x.grad.tolist() == [1, 0, 1]
    squares = torch.chip.make_graphed_callables((torch.square,) * 2, ((hidden[0],),) * 2)
    with pytest.raises(
        RuntimeError, match="samples of its own"
    ):  # the second call has overwritten the first's
        squares[1](squares[0](x)).sum().backward()


@pytest.mark.filterwarnings("ignore:The graph is empty")
def test_a_graphed_callable_that_uses_transforms():
    def slope(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda a: (a * a * a).sum())(x)

    x = torch.full((3,), 2.0, device="chip", requires_grad=True)
    graphed = torch.chip.make_graphed_callables(slope, (x,))
    graphed(x).sum().backward()
    assert x.grad.tolist() == [12, 12, 12]
    loss = graphed(x).sum()
    scale(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


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
    with pytest.raises(RuntimeError, match=r"Attempting (CUDA|CHIP) graph capture"):
        capture(optimizer.step)


FUSED = (Adam, AdamW, SGD, Adagrad)


@covers("cuda_graphs", "test_graph_scaling_fused_optimizers")
@pytest.mark.parametrize("kind", [*CAPTURABLE, SGD, Adagrad], ids=lambda kind: kind.__name__)
@OF_THE_CORE
def test_captured_training_steps_are_bit_equal(kind):
    """Every implementation of the optimizer; fused ones with a scaler, which skips a step of infinite gradients."""
    data = torch.randn(8, 4, 16)
    data[6] *= float("inf")

    def train(graphs: bool, options: dict[str, bool]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model, x, fused = mlp(), torch.empty(4, 16, device="chip"), "fused" in options
        if kind in CAPTURABLE:
            options = {**options, "capturable": True}
        optimizer = kind(model.parameters(), **options)
        scaler = torch.amp.GradScaler("chip", init_scale=128.0, growth_interval=3, enabled=fused)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(model(x).square().sum()).backward()
            scaler.step(optimizer)
            scaler.update()

        graph, stream = None, torch.chip.Stream()
        for index, each in enumerate(data if fused else data[:6]):
            x.copy_(each)
            if index == 3 and graphs:
                graph, _ = capture(step, stream=stream)
            with torch.chip.stream(stream):
                graph.replay() if graph else step()
            torch.chip.synchronize()
        return [*model.parameters(), torch.tensor(scaler.get_scale())]

    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        if "fused" not in options or kind in FUSED:
            assert all(map(torch.equal, train(True, options), train(False, options))), options


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
