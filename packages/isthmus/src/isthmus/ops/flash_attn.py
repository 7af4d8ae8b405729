"""The functions and modules of flash-attn 2, with its names and signatures.

Every implementation is deterministic, whatever ``deterministic`` says. With ``return_attn_probs`` a function returns
``(out, softmax_lse, S_dmask)``: the log-sum-exp of the scores [batch, heads, queries] or [heads, tokens], and the
full weight matrix [batch, heads, queries, keys], negative where dropout dropped a weight. The matrix is for tests.
"""

from typing import Any

import torch
from torch import nn

from isthmus.ops import philox
from isthmus.ops.attention import attend, weights
from isthmus.ops.paged_attention import attend_paged
from isthmus.ops.registration import compute_dtype

_Window = tuple[int, int]
_Out = torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: _Window,
    softcap: float,
    alibi_slopes: torch.Tensor | None,
    return_attn_probs: bool,
    lengths: Any = None,
) -> _Out:
    if alibi_slopes is not None and alibi_slopes.requires_grad:
        raise ValueError("flash_attn: alibi_slopes gets no gradient; pass alibi_slopes.detach()")
    left, right = (None if side < 0 else side for side in window_size)
    settings: dict[str, Any] = {
        "alibi_slopes": alibi_slopes,
        "lengths": lengths,
        "rng": philox.draw(q.device) if dropout_p else None,
        "scale": softmax_scale,
        "left": left,
        "right": 0 if causal else right,
        "softcap": softcap,
        "dropout_p": dropout_p,
    }
    out, lse = attend(q, k, v, **settings)
    if not return_attn_probs:
        return out
    return out, lse, weights(q.detach(), k.detach(), lse, **settings)


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> _Out:
    """Attention of q over k and v.

    Args:
        q: [batch, queries, heads, features], float16, bfloat16, float32 or float64.
        k: [batch, keys, key heads, features]; the key heads divide the heads.
        v: [batch, keys, key heads, value features].
        dropout_p: probability of dropping a weight.
        softmax_scale: factor of the scores; None is ``1 / sqrt(features)``.
        causal: hide the keys after a query's position; the last query is aligned with the last key.
        window_size: visible keys (before, after) a query's position; -1 is all.
        softcap: scores become ``softcap * tanh(scores / softcap)``; 0 disables it.
        alibi_slopes: [heads] or [batch, heads]: subtract ``slope * |i + keys - queries - j|`` from the scores.
        deterministic: ignored; the backward pass is always deterministic.
        return_attn_probs: return ``(out, softmax_lse, S_dmask)``.

    Returns:
        [batch, queries, heads, value features]; queries with no visible key give 0.

    Raises:
        ValueError: shapes or dtypes do not match, or ``dropout_p`` is outside [0, 1].
    """
    options = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs)
    return _attend(q, k, v, *options)


