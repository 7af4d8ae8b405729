"""The functions of FlashAttention 3, implemented by :mod:`isthmus.ops`.

Source: hopper/flash_attn_interface.py of https://github.com/Dao-AILab/flash-attention.
"""

from typing import Any

import torch
from flash_attn import flash_attn_with_kvcache as _with_kvcache  # type: ignore[import-not-found] # beside this file

from isthmus.ops import flash_attn as _flash_attn

__all__ = [
    "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func", "flash_attn_with_kvcache",
]  # fmt: skip

_Tensor = torch.Tensor | None
_Out = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


def _refuse(name: str, **arguments: Any) -> None:
    for argument, value in arguments.items():
        if isinstance(value, torch.Tensor) or value:
            raise NotImplementedError(f"{name}: {argument} is not supported")


def _attend(
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    return_attn_probs: bool,
    lengths: Any = None,
) -> _Out:
    settings: Any = (scale, causal, window_size, softcap, None, return_attn_probs, lengths)
    out: Any = _flash_attn._attend(*tensors, 0.0, *settings)
    return out[:2] if return_attn_probs else out


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: _Tensor = None,
    q_descale: _Tensor = None,
    k_descale: _Tensor = None,
    v_descale: _Tensor = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> _Out:
    """Attention of q over k and v, without dropout.

    Args:
        q: [batch, queries, heads, features].
        k: [batch, keys, key heads, features]; the key heads divide the heads.
        v: [batch, keys, key heads, value features].
        softmax_scale: factor of the scores; None is ``1 / sqrt(features)``.
        causal: hide the keys after a query's position; the last query is aligned with the last key.
        qv: not supported.
        q_descale: not supported, like ``k_descale`` and ``v_descale``.
        k_descale: see ``q_descale``.
        v_descale: see ``q_descale``.
        window_size: visible keys (before, after) a query's position; -1 is all.
        attention_chunk: not supported.
        softcap: scores become ``softcap * tanh(scores / softcap)``; 0 disables it.
        num_splits: ignored, like ``pack_gqa``, ``deterministic`` and ``sm_margin``.
        pack_gqa: see ``num_splits``.
        deterministic: see ``num_splits``.
        sm_margin: see ``num_splits``.
        return_attn_probs: also return the log-sum-exp of the scores [batch, heads, queries].

    Returns:
        [batch, queries, heads, value features].

    Raises:
        NotImplementedError: an argument that is not supported.
    """
    descales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    _refuse("flash_attn_func", qv=qv, attention_chunk=attention_chunk, **descales)
    return _attend((q, k, v), softmax_scale, causal, window_size, softcap, return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    q_descale: _Tensor = None,
    k_descale: _Tensor = None,
    v_descale: _Tensor = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: int | None = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> _Out:
    """:func:`flash_attn_func` of a packed projection.

    Args:
        qkv: [batch, tokens, 3, heads, features], or [batch, tokens, heads + 2 * key heads, features].
        num_heads_q: heads of the query in the second form.
        softmax_scale: as in :func:`flash_attn_func`, like the other arguments.
    """
    descales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    _refuse("flash_attn_qkvpacked_func", attention_chunk=attention_chunk, **descales)
    if qkv.dim() == 5:
        q, k, v = qkv.unbind(-3)
    elif num_heads_q is None:
        raise ValueError("flash_attn_qkvpacked_func: qkv of four dimensions needs num_heads_q")
    else:
        keys = (qkv.shape[2] - num_heads_q) // 2
        q, k, v = qkv.split([num_heads_q, keys, keys], -2)
    return _attend((q, k, v), softmax_scale, causal, window_size, softcap, return_attn_probs)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: _Tensor = None,
    seqused_k: _Tensor = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: _Tensor = None,
    q_descale: _Tensor = None,
    k_descale: _Tensor = None,
    v_descale: _Tensor = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> _Out:
    """:func:`flash_attn_func` of packed sequences, each over its own keys.

    Args:
        q: [tokens, heads, features].
        k: [key tokens, key heads, features].
        v: [key tokens, key heads, value features].
        cu_seqlens_q: cumulative lengths of the queries, int32 [sequences + 1].
        cu_seqlens_k: cumulative lengths of the keys.
        max_seqlen_q: at least the longest sequence of q.
        max_seqlen_k: at least the longest sequence of k.
        seqused_q: not supported, like ``seqused_k``.
        seqused_k: see ``seqused_q``.
        softmax_scale: as in :func:`flash_attn_func`, like the other arguments.

    Raises:
        NotImplementedError: an argument that is not supported.
    """
    descales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    used = {"seqused_q": seqused_q, "seqused_k": seqused_k}
    _refuse("flash_attn_varlen_func", qv=qv, attention_chunk=attention_chunk, **descales, **used)
    lengths = (cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k))
    return _attend((q, k, v), softmax_scale, causal, window_size, softcap, return_attn_probs, lengths)


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: _Tensor = None,
    v: _Tensor = None,
    qv: _Tensor = None,
    rotary_cos: _Tensor = None,
    rotary_sin: _Tensor = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: _Tensor = None,
    cache_leftpad: _Tensor = None,
    page_table: _Tensor = None,
    cu_seqlens_q: _Tensor = None,
    cu_seqlens_k_new: _Tensor = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: _Tensor = None,
    q_descale: _Tensor = None,
    k_descale: _Tensor = None,
    v_descale: _Tensor = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: _Tensor = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
) -> _Out:
    """:func:`flash_attn.flash_attn_with_kvcache` with other arguments; ``page_table`` is its ``block_table``.

    Raises:
        NotImplementedError: ``qv``, packed queries, ``rotary_seqlens``, descales or ``attention_chunk``.
    """
    descales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    packed = {
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k_new": cu_seqlens_k_new,
        "rotary_seqlens": rotary_seqlens,
    }
    _refuse("flash_attn_with_kvcache", qv=qv, attention_chunk=attention_chunk, **descales, **packed)
    return _with_kvcache(
        q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad, page_table,
        softmax_scale, causal, window_size, softcap, rotary_interleaved, return_softmax_lse=return_softmax_lse,
    )  # fmt: skip
