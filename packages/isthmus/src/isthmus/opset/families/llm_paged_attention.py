"""Attention over a cache of keys and values in blocks, and writes into it, as serving engines use them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset.families._attention_calls import TOLERANCE
from isthmus.opset.families._common import size_of
from isthmus.opset.operator import EXACT, Operator, extension
from isthmus.opset.sampling import Array, Case, Maker, Values, contiguous_strides

_QUANTIZED = ("float8_e4m3fn", "int8")
_MOST = 448.0  # largest number of float8_e4m3fn


def _cache(m: Maker, shape: tuple[int, ...], used: Values, dtype: str) -> Values:
    """Random values of a cache; rows that no sequence uses are NaN, or -128."""
    values = m.tensor(*shape, low=-1.9, high=2.3, dtype=dtype).view.copy()
    values[~used] = -128 if dtype == "int8" else np.nan
    return values


def _joined(key: Values, value: Values) -> list[Array]:
    """Keys and values as views of one tensor, the features of a value after those of its key."""
    both = np.concatenate([key, value], -1)
    strides, storage = contiguous_strides(both.shape), both.reshape(-1)
    return [Array(storage, key.shape, strides), Array(storage, value.shape, strides, key.shape[-1])]


def _call(
    m: Maker, queries: list[int], keys: list[int], block: int, heads: int, key_heads: int, size: int,
    value_size: int = 0, layout: str = "contiguous", padding: int = 0, cache: str = "", **others: Any,
) -> dict[str, Any]:  # fmt: skip
    """Arguments of a call with sequences of these numbers of queries and keys."""
    counts = [-(-n // block) for n in keys]
    blocks = sum(counts) + 2
    table = np.full((len(keys), max(counts, default=0) + 1), 2**31 - 1)  # not read beyond a sequence's keys
    order = m.permutation(blocks)
    used: Values = np.zeros((blocks, block), bool)
    for row, length, count, last in zip(table, keys, counts, np.cumsum(counts), strict=True):
        row[:count] = order[last - count : last]
        used[row[:count]] = (np.arange(count * block) < length).reshape(count, block)
    dtype, tokens = cache or m.dtype, sum(queries) + padding
    key, value = (
        _cache(m, (blocks, block, key_heads, width), used, dtype) for width in (size, value_size or size)
    )
    joined = layout == "joined"
    caches = _joined(key, value) if joined else [m.values(each, dtype, layout) for each in (key, value)]
    return {
        "query": m.tensor(tokens, heads, size), "key_cache": caches[0], "value_cache": caches[1],
        "block_table": m.values(table, "int32"),
        "cu_seqlens_q": m.values(np.concatenate([[0], np.cumsum(queries)]), "int32"),
        "seqlens_k": m.values(keys, "int32"), "alibi_slopes": None, "sinks": None, "key_scale": None,
        "value_scale": None, "out": m.tensor(tokens, heads, value_size or size),
        "lse": m.tensor(heads, tokens, dtype=m.compute_dtype), "max_seqlen_q": max(queries, default=0),
        "max_seqlen_k": max(keys, default=0), "scale": size**-0.5 / 2, "left": None, "right": 0, "softcap": 0.0,
        **others,
    }  # fmt: skip


def _accurate(m: Maker, *shape: int, low: float = -0.4, high: float = 0.6) -> Array:
    return m.tensor(*shape, low=low, high=high, dtype=m.compute_dtype)


def _scales(m: Maker, *shape: int) -> Array:
    return m.tensor(*shape, low=0.02, high=0.07, dtype="float32")


def _paged(m: Maker) -> Iterator[Case]:
    mixed = [3, 1, 0, 5, 1], [3, 20, 9, 12, 1]  # prefill, decode, no query, a later chunk, one key
    yield m.case("contiguous", **_call(m, *mixed, 7, 4, 2, 8))
    yield m.case("contiguous", **_call(m, [1, 1], [5, 3], 1, 2, 1, 5, lse=None))
    yield m.case("strided", **_call(m, *mixed, 16, 6, 2, 64, layout="joined", padding=2))
    yield m.case("strided", **_call(m, [1, 4, 1], [129, 4, 300], 128, 3, 1, 33, layout="heads"))
    yield m.case("contiguous", **_call(m, [4, 6], [9, 6], 4, 2, 2, 6, right=None))
    yield m.case("contiguous", **_call(m, [4, 1, 6], [19, 30, 7], 4, 2, 2, 6, left=3, softcap=1.5))
    yield m.case(
        "contiguous", **_call(m, [4, 6], [19, 6], 4, 2, 2, 6, left=5, right=2, alibi_slopes=_accurate(m, 2))
    )
    yield m.case("contiguous", **_call(m, [1, 6], [19, 6], 7, 4, 2, 6, value_size=9, alibi_slopes=_accurate(m, 2, 4),
                                       sinks=_accurate(m, 4, low=-3, high=3)))  # fmt: skip
    yield m.case("special", **_call(m, [2, 5, 1], [0, 3, 0], 4, 2, 1, 6))  # queries with no visible key
    yield m.case("special", **_call(m, [2, 1], [0, 3], 4, 2, 1, 6, sinks=_accurate(m, 2)))
    yield m.case(
        "special", **_call(m, [3, 1], [3, 40], 8, 2, 1, 6, scale=25.0, sinks=_accurate(m, 2, high=90.0))
    )
    yield m.case("zero-size", **_call(m, [], [], 4, 2, 1, 6))
    yield m.case("zero-size", **_call(m, [0, 0], [3, 0], 4, 2, 1, 6))
    yield m.case("special", **_call(m, [1, 4, 1], [70, 25, 1], 16, 4, 2, 16, key_scale=_scales(m, 1),
                                    value_scale=_scales(m, 2)))  # fmt: skip
    for dtype in _QUANTIZED if m.dtype != "float64" else ():
        for shape in ((1,), (2,)):
            scales: dict[str, Any] = {name: _scales(m, *shape) for name in ("key_scale", "value_scale")}
            yield m.case("special", **_call(m, [1, 4, 1], [70, 25, 1], 16, 4, 2, 40, cache=dtype, **scales))
    if m.dtype in ("float32", "bfloat16"):
        yield m.case("large", **_call(m, [1, 1, 70], [700, 1030, 530], 16, 6, 2, 64, layout="joined"))
        yield m.case("large", **_call(m, [67, 1], [300, 513], 7, 8, 2, 80, value_size=20, left=260))
        yield m.case("large", **_call(m, [130], [130], 128, 5, 1, 128, sinks=_accurate(m, 5)))
        yield m.case(
            "large", **_call(m, [1] * 40, [n * 7 % 50 + 1 for n in range(40)], 5, 2, 2, 24, padding=3)
        )


def _heads_of(scale: Any, heads: int) -> Any:
    """A scale of a whole tensor or of each head as [heads]."""
    import torch

    return torch.ones(heads).double() if scale is None else scale.expand(heads)


def _attend(
    query: Any, key_cache: Any, value_cache: Any, block_table: Any, cu_seqlens_q: Any, seqlens_k: Any,
    alibi_slopes: Any, sinks: Any, key_scale: Any, value_scale: Any, out: Any, lse: Any, max_seqlen_q: int,
    max_seqlen_k: int, scale: float, left: int | None, right: int | None, softcap: float, magnitude: bool = False,
) -> Any:  # fmt: skip
    """Compute out and lse in place; with ``magnitude`` return their sums of absolute values.

    The extra terms of the magnitude account for the rounding of the scores.
    """
    import torch

    heads, key_heads, block = query.shape[1], key_cache.shape[2], key_cache.shape[1]
    into, sums = torch.zeros_like(out), torch.zeros(heads, len(query), dtype=torch.float64)
    for i, keys in enumerate(seqlens_k.tolist()):
        at = slice(*cu_seqlens_q[i : i + 2].tolist())
        rows = block_table[i, : -(-keys // block)].long()
        k, v = (
            (each[rows].flatten(0, 1)[:keys].double() * _heads_of(by, key_heads)[:, None])
            .repeat_interleave(heads // key_heads, 1)
            for each, by in ((key_cache, key_scale), (value_cache, value_scale))
        )  # fmt: skip
        q = query[at]
        scores = torch.einsum("qhd,khd->hqk", q, k) * scale
        scores = softcap * (scores / softcap).tanh() if softcap else scores
        distance = torch.arange(len(q))[:, None] + keys - len(q) - torch.arange(keys)
        if alibi_slopes is not None:
            slopes = alibi_slopes if alibi_slopes.dim() == 1 else alibi_slopes[i]
            scores = scores - slopes[:, None, None] * distance.abs()
        hidden = torch.zeros_like(distance, dtype=torch.bool)
        hidden = hidden | (distance > left) if left is not None else hidden
        hidden = hidden | (-distance > right) if right is not None else hidden
        scores = scores.masked_fill(hidden, -torch.inf)
        spread = torch.einsum("qhd,khd->hqk", q.abs(), k.abs()) * abs(scale) + 1
        if sinks is not None:  # a key that is not in the cache, and whose value is 0
            scores = torch.cat([scores, sinks.view(-1, 1, 1).expand(-1, len(q), 1)], -1)
            spread = torch.cat([spread, spread.new_ones(heads, len(q), 1)], -1)
            v = torch.cat([v, v.new_zeros(1, *v.shape[1:])])
        total = scores.logsumexp(-1) if scores.shape[-1] else scores.new_full(scores.shape[:2], -torch.inf)
        weights = (scores - total.masked_fill(total == -torch.inf, 0)[..., None]).exp()
        if magnitude:
            seen: Any = (spread * (weights > 0)).amax(-1, keepdim=True) if weights.shape[-1] else 0
            weights, v = weights * spread * (1 + seen), v.abs()
            total = (total.abs() + (seen[..., 0] if weights.shape[-1] else 1)).nan_to_num(posinf=0)
        into[at], sums[:, at] = torch.einsum("hqk,khd->qhd", weights, v), total
    if magnitude:
        return into, None if lse is None else sums
    written = int(cu_seqlens_q[-1])
    out[:written] = into[:written]
    if lse is not None:
        lse[:, :written] = sums[:, :written]
    return None


def _slots(m: Maker, count: int, blocks: int, block: int) -> Array:
    """Distinct slots, one in five of them negative: skipped."""
    found = m.permutation(blocks * block)[:count]
    found[2::5] = -1
    found[7::10] = -5
    return m.values(found, "int64")


def _writes(m: Maker) -> Iterator[Case]:
    def call(tokens: int, count: int, blocks: int, block: int, heads: int, size: int, value_size: int = 0,
             layout: str = "contiguous", cache: str = "", **others: Any) -> dict[str, Any]:  # fmt: skip
        key, value = (m.tensor(tokens, heads, n) for n in (size, value_size or size))
        dtype = cache or m.dtype
        shapes = [(blocks, block, heads, n) for n in (size, value_size or size)]
        held = [m.tensor(*shape, dtype=dtype).view for shape in shapes]
        caches = [m.values(each, dtype, layout) for each in held]
        slots = others.pop("slots", None) or _slots(m, count, blocks, block)
        return {"key": key, "value": value, "key_cache": caches[0], "value_cache": caches[1], "slots": slots,
                "key_scale": None, "value_scale": None, **others}  # fmt: skip

    yield m.case("contiguous", **call(11, 11, 4, 7, 2, 8))
    yield m.case("contiguous", **call(14, 11, 4, 16, 3, 5, 9))  # more rows than slots
    yield m.case("strided", **call(9, 9, 12, 1, 2, 64, layout="heads"))
    yield m.case("contiguous", **call(3, 3, 2, 4, 1, 3, slots=m.values([7, -1, 0], "int32")))
    yield m.case("special", **call(3, 3, 2, 4, 1, 3, slots=m.values([-1, -1, -1], "int64")))
    yield m.case("zero-size", **call(0, 0, 2, 4, 1, 3))
    yield m.case("zero-size", **call(5, 0, 2, 4, 1, 3))
    for dtype in _QUANTIZED if m.dtype != "float64" else ():
        yield m.case("special", **call(11, 11, 4, 7, 2, 33, cache=dtype, key_scale=_scales(m, 1),
                                       value_scale=_scales(m, 2)))  # fmt: skip
        # Beyond the range of the cache's dtype: the limits.
        yield m.case("special", **call(11, 11, 4, 7, 2, 33, cache=dtype, key_scale=m.values([2.0**-9], "float32"),
                                       value_scale=m.values([0.5, 2.0**-10], "float32")))  # fmt: skip
        yield m.case("special", **call(11, 11, 4, 7, 2, 8, cache=dtype))
    if m.dtype in ("float32", "bfloat16"):
        yield m.case("large", **call(515, 515, 70, 16, 4, 128))


def _write(
    key: Any, value: Any, key_cache: Any, value_cache: Any, slots: Any, key_scale: Any, value_scale: Any
) -> None:
    import torch

    kept = (slots >= 0).nonzero().flatten()
    at = slots[kept].long()
    block = key_cache.shape[1]
    for given, cache, scale in ((key, key_cache, key_scale), (value, value_cache, value_scale)):
        rows = given[kept]
        if scale is not None:
            rows = rows / scale.expand(given.shape[1])[:, None]
        if cache.dtype == torch.int8:
            rows = rows.round().clamp(-128, 127).nan_to_num(0)
        elif scale is not None:
            rows = rows.clamp(-_MOST, _MOST)
        cache[at // block, at % block] = rows.to(cache.dtype)


_SCALES = "Tensor? key_scale, Tensor? value_scale"

OPERATORS: list[Operator] = [
    extension("paged_attention(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, "
              f"Tensor cu_seqlens_q, Tensor seqlens_k, Tensor? alibi_slopes, Tensor? sinks, {_SCALES}, "
              "Tensor(a!) out, Tensor(b!)? lse, int max_seqlen_q, int max_seqlen_k, float scale, int? left, "
              "int? right, float softcap) -> ()",
              "None", "None", _paged, TOLERANCE, reference=_attend, magnitude=size_of(_attend), special=()),
    extension("cache_write(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slots, "
              f"{_SCALES}) -> ()", "None", "None", _writes, EXACT, reference=_write, special=()),
]  # fmt: skip
