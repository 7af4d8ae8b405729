"""Attention over a key-value cache in blocks, and writes into it."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from typing import Any

import ml_dtypes
import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, double, writes

PANEL = 256  # keys
FLOAT8 = np.dtype(ml_dtypes.float8_e4m3fn)
QUANTIZED = ("float8_e4m3fn",)


def by_head(scale: Maybe, heads: int) -> Any:
    """Return a scale of the whole cache or of each head as [heads, 1, 1, 1]."""
    return 1.0 if scale is None else np.broadcast_to(double(scale), heads)[:, None, None, None]


def panel(cache: Array, blocks: Array, count: int) -> Array:
    """Return the first keys of some blocks as float64 [heads, 1, keys, features]."""
    if ((blocks < 0) | (blocks >= len(cache))).any():
        raise IndexError(f"block_table: {blocks.tolist()}, but the cache has {len(cache)} blocks")
    rows = cache[blocks].reshape(-1, *cache.shape[2:])[:count]
    return np.moveaxis(double(rows), 1, 0)[:, None]


@writes("isthmus::paged_attention", more=QUANTIZED)
def paged_attention(
    query: Array, key_cache: Array, value_cache: Array, table: Array, cu_seqlens_q: Array, seqlens_k: Array,
    alibi_slopes: Maybe, sinks: Maybe, key_scale: Maybe, value_scale: Maybe, out: Array, lse: Maybe, most_q: int,
    most_k: int, scale: float, left: int | None, right: int | None, softcap: float,
) -> None:  # fmt: skip
    heads, (block, key_heads) = query.shape[1], key_cache.shape[1:3]
    step = block * max(PANEL // block, 1)
    capacity = min(most_k, table.shape[1] * block)
    if (np.diff(cu_seqlens_q) < 0).any() or cu_seqlens_q[-1] > len(query):
        raise ValueError(f"cu_seqlens_q must rise to at most {len(query)}; it is {cu_seqlens_q.tolist()}")
    if (np.diff(cu_seqlens_q) > most_q).any():
        raise ValueError(f"cu_seqlens_q has a sequence above max_seqlen_q, {most_q}")
    if ((seqlens_k < 0) | (seqlens_k > capacity)).any():
        raise ValueError(f"seqlens_k must be from 0 to {capacity}; it is {seqlens_k.tolist()}")
    for i, keys in enumerate(seqlens_k.tolist()):
        at = slice(cu_seqlens_q[i], cu_seqlens_q[i + 1])
        queries = int(at.stop - at.start)
        shape = (key_heads, heads // key_heads, queries, query.shape[2])
        q = np.moveaxis(double(query[at]), 1, 0).reshape(shape)
        row = np.arange(keys - queries, keys)[:, None]
        top = np.full((*q.shape[:3], 1), -np.inf) if sinks is None else np.broadcast_to(
            double(sinks).reshape(key_heads, -1, 1, 1), (*q.shape[:3], 1)
        )  # fmt: skip
        sums = np.full(top.shape, float(sinks is not None))
        total = np.zeros((*q.shape[:3], value_cache.shape[3]))
        first = 0 if left is None else max(keys - queries - left, 0) // block * block
        last = keys if right is None else min(keys + right, keys)
        for start in range(first, last if queries else 0, step):
            count = min(step, last - start)
            blocks = table[i, start // block : -(-(start + count) // block)]
            k, v = (panel(cache, blocks, count) for cache in (key_cache, value_cache))
            scores: Any = q @ k.swapaxes(2, 3) * (scale * by_head(key_scale, key_heads))
            scores = softcap * np.tanh(scores / softcap) if softcap else scores
            distance = row - np.arange(start, start + count)
            if alibi_slopes is not None:
                slopes = double(alibi_slopes if alibi_slopes.ndim == 1 else alibi_slopes[i])
                scores = scores - slopes.reshape(key_heads, -1, 1, 1) * np.abs(distance)
            before = distance > left if left is not None else False
            after = -distance > right if right is not None else False
            scores = np.where(np.logical_or(before, after), -np.inf, scores)
            before, top = top, np.maximum(top, scores.max(-1, keepdims=True))
            base = np.where(top == -np.inf, 0, top)
            weights, factor = np.exp(scores - base), np.exp(before - base)
            sums, total = sums * factor + weights.sum(-1, keepdims=True), total * factor + weights @ v
        total = total / np.where(sums == 0, 1, sums) * by_head(value_scale, key_heads)
        out[at] = np.moveaxis(total.reshape(heads, *total.shape[2:]), 0, 1)
        if lse is not None:
            lse[:, at] = (top + np.log(sums)).reshape(heads, queries)


@writes("isthmus::cache_write", more=QUANTIZED)
def cache_write(
    key: Array, value: Array, key_cache: Array, value_cache: Array, slots: Array, key_scale: Maybe,
    value_scale: Maybe,
) -> None:  # fmt: skip
    kept = np.flatnonzero(slots >= 0)
    at, block = slots[kept], key_cache.shape[1]
    if (at >= len(key_cache) * block).any():
        raise IndexError(f"slots: {at.max()} is out of range for {len(key_cache) * block} slots")
    for given, cache, scale in ((key, key_cache, key_scale), (value, value_cache, value_scale)):
        rows: Any = given[kept]
        if scale is not None:
            rows = double(rows) / np.broadcast_to(double(scale), rows.shape[1])[:, None]
        if cache.dtype == np.int8:
            rows = np.nan_to_num(np.clip(np.rint(double(rows)), -128, 127))
        elif cache.dtype == FLOAT8:
            rows = np.clip(double(rows), -448.0, 448.0)
        cache[at // block, at % block] = rows.astype(cache.dtype)
