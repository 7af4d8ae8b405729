"""Autocast and GradScaler."""

from __future__ import annotations

import copy
import functools

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_the_dtype(dtype):
    a = torch.randn(8, 8, device="chip")
    with torch.autocast("chip", dtype=dtype):
        assert torch.is_autocast_enabled("chip")
        assert (a @ a).dtype == dtype
        assert torch.nn.functional.linear(a, a).dtype == dtype
        assert torch.softmax(a @ a, dim=-1).dtype == torch.float32
        assert (a + a).dtype == torch.float32
    assert (a @ a).dtype == torch.float32


def test_autocast_default_dtype_is_bfloat16():
    assert torch.get_autocast_dtype("chip") in (torch.bfloat16, torch.float16)
    with torch.autocast("chip"):
        a = torch.ones(2, 2, device="chip")
        assert (a @ a).dtype == torch.get_autocast_dtype("chip")


def test_autocast_disabled_inside():
    a = torch.ones(2, 2, device="chip")
    with torch.autocast("chip", dtype=torch.bfloat16), torch.autocast("chip", enabled=False):
        assert (a @ a).dtype == torch.float32


def test_autocast_leaves_the_cpu_alone():
    a = torch.ones(2, 2)
    with torch.autocast("chip", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.float32


def test_unsupported_dtype_warns_and_disables():
    a = torch.ones(2, 2, device="chip")
    with pytest.warns(UserWarning, match="not supported"), torch.autocast("chip", dtype=torch.int8):
        assert (a @ a).dtype == torch.float32


def test_bfloat16_step_is_that_of_explicit_casts_on_the_cpu():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    twin = copy.deepcopy(model).chip()
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
    with torch.autocast("chip", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(twin(x.chip()), y.chip())
    loss.backward()
    hidden = x.bfloat16()
    for layer in model:
        parameters = [parameter.bfloat16() for parameter in layer.parameters()]
        hidden = torch.nn.functional.linear(hidden, *parameters) if parameters else layer(hidden)
    # As on CUDA, cross_entropy asks log_softmax for the dtype of its input; only nll_loss is promoted.
    expected = torch.nn.functional.nll_loss(torch.log_softmax(hidden, -1).float(), y)
    expected.backward()
    assert loss.item() == expected.item()
    for parameter, reference in zip(twin.parameters(), model.parameters(), strict=True):
        assert torch.equal(parameter.grad.cpu(), reference.grad)


@pytest.mark.parametrize("make", [functools.partial(torch.amp.GradScaler, "chip"), torch.chip.amp.GradScaler])
def test_grad_scaler(make):
    weight = torch.nn.Parameter(torch.ones(4, device="chip"))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = make()
    scaler.scale((weight * 2).sum()).backward()
    scaler.unscale_(optimizer)
    assert weight.grad.tolist() == [2, 2, 2, 2]
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0, 0, 0, 0]


def test_grad_scaler_skips_an_overflow():
    weight = torch.nn.Parameter(torch.ones(2, device="chip"))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler("chip", init_scale=4.0)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [1, 1]
    assert scaler.get_scale() == 2.0


def test_custom_forward_casts():
    seen = []

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.chip.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            seen.append((x.dtype, torch.is_autocast_enabled("chip")))
            return x * 2

        @staticmethod
        @torch.chip.amp.custom_bwd
        def backward(ctx, grad):
            return grad * 2

    x = torch.ones(2, device="chip", dtype=torch.bfloat16, requires_grad=True)
    with torch.chip.amp.autocast(dtype=torch.bfloat16):
        Double.apply(x).sum().backward()
    assert seen == [(torch.float32, False)]
    assert x.grad.tolist() == [2, 2]
