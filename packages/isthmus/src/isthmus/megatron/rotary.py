"""Rotary position embedding of Megatron's ``--apply-rope-fusion`` by :func:`isthmus.ops.rotary.rotary`."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from isthmus.ops.rotary import rotary


def fused(_: Any) -> Callable[..., torch.Tensor]:
    """Replacement for ``fused_apply_rotary_pos_emb``, which needs Transformer Engine."""

    def fused_apply_rotary_pos_emb(
        t: torch.Tensor, freqs: torch.Tensor, transpose_output_memory: bool = False, interleaved: bool = False
    ) -> torch.Tensor:
        """Rotate the first elements of each head.

        Args:
            t: [tokens, batch, heads, size], of any strides.
            freqs: [tokens or more, 1 or batch, 1, width] float32 angles; rotates ``width`` elements of a head.
            transpose_output_memory: ignored.
            interleaved: pairs are adjacent elements.

        Returns:
            A tensor like ``t``.
        """
        tokens, batch = t.shape[:2]
        angles = freqs[:tokens].flatten(0, 2)
        rows = torch.arange(angles.size(0), device=t.device).view(tokens, -1).expand(tokens, batch)
        return _rotate(t, angles, rows, interleaved)

    return fused_apply_rotary_pos_emb


def fused_packed(_: Any) -> Callable[..., torch.Tensor]:
    """Replacement for ``fused_apply_rotary_pos_emb_thd``, which needs Transformer Engine."""

    def fused_apply_rotary_pos_emb_thd(
        t: torch.Tensor,
        cu_seqlens: torch.Tensor,
        freqs: torch.Tensor,
        cp_size: int = 1,
        cp_rank: int = 0,
        interleaved: bool = False,
    ) -> torch.Tensor:
        """Rotate packed sequences, of which a context-parallel rank has two chunks each.

        Args:
            t: [tokens, heads, size].
            cu_seqlens: cumulative lengths [sequences + 1] of the whole sequences.
            freqs: [positions, 1, 1, width] float32 angles, of the longest sequence or of all tokens.
            cp_size: number of context-parallel ranks.
            cp_rank: rank of this process.
            interleaved: pairs are adjacent elements.

        Returns:
            A tensor like ``t``.
        """
        starts, lengths = cu_seqlens[:-1].long(), cu_seqlens.diff().long() // cp_size
        first = (starts // cp_size).repeat_interleave(lengths, output_size=t.size(0))
        places = torch.arange(t.size(0), device=t.device) - first
        half = (lengths // 2).repeat_interleave(lengths, output_size=t.size(0))
        if cp_size > 1:
            later = (2 * cp_size - 2 - cp_rank) * half
            places += torch.where(places < half, cp_rank * half, later)
        if freqs.size(0) == t.size(0) * cp_size:  # one angle per token of the batch, as in Megatron
            places += starts.repeat_interleave(lengths, output_size=t.size(0))
        return _rotate(t.unsqueeze(1), freqs.flatten(0, 2), places.unsqueeze(1), interleaved).squeeze(1)

    return fused_apply_rotary_pos_emb_thd


def _rotate(heads: torch.Tensor, angles: torch.Tensor, rows: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """Rotate [tokens, batch, heads, size] by the row of angles of each token and batch."""
    width = angles.size(-1)
    return rotary(heads, angles.cos(), angles.sin(), positions=rows, dim=width, interleaved=interleaved)


def interleaved_as_well(original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Replacement for ``TransformerConfig.__post_init__`` without the check for Transformer Engine 2.3."""

    @functools.wraps(original)
    def __post_init__(self: Any) -> None:
        hidden = self.apply_rope_fusion and self.rotary_interleaved and not self.multi_latent_attention
        if not hidden:
            original(self)
            return
        self.rotary_interleaved = False
        try:
            original(self)
        finally:
            self.rotary_interleaved = True
        self.apply_rope_fusion = _packed_supports_interleaved()

    return __post_init__


@functools.cache
def _packed_supports_interleaved() -> bool:
    """Whether Megatron passes ``interleaved`` to the function for packed sequences; 0.16 does not."""
    import megatron.core
    from packaging.version import Version

    return Version(megatron.core.__version__) >= Version("0.17")
