"""The functions of flash-attn 2 under their own names and signatures, and its modules.

Every implementation is deterministic, so ``deterministic`` asks for what is so anyway. With
``return_attn_probs`` a function returns ``(out, softmax_lse, S_dmask)``: the logarithms of the softmax's sums,
[batch, heads, queries] or [heads, tokens], and the weights of all pairs, [batch, heads, queries, keys], those that
dropout dropped negative; the latter holds what attention by blocks exists not to hold, and is for tests.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from isthmus.ops import philox
from isthmus.ops.attention import attend, weights

_Window = tuple[int, int]
_Out = torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class _Options(NamedTuple):
    dropout_p: float
    softmax_scale: float | None
    causal: bool
    window_size: _Window
    softcap: float
    alibi_slopes: torch.Tensor | None
    return_attn_probs: bool


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: _Options, lengths: Any = None
) -> _Out:
    if options.alibi_slopes is not None and options.alibi_slopes.requires_grad:
        raise ValueError("flash_attn: alibi_slopes has no gradient; pass alibi_slopes.detach()")
    left, right = (None if side < 0 else side for side in options.window_size)
    settings: dict[str, Any] = {
        "alibi_slopes": options.alibi_slopes,
        "lengths": lengths,
        "rng": philox.draw(q.device) if options.dropout_p else None,
        "scale": options.softmax_scale,
        "left": left,
        "right": 0 if options.causal else right,
        "softcap": options.softcap,
        "dropout_p": options.dropout_p,
    }
    out, lse = attend(q, k, v, **settings)
    if not options.return_attn_probs:
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
        dropout_p: share of the weights that is dropped.
        softmax_scale: of the products; None is ``1 / sqrt(features)``.
        causal: a query sees the keys up to its own, the last query being beside the last key.
        window_size: keys seen (before, after) a query's own; -1 is all.
        softcap: scores are ``softcap * tanh(scores / softcap)``; 0 is none.
        alibi_slopes: [heads] or [batch, heads]: ``slope * |i + keys - queries - j|`` is taken from the scores.
        deterministic: the backward is, whether asked or not.
        return_attn_probs: return ``(out, softmax_lse, S_dmask)``.

    Returns:
        [batch, queries, heads, value features]; queries that see nothing give 0.

    Raises:
        ValueError: shapes or dtypes that do not fit, or a share outside 0 to 1.
    """
    options = _Options(
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs
    )
    return _attend(q, k, v, options)


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
    options = _Options(
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs
    )
    k, v = _unpacked("kv", kv, 2, 5)
    return _attend(q, k, v, options)


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
    options = _Options(
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs
    )
    q, k, v = _unpacked("qkv", qkv, 3, 5)
    return _attend(q, k, v, options)


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
    """:func:`flash_attn_func` of sequences one after another, each over its own keys.

    Args:
        q: [tokens, heads, features].
        k: [key tokens, key heads, features].
        v: [key tokens, key heads, value features].
        cu_seqlens_q: int32 [sequences + 1], where each sequence begins in q; ends with the tokens.
        cu_seqlens_k: likewise of k and v.
        max_seqlen_q: at least the longest sequence of q.
        max_seqlen_k: at least the longest sequence of k.
        dropout_p: see :func:`flash_attn_func`, as for those that follow.
        softmax_scale: of the products.
        causal: the last query of a sequence being beside its last key.
        window_size: keys seen (before, after) a query's own.
        softcap: of the scores.
        alibi_slopes: [heads] or [sequences, heads].
        deterministic: the backward is.
        return_attn_probs: return ``(out, softmax_lse, S_dmask)``, the latter
            [sequences, heads, max_seqlen_q, max_seqlen_k].
        block_table: of a paged cache of keys, which no implementation serves.

    Raises:
        NotImplementedError: a block_table is given.
        ValueError: as :func:`flash_attn_func`; or lengths that do not fit the tensors.
    """
    if block_table is not None:
        raise NotImplementedError(
            "flash_attn_varlen_func: block_table (a paged cache of keys) is not served; pass k and v packed"
        )
    options = _Options(
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs
    )
    return _attend(q, k, v, options, (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k))


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
    options = _Options(
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs
    )
    k, v = _unpacked("kv", kv, 2, 4)
    return _attend(q, k, v, options, (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k))


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
    options = _Options(
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs
    )
    q, k, v = _unpacked("qkv", qkv, 3, 4)
    return _attend(q, k, v, options, (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen))


def _unpacked(name: str, packed: torch.Tensor, count: int, rank: int) -> tuple[torch.Tensor, ...]:
    if packed.dim() != rank or packed.shape[-3] != count:
        raise ValueError(
            f"flash_attn: {name} is {tuple(packed.shape)}; it has to have {rank} dimensions, "
            f"with {count} in the third from the end"
        )
    return packed.unbind(-3)


class FlashCrossAttention(nn.Module):
    """Attention of q over kv, as a module; flash-attn's of that name.

    Args:
        causal: a query sees the keys up to its own, the last query being beside the last key.
        softmax_scale: of the products; None is ``1 / sqrt(features)``.
        attention_dropout: share of the weights dropped in training.
        alibi_slopes: [heads], or None.
        window_size: keys seen (before, after) a query's own; -1 is all.
        deterministic: the backward is, whether asked or not.
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
        """[batch, queries, heads, features] over [batch, keys, 2, key heads, features]; or packed, with lengths.

        Raises:
            ValueError: some of the four lengths are given and others not.
        """
        options = _Options(
            self.attention_dropout if self.training else 0.0, self.softmax_scale,
            self.causal if causal is None else causal, self.window_size, 0.0, self.alibi_slopes, False,
        )  # fmt: skip
        given = (cu_seqlens, cu_seqlens_k, max_seqlen, max_seqlen_k)
        if all(each is None for each in given):
            k, v = _unpacked("kv", kv, 2, 5)
            return _attend(q, k, v, options)
        if any(each is None for each in given):
            raise ValueError(
                "FlashCrossAttention: packed sequences need cu_seqlens, max_seqlen, cu_seqlens_k and max_seqlen_k"
            )
        k, v = _unpacked("kv", kv, 2, 4)
        return _attend(q, k, v, options, given)
