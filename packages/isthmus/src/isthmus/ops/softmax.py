"""Fused scale, mask and softmax of attention scores, like Megatron-LM's fused kernels."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from isthmus.ops import cpu
from isthmus.ops.registration import apply, operator


def _causal_mask(scores: torch.Tensor) -> torch.Tensor:
    """Causal mask, bool [queries, keys], True where hidden; the last query sees all keys."""
    queries, keys = scores.shape[-2:]
    everything = torch.ones(queries, keys, dtype=torch.bool, device=scores.device)
    return everything.triu(keys - queries + 1)


@operator("scaled_masked_softmax")
def _softmax(input: torch.Tensor, mask: torch.Tensor | None, scale: float, causal: bool) -> torch.Tensor:
    wide = input.to(torch.promote_types(input.dtype, torch.float32)) * scale
    if mask is not None:
        wide = wide.masked_fill(mask, float("-inf"))
    if causal:
        wide = wide.masked_fill(_causal_mask(input), float("-inf"))
    if not input.numel():
        return torch.empty_like(input, memory_format=torch.contiguous_format)
    masked_out = wide.amax(-1, keepdim=True) == float("-inf")
    out = wide.softmax(-1).masked_fill(masked_out, 0)
    # Masked elements of a NaN row are 0, because the fused kernels do not read them.
    return (out.masked_fill(_causal_mask(input), 0) if causal else out).to(input.dtype)


@operator("scaled_masked_softmax_backward")
def _softmax_backward(grad: torch.Tensor, out: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    kind = torch.promote_types(out.dtype, torch.float32)
    slope, wide = grad.to(kind), out.to(kind)
    if causal:  # the fused kernels do not read masked elements
        slope, wide = slope.masked_fill(_causal_mask(out), 0), wide.masked_fill(_causal_mask(out), 0)
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
    input: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 1.0, causal: bool = False
) -> torch.Tensor:
    """``softmax(scale * input)`` over the visible keys, computed in float32 or wider.

    Covers Megatron-LM's three kernels: scaled, scaled and masked, scaled and upper-triangular masked. A row that is
    fully masked, or -inf throughout, gives zeros, as there. Masked scores count as -inf, where Megatron-LM uses
    -10000; even a NaN is masked.

    Args:
        input: scores [..., queries, keys], float16, bfloat16, float32 or float64.
        mask: bool, True where a score is masked; broadcastable to the input, such as [batch, 1, queries, keys].
        scale: factor of the scores.
        causal: also mask the upper triangle, aligned at the bottom right: the last query sees every key.

    Returns:
        Contiguous tensor of the input's shape and dtype (under autocast too).

    Raises:
        ValueError: the mask is not bool or not broadcastable to the input, or the input has fewer than two
            dimensions.
    """
    if input.dim() < 2:
        raise ValueError(
            f"scaled_masked_softmax: input has shape {tuple(input.shape)}; it must be [..., queries, keys]"
        )
    if mask is not None:
        _check_mask(input, mask)
    return apply(_ScaledMaskedSoftmax, input, mask, scale, causal)


def _check_mask(input: torch.Tensor, mask: torch.Tensor) -> None:
    if mask.dtype != torch.bool:
        raise ValueError(
            f"scaled_masked_softmax: the mask is {mask.dtype}; it must be bool, True where a score is masked"
        )
    sizes = zip(reversed(mask.shape), reversed(input.shape), strict=False)
    if mask.dim() > input.dim() or any(ours not in (1, theirs) for ours, theirs in sizes):
        raise ValueError(
            f"scaled_masked_softmax: mask has shape {tuple(mask.shape)} and input {tuple(input.shape)}; "
            "the mask must be broadcastable to the input"
        )


class ScaledMaskedSoftmax(nn.Module):
    """:func:`scaled_masked_softmax` with a fixed scale, like Megatron-LM's ``FusedScaleMaskSoftmax``.

    Args:
        scale: factor of the scores; None is 1.
        causal: mask the upper triangle too.
    """

    def __init__(self, scale: float | None = None, causal: bool = False) -> None:
        super().__init__()
        self.scale = 1.0 if scale is None else scale
        self.causal = causal

    def forward(self, input: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Probabilities for scores [..., queries, keys]."""
        return scaled_masked_softmax(input, mask, self.scale, self.causal)

    def extra_repr(self) -> str:
        """The module's arguments, as ``print`` shows them."""
        return f"scale={self.scale}, causal={self.causal}"
