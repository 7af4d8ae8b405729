"""Graphs of training: graphed callables, optimizers, scalers, as PyTorch's test/test_cuda.py tests CUDA's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import ASGD, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop, Rprop

from tests.helpers.graphs import OF_THE_CORE, capture
from tests.privateuse1 import covers


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


FUSED = (Adam, AdamW, SGD, Adagrad)


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
