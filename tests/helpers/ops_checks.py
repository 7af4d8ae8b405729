"""Helpers for tests of isthmus.ops: devices, dtypes with tolerances, and comparison in float64."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from isthmus import ops

DEVICES = ("cpu", "chip")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Shares of the largest element: sums are accumulated in float32 and the result is rounded once or twice.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-11}

on_each_device = pytest.mark.parametrize("device", DEVICES)
in_each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
by_each = pytest.mark.parametrize("implementation", ["cpu", "composite"])


def leaf(
    *shape: int, device: str = "cpu", dtype: torch.dtype = torch.float64, scale: float = 1.0
) -> torch.Tensor:
    """Return a random tensor that requires a gradient, equal on every device."""
    return (torch.randn(*shape, dtype=torch.float64) * scale).to(dtype).to(device).requires_grad_()


def gradcheck(name: str, implementation: str, function: Callable[..., Any], *inputs: Any) -> None:
    """Check float64 gradients of a function by one implementation, and that it is the one used."""
    with ops.use(name, implementation):
        assert torch.autograd.gradcheck(function, inputs, nondet_tol=0.0)


def run(function: Callable[..., Any], inputs: Sequence[Any], seed: int = 1) -> tuple[list[Any], list[Any]]:
    """Outputs, and gradients of the inputs for random gradients of the outputs, all as float64 on CPU."""
    made = function(*inputs)
    outputs = [
        each for each in (made if isinstance(made, tuple) else (made,)) if isinstance(each, torch.Tensor)
    ]
    generator = torch.Generator().manual_seed(seed)
    differentiable = [each for each in outputs if each.requires_grad]
    grads = [
        torch.randn(each.shape, dtype=torch.float64, generator=generator).to(each.dtype).to(each.device)
        for each in differentiable
    ]
    leaves = [each for each in inputs if isinstance(each, torch.Tensor) and each.requires_grad]
    found = torch.autograd.grad(differentiable, leaves, grads, allow_unused=True) if differentiable else []
    return [_plain(each) for each in outputs], [_plain(each) for each in found]


def against_float64(
    function: Callable[..., Any], reference: Callable[..., Any], inputs: Sequence[Any], factor: float = 1.0
) -> None:
    """Compare outputs and gradients with those of a reference that computes on the same numbers in float64.

    A tensor passes if no element is further from the reference than the dtype's tolerance times the largest
    element (at least 1). The inputs must come out as they went in.
    """
    before = [each.detach().clone() if isinstance(each, torch.Tensor) else each for each in inputs]
    dtype = next(each.dtype for each in inputs if isinstance(each, torch.Tensor) and each.is_floating_point())
    got = run(function, inputs)
    wide = [_widen(each) for each in inputs]
    for ours, theirs in zip(got, run(reference, wide), strict=True):
        assert len(ours) == len(theirs)
        for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if b is None:
                assert a is None or not a.any()
                continue
            assert a.shape == b.shape
            limit = factor * TOLERANCE[dtype] * max(1.0, b.abs().max().item() if b.numel() else 0.0)
            torch.testing.assert_close(
                a, b, rtol=0, atol=limit, equal_nan=True, msg=lambda m, i=index: f"{i}: {m}"
            )
    for each, was in zip(inputs, before, strict=True):
        if isinstance(each, torch.Tensor):
            assert torch.equal(each.detach(), was), "an input was written to"


def _widen(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.detach().cpu()
    return plain.double().requires_grad_(value.requires_grad) if plain.is_floating_point() else plain


def _plain(tensor: Any) -> Any:
    if tensor is None:
        return None
    plain = tensor.detach().cpu()
    return plain.double() if plain.is_floating_point() else plain
