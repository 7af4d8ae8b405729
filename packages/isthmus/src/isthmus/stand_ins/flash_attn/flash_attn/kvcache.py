"""Attention over a cache of keys and values, for decoding."""

import torch

from isthmus.ops.flash_attn import flash_attn_func
from isthmus.ops.rotary_embedding import apply_rotary_emb

_Out = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: torch.Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> _Out:
    """Attention of new queries over cached keys; new keys and values are added to the cache first.

    Args:
        q: [batch, queries, heads, features].
        k_cache: [cache batch, capacity, key heads, features]; with ``block_table`` [blocks, block, ...].
        v_cache: like ``k_cache``.
        k: [batch, new, key heads, features], appended to the cache in place; or None.
        v: like ``k``.
        rotary_cos: [rows, rotary size / 2]; rotates ``q`` and ``k`` by their positions in the cache.
        rotary_sin: like ``rotary_cos``.
        cache_seqlens: number of cached keys, one for all or [batch]; None is the capacity.
        cache_batch_idx: [batch], index of each sequence in the cache.
        cache_leftpad: [batch], number of leading keys to ignore.
        block_table: [batch, maximum blocks], blocks of each sequence.
        softmax_scale: factor of the scores; None is ``1 / sqrt(features)``.
        causal: hide the keys after a query's position; the last query is aligned with the last key.
        window_size: visible keys (before, after) a query's position; -1 is all.
        softcap: scores become ``softcap * tanh(scores / softcap)``; 0 disables it.
        rotary_interleaved: pairs are adjacent elements; otherwise i and ``i + size / 2``.
        alibi_slopes: [heads] or [batch, heads].
        num_splits: ignored.
        return_softmax_lse: return ``(out, log-sum-exp [batch, heads, queries])``.

    Returns:
        [batch, queries, heads, features].

    Raises:
        ValueError: incompatible arguments, or new keys exceed the capacity of the cache.
    """
    if block_table is not None and (cache_batch_idx is not None or cache_leftpad is not None):
        raise ValueError(
            "flash_attn_with_kvcache: block_table cannot be combined with cache_batch_idx or cache_leftpad"
        )
    if (k is None) != (v is None):
        raise ValueError("flash_attn_with_kvcache: pass both k and v, or neither")
    batch, new = q.shape[0], 0 if k is None else k.shape[1]
    held = _cached_lengths(cache_seqlens, batch, _capacity(k_cache, block_table))
    if rotary_cos is not None and rotary_sin is not None:
        where = torch.tensor(held, device=q.device)
        if k is not None:
            k = apply_rotary_emb(k, rotary_cos, rotary_sin, rotary_interleaved, False, where)
        q = _rotated_queries(
            q, rotary_cos, rotary_sin, rotary_interleaved, where, causal or window_size != (-1, -1)
        )
    outs, sums = [], []
    for i in range(batch):
        place = i if cache_batch_idx is None else int(cache_batch_idx[i])
        total, begin = held[i] + new, 0 if cache_leftpad is None else int(cache_leftpad[i])
        rows = _rows(k_cache, block_table, i, place, total)
        for cache, fresh in ((k_cache, k), (v_cache, v)):
            if fresh is not None:
                cache.flatten(0, 1)[rows[held[i] :]] = fresh[i].to(cache.dtype)
        keys, values = (cache.flatten(0, 1)[rows[begin:]].unsqueeze(0) for cache in (k_cache, v_cache))
        slopes = alibi_slopes[i] if alibi_slopes is not None and alibi_slopes.dim() == 2 else alibi_slopes
        out, lse, _ = flash_attn_func(
            q[i : i + 1], keys, values, 0.0, softmax_scale, causal, window_size, softcap, slopes, False, True
        )
        outs.append(out)
        sums.append(lse)
    return (torch.cat(outs), torch.cat(sums)) if return_softmax_lse else torch.cat(outs)


def _capacity(cache: torch.Tensor, table: torch.Tensor | None) -> int:
    return cache.shape[1] if table is None else cache.shape[1] * table.shape[1]


def _cached_lengths(lengths: int | torch.Tensor | None, batch: int, longest: int) -> list[int]:
    if lengths is None:
        return [longest] * batch
    return [lengths] * batch if isinstance(lengths, int) else [int(each) for each in lengths.tolist()]


def _rotated_queries(
    q: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool,
    where: torch.Tensor,
    ordered: bool,
) -> torch.Tensor:
    """Rotate queries by the positions after the cache; all by the first if their order is irrelevant."""
    if ordered:
        return apply_rotary_emb(q, cos, sin, interleaved, False, where)
    rows = q.flatten(0, 1).unsqueeze(1)
    return apply_rotary_emb(rows, cos, sin, interleaved, False, where.repeat_interleave(q.shape[1])).view_as(
        q
    )


def _rows(cache: torch.Tensor, table: torch.Tensor | None, i: int, place: int, total: int) -> torch.Tensor:
    """Row indices of a sequence's keys in the flattened cache."""
    size, longest = cache.shape[1], _capacity(cache, table)
    if total > longest:
        raise ValueError(
            f"flash_attn_with_kvcache: sequence {i} would have {total} keys, but the cache holds {longest}"
        )
    order = torch.arange(total, device=cache.device)
    if table is None:
        return place * size + order
    return table[i].to(torch.int64)[order // size] * size + order % size
