"""SwiGLU (Shazeer, 2020) of two tensors, or of one packed tensor."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from isthmus.ops import autocast, cpu
from isthmus.ops.registration import apply, compute_dtype, operator


def _halves(gate: torch.Tensor, up: torch.Tensor | None, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    if up is not None:
        return gate, up
    first, second = gate.chunk(2, dim)
    return first, second


@operator("swiglu")
def _swiglu(gate: torch.Tensor, up: torch.Tensor | None, dim: int) -> torch.Tensor:
    first, second = (each.to(compute_dtype(gate)) for each in _halves(gate, up, dim))
    return (F.silu(first) * second).to(gate.dtype)


@operator("swiglu_backward")
def _swiglu_backward(
    grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor | None, dim: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    slope, first, second = (each.to(compute_dtype(grad)) for each in (grad, *_halves(gate, up, dim)))
    sigmoid = first.sigmoid()
    grad_first = slope * second * sigmoid * (1 + first * (1 - sigmoid))
    grad_second = slope * first * sigmoid
    if up is None:
        return torch.cat([grad_first, grad_second], dim).to(gate.dtype), None
    return grad_first.to(gate.dtype), grad_second.to(gate.dtype)


for _each in (_swiglu, _swiglu_backward):
    cpu.add(_each)


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor | None, dim: int) -> torch.Tensor:
        ctx.save_for_backward(gate, up)
        ctx.dim = dim
        return _swiglu(gate, up, dim)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        gate, up = ctx.saved_tensors
        grad_gate, grad_up = _swiglu_backward(grad, gate, up, ctx.dim)
        return grad_gate, grad_up, None


def swiglu(gate: torch.Tensor, up: torch.Tensor | None = None, dim: int = -1) -> torch.Tensor:
    """``silu(gate) * up``, computed in float32 at least.

    Views, such as the two parts of one projection, are read without a copy. The gradient of a packed tensor is one
    packed tensor.

    Args:
        gate: float16, bfloat16, float32 or float64; without ``up`` it holds the gate and then ``up`` along ``dim``.
        up: same shape and dtype as ``gate``; under autocast both are cast to the wider dtype.
        dim: dimension along which a packed tensor is split.

    Returns:
        A tensor like ``gate``; half its size along ``dim`` if packed.

    Raises:
        ValueError: gate and up differ in shape or dtype, or the packed size is odd.
        IndexError: ``dim`` is out of range.
    """
    if up is None:
        if gate.size(dim) % 2:
            raise ValueError(
                f"swiglu: the packed input has {gate.size(dim)} elements along dimension {dim}; "
                "it needs an even number"
            )
        return apply(_SwiGLU, gate, None, dim)
    gate, up = autocast.widest(gate, up)
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError(
            f"swiglu: gate is {gate.dtype} {tuple(gate.shape)} and up is {up.dtype} {tuple(up.shape)}; "
            "they must have the same shape and dtype"
        )
    return apply(_SwiGLU, gate, up, dim)


class SwiGLU(nn.Module):
    """:func:`swiglu` as a module, of one packed tensor or of two.

    Args:
        dim: dimension along which a packed tensor is split.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, gate: torch.Tensor, up: torch.Tensor | None = None) -> torch.Tensor:
        """``silu(gate) * up``; without ``up``, ``gate`` holds both."""
        return swiglu(gate, up, self.dim)

    def extra_repr(self) -> str:
        """The module's arguments, as ``print`` shows them."""
        return f"dim={self.dim}"
