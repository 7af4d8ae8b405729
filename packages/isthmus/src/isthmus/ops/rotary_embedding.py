"""Rotary position embedding with the interfaces of flash-attn and transformers, and as a module."""

import torch
from torch import nn

from isthmus.ops.rotary import apply_rotary, rotary, rotary_qk


def apply_rotary_emb(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | torch.Tensor = 0,
    cu_seqlens: torch.Tensor | None = None,
    max_seqlen: int | None = None,
) -> torch.Tensor:
    """flash-attn's function of this name.

    Args:
        x: [batch, seq, heads, size], or with ``cu_seqlens`` [total, heads, size].
        cos: [rows, rotary_dim / 2]; rotates the first ``rotary_dim`` elements of a head.
        sin: like ``cos``.
        interleaved: pairs are adjacent elements (GPT-J); otherwise i and ``i + dim / 2`` (NeoX).
        inplace: write into ``x``.
        seqlen_offsets: position of the first token, one for all sequences or [batch].
        cu_seqlens: cumulative lengths [batch + 1].
        max_seqlen: maximum length; required with ``cu_seqlens``.

    Returns:
        A tensor like ``x``.

    Raises:
        ValueError: the tables have too few rows or the wrong shape, or ``max_seqlen`` is missing.
    """
    if cu_seqlens is not None:
        if max_seqlen is None:
            raise ValueError("apply_rotary_emb: cu_seqlens needs max_seqlen")
        _check_rows(cos, max_seqlen, seqlen_offsets)
        where: torch.Tensor | None = _varlen_positions(cu_seqlens, x.size(0), seqlen_offsets)
    else:
        cos, sin, where = _from(cos, sin, x.size(1), seqlen_offsets)
    dim = 2 * cos.size(-1)
    return rotary(x, cos, sin, positions=where, dim=dim, interleaved=interleaved, inplace=inplace)


def apply_rotary_emb_qkv_(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    cos_k: torch.Tensor | None = None,
    sin_k: torch.Tensor | None = None,
    interleaved: bool = False,
    seqlen_offsets: int | torch.Tensor = 0,
    num_heads_q: int | None = None,
) -> torch.Tensor:
    """flash-attn's function of this name: rotate query and key of a packed projection in place.

    Args:
        qkv: [batch, seq, 3, heads, size], or [batch, seq, query heads + 2 * key heads, size].
        cos: [rows, rotary_dim / 2].
        sin: like ``cos``.
        cos_k: table of the key, if it has its own.
        sin_k: like ``cos_k``.
        interleaved: pairs are adjacent elements (GPT-J); otherwise i and ``i + dim / 2`` (NeoX).
        seqlen_offsets: position of the first token, one for all sequences or [batch].
        num_heads_q: heads of the query; required for a four-dimensional projection.

    Returns:
        ``qkv``.

    Raises:
        ValueError: the shapes do not match.
    """
    query_heads, key_heads = _packed_heads(qkv, num_heads_q)
    if (cos_k is None) != (sin_k is None):
        raise ValueError("apply_rotary_emb_qkv_: pass both cos_k and sin_k, or neither")
    if cos_k is None or sin_k is None:
        if qkv.dim() == 4 or _flattenable(qkv):  # one pass over the heads of both
            flat = qkv if qkv.dim() == 4 else qkv.flatten(2, 3)
            _rotate_first(flat, query_heads + key_heads, cos, sin, interleaved, seqlen_offsets)
            return qkv
        cos_k, sin_k = cos, sin
    query = qkv.narrow(2, 0, query_heads) if qkv.dim() == 4 else qkv.select(2, 0)
    _rotate_first(query, query_heads, cos, sin, interleaved, seqlen_offsets)
    key = qkv.narrow(2, query_heads, key_heads) if qkv.dim() == 4 else qkv.select(2, 1)
    _rotate_first(key, key_heads, cos_k, sin_k, interleaved, seqlen_offsets)
    return qkv


def _flattenable(qkv: torch.Tensor) -> bool:
    """Whether dimensions 2 and 3 of [batch, seq, 3, heads, size] can be flattened as a view."""
    return qkv.stride(2) == qkv.size(3) * qkv.stride(3)


def apply_rotary_emb_kv_(
    kv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,
    seqlen_offsets: int | torch.Tensor = 0,
) -> torch.Tensor:
    """flash-attn's function of this name: rotate the key of [batch, seq, 2, heads, size] in place."""
    if kv.dim() != 5 or kv.size(2) != 2:
        raise ValueError(f"apply_rotary_emb_kv_: kv has shape {tuple(kv.shape)}; it must be [b, s, 2, h, d]")
    _rotate_first(kv.select(2, 0), kv.size(3), cos, sin, interleaved, seqlen_offsets)
    return kv


