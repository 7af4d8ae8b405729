"""SwiGLU (Shazeer, 2020), of two tensors or of one that holds both."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from isthmus.ops import autocast, cpu
from isthmus.ops.operators import operator


def _wide(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    kind = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    return tuple(each.to(kind) for each in tensors)


def _halves(gate: torch.Tensor, up: torch.Tensor | None, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    if up is not None:
        return gate, up
    first, second = gate.chunk(2, dim)
    return first, second


@operator("swiglu")
def _swiglu(gate: torch.Tensor, up: torch.Tensor | None, dim: int) -> torch.Tensor:
    first, second = _wide(*_halves(gate, up, dim))
    return (F.silu(first) * second).to(gate.dtype)


@operator("swiglu_backward")
def _swiglu_backward(
    grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor | None, dim: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    slope, first, second = _wide(grad, *_halves(gate, up, dim))
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

    Views, such as the two parts of one projection, are read where they lie. The gradient of a packed tensor is
    written into one tensor.

    Args:
        gate: float16, bfloat16, float32 or float64; without ``up`` it holds both along ``dim``, the gate first.
        up: of the shape and dtype of ``gate``; under autocast both are taken in the wider dtype.
        dim: along which a packed tensor is halved.

    Returns:
        A tensor like ``gate``; from a packed one, with half its size along ``dim``.

    Raises:
        ValueError: gate and up are not alike, or the packed size is odd.
        IndexError: there is no dimension ``dim``.
    """
    if up is None:
        if gate.size(dim) % 2:
            raise ValueError(
                f"swiglu: the input has {gate.size(dim)} elements along dimension {dim}, which holds gate and up: "
                "an even number is needed"
            )
        return _SwiGLU.apply(gate, None, dim)
    gate, up = autocast.widest(gate, up)
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError(
            f"swiglu: gate is {gate.dtype} {tuple(gate.shape)} and up is {up.dtype} {tuple(up.shape)}; "
            "they have to be alike"
        )
    return _SwiGLU.apply(gate, up, dim)


class SwiGLU(nn.Module):
    """:func:`swiglu` as a layer, of one packed tensor or of two.

    Args:
        dim: along which a packed tensor is halved.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, gate: torch.Tensor, up: torch.Tensor | None = None) -> torch.Tensor:
        """``silu(gate) * up``; without ``up``, ``gate`` holds both."""
        return swiglu(gate, up, self.dim)

    def extra_repr(self) -> str:
        """What print() shows."""
        return f"dim={self.dim}"
