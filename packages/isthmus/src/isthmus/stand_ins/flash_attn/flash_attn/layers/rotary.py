"""Rotary position embedding."""

import torch
from torch import nn

from isthmus.ops.rotary_embedding import apply_rotary_emb, apply_rotary_emb_kv_, apply_rotary_emb_qkv_

apply_rotary_emb_func = apply_rotary_emb
_Offsets = int | torch.Tensor

__all__ = [
    "RotaryEmbedding", "apply_rotary_emb", "apply_rotary_emb_func", "apply_rotary_emb_kv_", "apply_rotary_emb_qkv_",
    "apply_rotary_emb_torch", "rotate_half",
]  # fmt: skip


def rotate_half(x: torch.Tensor, interleaved: bool = False) -> torch.Tensor:
    """Rotate each pair of elements of the last dimension by 90 degrees.

    Args:
        x: [..., size].
        interleaved: pairs are adjacent elements; otherwise i and ``i + size / 2``.
    """
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    return torch.stack((-second, first), -1).flatten(-2) if interleaved else torch.cat((-second, first), -1)


def apply_rotary_emb_torch(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> torch.Tensor:
    """Rotate the first elements of each head, written in PyTorch's operators.

    Args:
        x: [batch, seq, heads, size].
        cos: [seq, rotary_dim / 2] or [batch, seq, rotary_dim / 2].
        sin: like ``cos``.
        interleaved: pairs are adjacent elements; otherwise i and ``i + rotary_dim / 2``.
    """
    size = 2 * cos.shape[-1]
    cos, sin = (
        (each.repeat_interleave(2, -1) if interleaved else torch.cat((each, each), -1)).unsqueeze(-2)
        for each in (cos, sin)
    )
    turned, rest = x[..., :size], x[..., size:]
    return torch.cat((turned * cos + rotate_half(turned, interleaved) * sin, rest), -1)


class RotaryEmbedding(nn.Module):
    """Rotary position embedding (Su et al., 2021) of a packed projection, in place.

    Args:
        dim: number of elements of a head to rotate.
        base: of the angles.
        interleaved: pairs are adjacent elements (GPT-J); otherwise i and ``i + dim / 2`` (NeoX).
        scale_base: scale query and key by their positions (XPos, Sun et al., 2022), 512 for example; None does not.
        device: device of the angles.
    """

    inv_freq: torch.Tensor
    scale: torch.Tensor | None

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        interleaved: bool = False,
        scale_base: float | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.base = float(base)
        self.interleaved = interleaved
        self.scale_base = scale_base
        self.register_buffer("inv_freq", self._compute_inv_freq(device), persistent=False)
        steps = torch.arange(0, dim, 2, device=device, dtype=torch.float32)
        scale = None if scale_base is None else (steps + 0.4 * dim) / (1.4 * dim)
        self.register_buffer("scale", scale, persistent=False)
        self._seq_len_cached = 0
        self._cos_cached: torch.Tensor | None = None
        self._sin_cached: torch.Tensor | None = None
        self._cos_k_cached: torch.Tensor | None = None
        self._sin_k_cached: torch.Tensor | None = None

    def _compute_inv_freq(self, device: torch.device | str | None = None) -> torch.Tensor:
        steps = torch.arange(0, self.dim, 2, device=device, dtype=torch.float32) / self.dim
        return self.base**-steps

    def _update_cos_sin_cache(self, seqlen: int, device: torch.device, dtype: torch.dtype) -> None:
        """Compute the tables, if there are none for this length, device and dtype."""
        held = self._cos_cached
        fits = (
            held is not None
            and held.device == device
            and held.dtype == dtype
            and seqlen <= self._seq_len_cached
        )
        if held is not None and fits and not (self.training and held.is_inference()):
            return
        self._seq_len_cached = seqlen
        positions = torch.arange(seqlen, device=device, dtype=torch.float32)
        kept = self.inv_freq.dtype == torch.float32  # a cast of the module rounds it
        angles = torch.outer(positions, self.inv_freq if kept else self._compute_inv_freq(device))
        cos, sin = angles.cos(), angles.sin()
        if self.scale is None or self.scale_base is None:
            self._cos_cached, self._sin_cached = cos.to(dtype), sin.to(dtype)
            return
        power = (positions - seqlen // 2) / self.scale_base
        scale = self.scale.float().to(device) ** power.unsqueeze(1)
        self._cos_cached, self._sin_cached = (cos * scale).to(dtype), (sin * scale).to(dtype)
        self._cos_k_cached, self._sin_k_cached = (cos / scale).to(dtype), (sin / scale).to(dtype)

    def forward(
        self,
        qkv: torch.Tensor,
        kv: torch.Tensor | None = None,
        seqlen_offset: _Offsets = 0,
        max_seqlen: int | None = None,
        num_heads_q: int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Rotate query and key in place.

        Args:
            qkv: [batch, seq, 3, heads, size], or [batch, seq, heads + 2 * key heads, size] with ``num_heads_q``; with
                ``kv`` the query [batch, seq, heads, size].
            kv: [batch, seq, 2, key heads, size].
            seqlen_offset: position of the first token, one for all sequences or [batch].
            max_seqlen: length of the tables; required for offsets [batch].
            num_heads_q: heads of the query.

        Returns:
            ``qkv``, or ``(query, kv)``.

        Raises:
            ValueError: offsets [batch] before the first tables, without ``max_seqlen``.
        """
        length = max_seqlen
        if length is None and isinstance(seqlen_offset, int):
            length = qkv.shape[1] + seqlen_offset
        if length is not None:
            self._update_cos_sin_cache(length, qkv.device, qkv.dtype)
        cos, sin = self._cos_cached, self._sin_cached
        if cos is None or sin is None:
            raise ValueError("RotaryEmbedding: a seqlen_offset of shape [batch] needs max_seqlen")
        if kv is None:
            keys = (self._cos_k_cached, self._sin_k_cached)
            return apply_rotary_emb_qkv_(qkv, cos, sin, *keys, self.interleaved, seqlen_offset, num_heads_q)
        query = apply_rotary_emb(qkv, cos, sin, self.interleaved, True, seqlen_offset)
        if self._cos_k_cached is not None and self._sin_k_cached is not None:
            cos, sin = self._cos_k_cached, self._sin_k_cached
        return query, apply_rotary_emb_kv_(kv, cos, sin, self.interleaved, seqlen_offset)