def apply_rotary_pos_emb(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hugging Face transformers' function of this name.

    Args:
        q: [batch, heads, seq, size], or [batch, seq, heads, size] with ``unsqueeze_dim`` 2.
        k: like ``q``; may have fewer heads.
        cos: [batch or 1, seq, width]; elements of a head beyond ``width`` are not rotated.
        sin: like ``cos``.
        unsqueeze_dim: dimension of the heads in ``q``.

    Returns:
        The rotated (q, k).

    Raises:
        ValueError: the tables have the wrong shape, or ``unsqueeze_dim`` is neither 1 nor 2.
    """
    if unsqueeze_dim not in (1, 2):
        raise ValueError(f"apply_rotary_pos_emb: unsqueeze_dim is {unsqueeze_dim}; it must be 1 or 2")
    layout = "bhsd" if unsqueeze_dim == 1 else "bshd"
    return rotary_qk(q, k, cos, sin, layout=layout, dim=cos.size(-1))


class RotaryEmbedding(nn.Module):
    """Rotates query and key by the angles ``position * base ** (-2 i / dim)``.

    The float32 tables are computed on first use and grow with the sequence.

    Args:
        dim: number of elements of a head to rotate; even.
        base: of the angles.
        interleaved: pairs are adjacent elements (GPT-J); otherwise i and ``i + dim / 2`` (NeoX).
    """

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, dim: int, base: float = 10000.0, interleaved: bool = False) -> None:
        super().__init__()
        if dim % 2:
            raise ValueError(f"RotaryEmbedding: dim is {dim}; it must be even")
        self.dim = dim
        self.base = base
        self.interleaved = interleaved
        self.register_buffer("cos", torch.empty(0, dim // 2), persistent=False)
        self.register_buffer("sin", torch.empty(0, dim // 2), persistent=False)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        positions: torch.Tensor | None = None,
        max_position: int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rotated query and key.

        Args:
            query: [batch, seq, heads, size].
            key: [batch, seq, heads, size].
            positions: [batch or 1, seq]; None is 0, 1, ...
            max_position: exclusive upper bound of the positions; default: the sequence length.
        """
        self._grow(max(query.size(1), max_position or 0), query.device)
        out, other = apply_rotary(
            query, key, self.cos, self.sin, positions, "bshd", self.dim, None, self.interleaved, False, False
        )
        assert other is not None
        return out, other

    def _grow(self, rows: int, device: torch.device) -> None:
        if rows <= self.cos.size(0) and self.cos.device == device and self.cos.dtype == torch.float32:
            return
        steps = torch.arange(0, self.dim, 2, dtype=torch.float64) / self.dim
        angles = torch.outer(torch.arange(rows, dtype=torch.float64), self.base**-steps)
        self.cos, self.sin = angles.cos().float().to(device), angles.sin().float().to(device)

    def extra_repr(self) -> str:
        """The module's arguments, as ``print`` shows them."""
        return f"{self.dim}, base={self.base}, interleaved={self.interleaved}"


def _from(
    cos: torch.Tensor, sin: torch.Tensor, length: int, offsets: int | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The tables from an offset on, or the table row of each token with an offset per sequence."""
    _check_rows(cos, length, offsets)
    if isinstance(offsets, int):
        return cos[offsets : offsets + length], sin[offsets : offsets + length], None
    return cos, sin, offsets.long().unsqueeze(1) + torch.arange(length, device=offsets.device)


def _check_rows(cos: torch.Tensor, length: int, offsets: int | torch.Tensor) -> None:
    first = offsets if isinstance(offsets, int) else 0  # the operator checks offsets on the device
    if first < 0 or first + length > cos.size(0):
        raise ValueError(
            f"apply_rotary_emb: tables of {cos.size(0)} rows for {length} tokens from position {first} on; "
            "use longer tables"
        )


def _varlen_positions(cu_seqlens: torch.Tensor, total: int, offsets: int | torch.Tensor) -> torch.Tensor:
    starts = cu_seqlens[:-1].long()
    first = starts - (offsets if isinstance(offsets, int) else offsets.long())
    lengths = cu_seqlens.diff()
    return torch.arange(total, device=starts.device) - first.repeat_interleave(lengths, output_size=total)


def _packed_heads(qkv: torch.Tensor, query_heads: int | None) -> tuple[int, int]:
    if qkv.dim() == 5 and qkv.size(2) == 3:
        return qkv.size(3), qkv.size(3)
    if qkv.dim() != 4 or query_heads is None or query_heads > qkv.size(2) or (qkv.size(2) - query_heads) % 2:
        raise ValueError(
            f"apply_rotary_emb_qkv_: qkv has shape {tuple(qkv.shape)} and num_heads_q is {query_heads}; qkv must "
            "be [b, s, 3, h, d], or [b, s, num_heads_q + 2 * key heads, d]"
        )
    return query_heads, (qkv.size(2) - query_heads) // 2


def _rotate_first(
    packed: torch.Tensor,
    heads: int,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool,
    offsets: int | torch.Tensor,
) -> None:
    cos, sin, where = _from(cos, sin, packed.size(1), offsets)
    width = 2 * cos.size(-1)
    rotary(packed, cos, sin, positions=where, dim=width, heads=heads, interleaved=interleaved, inplace=True)
