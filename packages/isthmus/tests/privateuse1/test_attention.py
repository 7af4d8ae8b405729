"""Scaled dot product attention: the CPU's choice of kernel and its numbers, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import isthmus._C as core
from tests.privateuse1.inventory import covers

BATCH, HEADS, LENGTH, WIDTH = 2, 2, 64, 32
SHAPE = (BATCH, HEADS, LENGTH, WIDTH)


def inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.rand(SHAPE, dtype=dtype, requires_grad=True) for _ in range(3)]


def on_chip(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().to("chip").requires_grad_() for tensor in tensors]


def assert_same(found: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> None:
    """Equal to the bit on the host chip; on other drivers at most twice as far from float64 as the CPU's."""
    if core.driver()["name"] == "host":
        assert torch.equal(found.cpu(), expected)
        return
    ours, theirs = ((each.detach().cpu().double() - exact).abs().max() for each in (found, expected))
    assert ours <= 2 * theirs + torch.finfo(expected.dtype).eps  # the terms are about 1


@covers("ops", "test_scaled_dot_product_fused_attention_overrideable")
@covers(
    "ops", "test_scaled_dot_product_attention_is_causal", "test_scaled_dot_product_attention_with_dropout"
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "how", ["plain", "causal", "mask", pytest.param("dropout", marks=pytest.mark.host("its random numbers"))]
)
def test_attention_is_that_of_the_cpu(dtype, how):
    cpu = inputs(dtype)
    chip = on_chip(cpu)
    options = {"causal": {"is_causal": True}, "dropout": {"dropout_p": 0.1}}.get(how, {})
    mask = torch.rand(BATCH, HEADS, LENGTH, LENGTH, dtype=dtype) if how == "mask" else None
    torch.manual_seed(1)
    expected = scaled_dot_product_attention(*cpu, attn_mask=mask, **options)
    torch.manual_seed(1)
    found = scaled_dot_product_attention(
        *chip, attn_mask=None if mask is None else mask.to("chip"), **options
    )
    assert found.device.type == "chip"
    wide = [tensor.detach().double().requires_grad_() for tensor in cpu]
    exact = scaled_dot_product_attention(*wide, attn_mask=None if mask is None else mask.double(), **options)
    assert_same(found.detach(), expected.detach(), exact.detach())
    gradient = torch.rand(SHAPE, dtype=dtype)
    expected.backward(gradient)
    found.backward(gradient.to("chip"))
    exact.backward(gradient.double())
    for one, other, best in zip(cpu, chip, wide, strict=True):
        assert_same(other.grad, one.grad, best.grad)


@pytest.mark.parametrize("causal", [False, True])
def test_the_choice_is_that_of_the_cpu(causal):
    cpu = inputs(torch.float16)
    assert torch._fused_sdp_choice(*on_chip(cpu), is_causal=causal) == torch._fused_sdp_choice(
        *cpu, is_causal=causal
    )