def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> _Out:
    """:func:`flash_attn_func` with k and v as kv, [batch, keys, 2, key heads, features]."""
    k, v = _unpack("kv", kv, 2, 5)
    options = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs)
    return _attend(q, k, v, *options)


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> _Out:
    """:func:`flash_attn_func` with q, k and v as qkv, [batch, tokens, 3, heads, features]."""
    q, k, v = _unpack("qkv", qkv, 3, 5)
    options = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs)
    return _attend(q, k, v, *options)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> _Out:
    """:func:`flash_attn_func` of packed sequences, each over its own keys.

    Args:
        q: [tokens, heads, features].
        k: [key tokens, key heads, features].
        v: [key tokens, key heads, value features].
        cu_seqlens_q: int32 [sequences + 1], start of each sequence in q, and the number of tokens.
        cu_seqlens_k: the same for k and v.
        max_seqlen_q: at least the longest sequence of q.
        max_seqlen_k: at least the longest sequence of k.
        dropout_p: as in :func:`flash_attn_func`, like the next five.
        softmax_scale: factor of the scores.
        causal: the last query of a sequence is aligned with its last key.
        window_size: visible keys (before, after) a query's position.
        softcap: of the scores.
        alibi_slopes: [heads] or [sequences, heads].
        deterministic: ignored.
        return_attn_probs: return ``(out, softmax_lse, S_dmask)``, the latter
            [sequences, heads, max_seqlen_q, max_seqlen_k].
        block_table: int32 [sequences, maximum blocks], the blocks of each sequence in k and v, which are then caches
            [blocks, block size, key heads, features]: :func:`isthmus.ops.paged_attention`, without gradients and
            without S_dmask.

    Raises:
        ValueError: as :func:`flash_attn_func`, or lengths that do not match the tensors.
    """
    if block_table is not None:
        if dropout_p:
            raise ValueError(
                f"flash_attn_varlen_func: dropout_p is {dropout_p}; it must be 0 with block_table"
            )
        left, right = (None if side < 0 else side for side in window_size)
        lse = q.new_empty(q.shape[1::-1], dtype=compute_dtype(q)) if return_attn_probs else None
        out = attend_paged(
            q, k, v, block_table, cu_seqlens_q.to(torch.int32), cu_seqlens_k.diff().to(torch.int32), max_seqlen_q,
            max_seqlen_k, scale=softmax_scale, left=left, right=0 if causal else right, softcap=softcap,
            alibi_slopes=alibi_slopes, out=q.new_empty(*q.shape[:-1], v.shape[-1]), lse=lse,
        )  # fmt: skip
        return out if lse is None else (out, lse, q.new_empty(0))
    options = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs)
    return _attend(q, k, v, *options, (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k))


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> _Out:
    """:func:`flash_attn_varlen_func` with k and v as kv, [key tokens, 2, key heads, features]."""
    k, v = _unpack("kv", kv, 2, 4)
    options = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs)
    return _attend(q, k, v, *options, (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k))


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: _Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> _Out:
    """:func:`flash_attn_varlen_func` with q, k and v as qkv, [tokens, 3, heads, features]."""
    q, k, v = _unpack("qkv", qkv, 3, 4)
    options = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs)
    return _attend(q, k, v, *options, (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen))


def _unpack(name: str, packed: torch.Tensor, count: int, rank: int) -> tuple[torch.Tensor, ...]:
    if packed.dim() != rank or packed.shape[-3] != count:
        raise ValueError(
            f"flash_attn: {name} has shape {tuple(packed.shape)}; it must have {rank} dimensions, the third from the "
            f"end of size {count}"
        )
    return packed.unbind(-3)


class FlashCrossAttention(nn.Module):
    """Attention of q over kv as a module; flash-attn's module of this name.

    Args:
        causal: hide the keys after a query's position; the last query is aligned with the last key.
        softmax_scale: factor of the scores; None is ``1 / sqrt(features)``.
        attention_dropout: dropout probability of the weights in training.
        alibi_slopes: [heads], or None.
        window_size: visible keys (before, after) a query's position; -1 is all.
        deterministic: ignored; the backward pass is always deterministic.
    """

    alibi_slopes: torch.Tensor | None

    def __init__(
        self,
        causal: bool = False,
        softmax_scale: float | None = None,
        attention_dropout: float = 0.0,
        alibi_slopes: torch.Tensor | None = None,
        window_size: _Window = (-1, -1),
        deterministic: bool = False,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.softmax_scale = softmax_scale
        self.attention_dropout = attention_dropout
        self.window_size = window_size
        self.deterministic = deterministic
        self.register_buffer("alibi_slopes", alibi_slopes, persistent=False)

    def forward(
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        causal: bool | None = None,
        cu_seqlens: torch.Tensor | None = None,
        max_seqlen: int | None = None,
        cu_seqlens_k: torch.Tensor | None = None,
        max_seqlen_k: int | None = None,
    ) -> _Out:
        """Attention of q [batch, queries, heads, features] over kv [batch, keys, 2, key heads, features], or packed.

        Raises:
            ValueError: only some of the four lengths are given.
        """
        options = (
            self.attention_dropout if self.training else 0.0, self.softmax_scale,
            self.causal if causal is None else causal, self.window_size, 0.0, self.alibi_slopes, False,
        )  # fmt: skip
        given = (cu_seqlens, cu_seqlens_k, max_seqlen, max_seqlen_k)
        if all(each is None for each in given):
            k, v = _unpack("kv", kv, 2, 5)
            return _attend(q, k, v, *options)
        if any(each is None for each in given):
            raise ValueError(
                "FlashCrossAttention: packed sequences need cu_seqlens, max_seqlen, cu_seqlens_k and max_seqlen_k"
            )
        k, v = _unpack("kv", kv, 2, 4)
        return _attend(q, k, v, *options, given)
