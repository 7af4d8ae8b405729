"""Softmax of attention scores that are scaled and masked on the way, as Megatron-LM's fused kernels have it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from isthmus.ops import cpu
from isthmus.ops.operators import operator


def _hidden(scores: torch.Tensor) -> torch.Tensor:
    """Bool [queries, keys]: what a query may not see if the last of them sees all keys."""
    queries, keys = scores.shape[-2:]
    everything = torch.ones(queries, keys, dtype=torch.bool, device=scores.device)
    return everything.triu(keys - queries + 1)


@operator("scaled_masked_softmax")
def _softmax(input: torch.Tensor, mask: torch.Tensor | None, scale: float, causal: bool) -> torch.Tensor:
    wide = input.to(torch.promote_types(input.dtype, torch.float32)) * scale
    if mask is not None:
        wide = wide.masked_fill(mask, float("-inf"))
    if causal:
        wide = wide.masked_fill(_hidden(input), float("-inf"))
    if not input.numel():
        return torch.empty_like(input, memory_format=torch.contiguous_format)
    masked_out = wide.amax(-1, keepdim=True) == float("-inf")
    out = wide.softmax(-1).masked_fill(masked_out, 0)
    # A row of NaN is one of zeros where it is masked, as the fused kernels do not look there.
    return (out.masked_fill(_hidden(input), 0) if causal else out).to(input.dtype)


@operator("scaled_masked_softmax_backward")
def _softmax_backward(grad: torch.Tensor, out: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    kind = torch.promote_types(out.dtype, torch.float32)
    slope, wide = grad.to(kind), out.to(kind)
    if causal:  # not looked at there, as in the fused kernels
        slope, wide = slope.masked_fill(_hidden(out), 0), wide.masked_fill(_hidden(out), 0)
    product = slope * wide
    return ((product - wide * product.sum(-1, keepdim=True)) * scale).to(out.dtype)


for _each in (_softmax, _softmax_backward):
    cpu.add(_each)


class _ScaledMaskedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Any, mask: Any, scale: float, causal: bool) -> torch.Tensor:
        out = _softmax(input, mask, scale, causal)
        ctx.save_for_backward(out)
        ctx.scale, ctx.causal = scale, causal
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        (out,) = ctx.saved_tensors
        return _softmax_backward(grad, out, ctx.scale, ctx.causal), None, None, None


def scaled_masked_softmax(
    input: torch.Tensor,
    mask: torch.Tensor | None = None,
    scale: float = 1.0,
    causal: bool = False,
) -> torch.Tensor:
    """``softmax(scale * input)`` over the keys, those masked out left aside; computed in float32 at least.

    Megatron-LM's three kernels in one: scaled, scaled and masked, scaled and upper-triangular masked. A row that
    is masked out altogether, or is -inf throughout, gives zeros, as there; masked scores count as -inf, where
    Megatron-LM has -10000. Scores that are masked out are not looked at: NaN is hidden by the mask too.

    Args:
        input: scores [..., queries, keys], float16, bfloat16, float32 or float64.
        mask: bool, True where a score is masked out; of a shape that broadcasts to the input's, such as
            [batch, 1, queries, keys] for all heads.
        scale: factor of the scores.
        causal: also mask the upper triangle, aligned at the bottom right: the last query sees every key, each
            query before it one key fewer.

    Returns:
        Contiguous tensor of the input's shape and dtype (under autocast too).

    Raises:
        ValueError: the mask is not bool or does not broadcast to the input, or the input has fewer than two
            dimensions.
    """
    if input.dim() < 2:
        raise ValueError(
            f"scaled_masked_softmax: input has shape {tuple(input.shape)}; it has to be [..., queries, keys]"
        )
    if mask is not None:
        _check_mask(input, mask)
    return _ScaledMaskedSoftmax.apply(input, mask, scale, causal)


def _check_mask(input: torch.Tensor, mask: torch.Tensor) -> None:
    if mask.dtype != torch.bool:
        raise ValueError(
            f"scaled_masked_softmax: the mask is {mask.dtype}; it has to be bool, True where a score is masked out"
        )
    sizes = zip(reversed(mask.shape), reversed(input.shape), strict=False)
    if mask.dim() > input.dim() or any(ours not in (1, theirs) for ours, theirs in sizes):
        raise ValueError(
            f"scaled_masked_softmax: mask has shape {tuple(mask.shape)} and input {tuple(input.shape)}; "
            "each dimension of the mask, from the last on, has to be 1 or the input's"
        )


class ScaledMaskedSoftmax(nn.Module):
    """:func:`scaled_masked_softmax` with a fixed scale, as Megatron-LM's ``FusedScaleMaskSoftmax``.

    Args:
        scale: factor of the scores; None is 1.
        causal: mask the upper triangle, with or without a mask.
    """

    def __init__(self, scale: float | None = None, causal: bool = False) -> None:
        super().__init__()
        self.scale = 1.0 if scale is None else scale
        self.causal = causal

    def forward(self, input: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Probabilities of scores [..., queries, keys]."""
        return scaled_masked_softmax(input, mask, self.scale, self.causal)

    def extra_repr(self) -> str:
        """What print() shows."""
        return f"scale={self.scale}, causal={self.causal}"
