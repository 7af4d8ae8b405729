"""Attention over a cache of keys and values, for decoding: the cache is read where it lies, paged or not."""

import torch

from isthmus.ops.paged_attention import attend_paged, cache_write
from isthmus.ops.registration import compute_dtype
from isthmus.ops.rotary_embedding import apply_rotary_emb

_Out = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


@torch.no_grad()
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
    batch, queries, heads = q.shape[:3]
    table = _blocks(k_cache, block_table, cache_batch_idx, batch)
    new = 0 if k is None else k.shape[1]
    held = _cached_lengths(cache_seqlens, batch, k_cache.shape[1] * table.shape[1], new, q.device)
    if rotary_cos is not None and rotary_sin is not None:
        if k is not None:
            k = apply_rotary_emb(k, rotary_cos, rotary_sin, rotary_interleaved, False, held)
        q = _rotated_queries(
            q, rotary_cos, rotary_sin, rotary_interleaved, held, causal or window_size != (-1, -1)
        )
    if k is not None and v is not None:
        slots = _slots(held[:, None] + torch.arange(new, device=q.device), table, k_cache.shape[1])
        new_k, new_v = (each.flatten(0, 1).to(k_cache.dtype) for each in (k, v))
        cache_write(new_k, new_v, k_cache, v_cache, slots.flatten())
    keys = held + new
    if cache_leftpad is not None:
        k_cache, v_cache, table = _without_padding(k_cache, v_cache, table, cache_leftpad)
        keys = keys - cache_leftpad
    left, right = (None if side < 0 else side for side in window_size)
    lse = q.new_empty(heads, batch * queries, dtype=compute_dtype(q)) if return_softmax_lse else None
    out = attend_paged(
        q.flatten(0, 1), k_cache, v_cache, table,
        torch.arange(batch + 1, dtype=torch.int32, device=q.device) * queries,
        keys.to(torch.int32), queries, k_cache.shape[1] * table.shape[1], scale=softmax_scale, left=left,
        right=0 if causal else right, softcap=softcap, alibi_slopes=alibi_slopes,
        out=q.new_empty(batch * queries, heads, v_cache.shape[-1]), lse=lse,
    ).unflatten(0, (batch, queries))  # fmt: skip
    return out if lse is None else (out, lse.unflatten(1, (batch, queries)).transpose(0, 1).contiguous())


def _blocks(
    cache: torch.Tensor, table: torch.Tensor | None, places: torch.Tensor | None, batch: int
) -> torch.Tensor:
    """The block table; of a cache that is not paged, whose blocks are its rows."""
    if table is not None:
        return table
    if places is None:
        places = torch.arange(batch, device=cache.device)
    return places.to(torch.int32).unsqueeze(1)


def _cached_lengths(
    lengths: int | torch.Tensor | None, batch: int, longest: int, new: int, device: torch.device
) -> torch.Tensor:
    """Number of cached keys of each sequence, [batch]; a tensor of them is not read here."""
    if isinstance(lengths, torch.Tensor):
        return lengths
    length = longest if lengths is None else lengths
    if length + new > longest:
        raise ValueError(
            f"flash_attn_with_kvcache: a sequence would have {length + new} keys, but the cache holds {longest}"
        )
    return torch.full((batch,), length, dtype=torch.int32, device=device)


def _slots(position: torch.Tensor, table: torch.Tensor, size: int) -> torch.Tensor:
    """Slots of positions [batch, tokens] of sequences in a cache with blocks of a size."""
    block = table.gather(1, (position // size).to(torch.int64))
    return block.to(torch.int64) * size + position % size


def _without_padding(
    k_cache: torch.Tensor, v_cache: torch.Tensor, table: torch.Tensor, padding: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Views of the caches with blocks of one token, and the table without the first tokens of each sequence."""
    size = k_cache.shape[1]
    position = padding[:, None] + torch.arange(size, device=table.device)
    slots = table * size + position.clamp(max=size - 1)
    return *(each.view(-1, 1, *each.shape[2:]) for each in (k_cache, v_cache)), slots.to(torch.int32)


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
