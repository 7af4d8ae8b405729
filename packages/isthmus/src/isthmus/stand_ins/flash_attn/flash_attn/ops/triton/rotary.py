"""Rotary position embedding without a gradient, for the autograd functions of other libraries."""

import torch

from isthmus.ops.rotary_embedding import apply_rotary_emb


@torch.no_grad()
def apply_rotary(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    seqlen_offsets: int | torch.Tensor = 0,
    cu_seqlens: torch.Tensor | None = None,
    max_seqlen: int | None = None,
    interleaved: bool = False,
    inplace: bool = False,
    conjugate: bool = False,
) -> torch.Tensor:
    """:func:`isthmus.ops.apply_rotary_emb`; ``conjugate`` rotates back, for a backward."""
    sin = -sin if conjugate else sin
    return apply_rotary_emb(x, cos, sin, interleaved, inplace, seqlen_offsets, cu_seqlens, max_seqlen)
