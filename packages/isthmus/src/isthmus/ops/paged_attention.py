"""Attention over a key-value cache in blocks (Kwon et al., PagedAttention, 2023), and writes into it.

The cache is read where it lies: no sequence is gathered. A sequence's keys are processed in panels, each with its own
maximum, which are merged in order.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from isthmus.ops import cpu
from isthmus.ops.registration import compute_dtype, operator

QUANTIZED = (torch.float8_e4m3fn, torch.int8)
_PANEL = 256  # keys


class Paged(NamedTuple):
    """The arguments of the operator after query and caches."""

    block_table: torch.Tensor
    cu_seqlens_q: torch.Tensor
    seqlens_k: torch.Tensor
    alibi_slopes: torch.Tensor | None
    sinks: torch.Tensor | None
    key_scale: torch.Tensor | None
    value_scale: torch.Tensor | None
    out: torch.Tensor
    lse: torch.Tensor | None
    max_seqlen_q: int
    max_seqlen_k: int
    scale: float
    left: int | None
    right: int | None
    softcap: float


class _Sequence(NamedTuple):
    """Position of a sequence, its queries in the packed tensor, and its number of keys."""

    position: int
    queries: slice
    keys: int


def _sequences(tokens: int, block: int, paged: Paged) -> Iterator[_Sequence]:
    ends, keys = paged.cu_seqlens_q.tolist(), paged.seqlens_k.tolist()
    if len(ends) != len(keys) + 1 or ends[0] != 0 or ends != sorted(ends) or ends[-1] > tokens:
        raise ValueError(
            f"paged_attention: cu_seqlens_q must rise from 0 to at most {tokens} in {len(keys) + 1} numbers; "
            f"it is {ends}"
        )
    capacity = min(paged.max_seqlen_k, paged.block_table.shape[1] * block)
    if keys and not 0 <= min(keys) <= max(keys) <= capacity:
        raise ValueError(f"paged_attention: seqlens_k must be from 0 to {capacity}; it is {keys}")
    for i, count in enumerate(keys):
        if ends[i + 1] - ends[i] > paged.max_seqlen_q:
            raise ValueError(
                f"paged_attention: sequence {i} has {ends[i + 1] - ends[i]} queries, above max_seqlen_q, "
                f"{paged.max_seqlen_q}"
            )
        yield _Sequence(i, slice(ends[i], ends[i + 1]), count)


def _panel(cache: torch.Tensor, blocks: torch.Tensor, count: int, like: torch.Tensor) -> torch.Tensor:
    """The first keys of some blocks as [1, key heads, 1, keys, features] in the dtype of ``like``."""
    rows = cache.index_select(0, blocks).flatten(0, 1)[:count]
    return rows.to(like.dtype).transpose(0, 1)[None, :, None]


def _scale_of(scale: torch.Tensor | None, heads: int, like: torch.Tensor) -> torch.Tensor | float:
    return 1.0 if scale is None else scale.to(like.dtype).expand(heads).view(1, -1, 1, 1, 1)


def _scores(
    query: torch.Tensor, key: torch.Tensor, sequence: _Sequence, first: int, paged: Paged
) -> torch.Tensor:
    """Scores [1, key heads, groups, queries, keys] of the panel that begins at key ``first``."""
    scores = query @ key.transpose(-1, -2) * (paged.scale * _scale_of(paged.key_scale, key.shape[1], query))
    if paged.softcap:
        scores = paged.softcap * (scores / paged.softcap).tanh()
    queries, keys = scores.shape[-2:]
    row = torch.arange(queries, device=query.device)[:, None] + (sequence.keys - queries)
    distance = row - torch.arange(first, first + keys, device=query.device)
    if paged.alibi_slopes is not None:
        slopes = (
            paged.alibi_slopes if paged.alibi_slopes.dim() == 1 else paged.alibi_slopes[sequence.position]
        )
        scores = scores - slopes.to(scores.dtype).view(1, key.shape[1], -1, 1, 1) * distance.abs()
    if paged.left is not None:
        scores = scores.masked_fill(distance > paged.left, -math.inf)
    if paged.right is not None:
        scores = scores.masked_fill(distance < -paged.right, -math.inf)
    return scores


@operator("paged_attention")
def _paged_attention(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, *others: Any
) -> None:
    paged = Paged(*others)
    block, key_heads = key_cache.shape[1:3]
    step = block * max(_PANEL // block, 1)
    for each in _sequences(query.shape[0], block, paged):
        q = query[each.queries].to(compute_dtype(query)).transpose(0, 1).unflatten(0, (key_heads, -1))[None]
        queries = q.shape[3]
        top = q.new_full((*q.shape[:-1], 1), -math.inf)
        sums, total = torch.zeros_like(top), q.new_zeros(*q.shape[:-1], value_cache.shape[-1])
        if paged.sinks is not None:
            top = top.maximum(paged.sinks.to(q.dtype).view(1, key_heads, -1, 1, 1))
            sums = torch.ones_like(top)
        first = 0 if paged.left is None else max(each.keys - queries - paged.left, 0) // block * block
        last = each.keys if paged.right is None else min(each.keys + paged.right, each.keys)
        for start in range(first, last if queries else 0, step):
            count = min(step, last - start)
            blocks = paged.block_table[each.position, start // block : -(-(start + count) // block)]
            k, v = (_panel(cache, blocks, count, q) for cache in (key_cache, value_cache))
            scores = _scores(q, k, each, start, paged)
            before, top = top, top.maximum(scores.amax(-1, keepdim=True))
            base = top.masked_fill(top == -math.inf, 0)
            weights, factor = (scores - base).exp(), (before - base).exp()
            sums = sums * factor + weights.sum(-1, keepdim=True)
            total = total * factor + weights @ v
        found = total / sums.masked_fill(sums == 0, 1) * _scale_of(paged.value_scale, key_heads, q)
        paged.out[each.queries] = found[0].flatten(0, 1).transpose(0, 1).to(paged.out.dtype)
        if paged.lse is not None:
            paged.lse[:, each.queries] = (top + sums.log())[0, ..., 0].flatten(0, 1)


@operator("cache_write")
def _cache_write(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
    slots: torch.Tensor, key_scale: torch.Tensor | None, value_scale: torch.Tensor | None,
) -> None:  # fmt: skip
    if not slots.numel():
        return
    # Shapes that do not depend on the slots, so that a graph may capture it: a skipped token writes what the last of
    # the others writes, and where there is none what the cache holds.
    order, kept = torch.arange(slots.shape[0], device=slots.device), slots >= 0
    source = torch.where(kept, order, (order * kept).amax())
    at, block = slots.index_select(0, source).clamp(min=0), key_cache.shape[1]
    for given, cache, scale in ((key, key_cache, key_scale), (value, value_cache, value_scale)):
        rows = _stored(given.index_select(0, source), scale, cache.dtype)
        place = (at // block, at % block)
        cache[place] = torch.where(kept.any(), rows, cache[place])


def _stored(rows: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """Rows as a cache of a dtype holds them; beyond its range the limits."""
    if scale is not None:
        rows = rows.to(compute_dtype(rows)) / scale.expand(rows.shape[1]).unsqueeze(-1)
    if dtype == torch.int8:
        return rows.round().clamp(-128, 127).nan_to_num(0).to(dtype)
    if dtype in QUANTIZED:
        limit = torch.finfo(dtype).max
        rows = rows.clamp(-limit, limit)
    return rows.to(dtype)


def _refuses_attention(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, *others: Any
) -> str:
    out = others[7]
    for name, each in (("key_cache", key_cache), ("value_cache", value_cache), ("out", out)):
        if each.stride(-1) != 1 and each.shape[-1] > 1:
            return f"no kernel for {name} with strided features"
    if key_cache.dtype != query.dtype and (key_cache.dtype not in QUANTIZED or query.dtype == torch.float64):
        return f"no kernel for a cache of {key_cache.dtype} and queries of {query.dtype}"
    return cpu.floats(query)


def _refuses_write(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, *_: Any
) -> str:
    for name, each in (("key_cache", key_cache), ("value_cache", value_cache)):
        if each.stride(-1) != 1 and each.shape[-1] > 1:
            return f"no kernel for {name} with strided features"
    if key_cache.dtype != key.dtype and (key_cache.dtype not in QUANTIZED or key.dtype == torch.float64):
        return f"no kernel for keys of {key.dtype} in a cache of {key_cache.dtype}"
    return cpu.floats(key)


cpu.add(_paged_attention, _refuses_attention)
cpu.add(_cache_write, _refuses_write)


def attend_paged(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    scale: float | None = None,
    left: int | None = None,
    right: int | None = None,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
) -> torch.Tensor:
    """:func:`paged_attention` with the window of :func:`isthmus.ops.attention.attend`.

    ``lse``, [heads, tokens] in float32 (float64 for float64), receives the log-sum-exp of the scores and the sink.
    """
    if torch.is_grad_enabled() and any(each.requires_grad for each in (query, key_cache, value_cache)):
        raise ValueError(
            "paged_attention: it computes no gradients; call it under torch.no_grad() or detach its tensors"
        )
    _check_shapes(query, key_cache, value_cache, block_table, cu_seqlens_q, seqlens_k)
    heads, key_heads, sequences = query.shape[1], key_cache.shape[2], seqlens_k.shape[0]
    _check_vector("alibi_slopes", alibi_slopes, (heads,), (sequences, heads))
    _check_vector("sinks", sinks, (heads,))
    for name, each in (("key_scale", key_scale), ("value_scale", value_scale)):
        _check_vector(name, each, (), (1,), (key_heads,))
    shape = (query.shape[0], heads, value_cache.shape[-1])
    if out is None:
        out = query.new_zeros(shape)
    elif out.shape != shape or out.dtype != query.dtype:
        raise ValueError(
            f"paged_attention: out is {out.dtype} {tuple(out.shape)}; it must be {query.dtype} {shape}"
        )
    _paged_attention(
        query, key_cache, value_cache, block_table, cu_seqlens_q, seqlens_k, alibi_slopes, sinks, key_scale,
        value_scale, out, lse, max_seqlen_q, max_seqlen_k,
        float(1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale), left, right, float(softcap),
    )  # fmt: skip
    return out


def paged_attention(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    scale: float | None = None,
    causal: bool = True,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of packed sequences over the keys that a cache in blocks holds for each: prefill, decode, or both.

    The last query of a sequence is aligned with its last key. It computes no gradients.

    Args:
        q: [tokens, heads, features], float16, bfloat16, float32 or float64. Tokens after the last sequence are
            padding.
        key_cache: [blocks, block size, key heads, features], of any strides; fastest with contiguous features. The
            key heads divide the heads. The dtype is that of q, float8_e4m3fn or int8.
        value_cache: [blocks, block size, key heads, value features] of the same dtype.
        block_table: int32 [sequences, maximum blocks]: the blocks of each sequence; those after its keys are not
            read.
        cu_seqlens_q: int32 [sequences + 1], start of each sequence in q, and the number of their tokens.
        seqlens_k: int32 [sequences], number of keys of each sequence, those of its new tokens included.
        max_seqlen_q: at least the most queries of a sequence.
        max_seqlen_k: at least the most keys of a sequence.
        scale: factor of the scores; None is ``1 / sqrt(features)``.
        causal: hide the keys after a query's position.
        window: visible keys (before, after) a query's position; -1 is all.
        softcap: scores become ``softcap * tanh(scores / softcap)``; 0 disables it.
        alibi_slopes: [heads] or [sequences, heads]: subtract ``slope * |i + keys - queries - j|`` from the scores.
        sinks: [heads], score of one more key, whose value is 0.
        key_scale: float32, of the whole cache (one element) or [key heads]: the keys are ``key_cache * key_scale``.
        value_scale: the same for the values.
        out: receives the result: [tokens, heads, value features] of the dtype of q; the rows of padding are not
            written. None allocates it; the rows of padding are 0.

    Returns:
        ``out``; queries with no visible key give 0.

    Raises:
        ValueError: shapes or dtypes do not match, or a tensor requires a gradient.
        IndexError: a sequence uses a block that the cache does not have.
    """
    left, right = (None if side < 0 else side for side in window)
    return attend_paged(
        q, key_cache, value_cache, block_table, cu_seqlens_q, seqlens_k, max_seqlen_q, max_seqlen_k, scale=scale,
        left=left, right=0 if causal else right, softcap=softcap, alibi_slopes=alibi_slopes, sinks=sinks,
        key_scale=key_scale, value_scale=value_scale, out=out,
    )  # fmt: skip


@torch.no_grad()
def cache_write(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
    *,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
) -> None:
    """Write the keys and values of tokens into a cache in blocks, in place.

    Args:
        key: [tokens, key heads, features]; rows after the last slot are ignored.
        value: [tokens, key heads, value features] of the same dtype.
        key_cache: [blocks, block size, key heads, features], of any strides. The dtype is that of the keys,
            float8_e4m3fn or int8; numbers beyond the range of the latter two become their limits.
        value_cache: [blocks, block size, key heads, value features] of the same dtype.
        slots: int64 or int32, ``block * block size + offset`` of each token, distinct; a token whose slot is negative
            is skipped.
        key_scale: float32, of the whole cache (one element) or [key heads]: ``key / key_scale`` is stored.
        value_scale: the same for the values.

    Raises:
        ValueError: shapes or dtypes do not match.
        IndexError: the cache does not have a slot.
    """
    shapes = f"key {tuple(key.shape)}, value {tuple(value.shape)}, key_cache {tuple(key_cache.shape)}, value_cache " \
             f"{tuple(value_cache.shape)}, slots {tuple(slots.shape)}"  # fmt: skip
    if not (key.dim() == value.dim() == 3 and key_cache.dim() == value_cache.dim() == 4 and slots.dim() == 1):
        raise ValueError(
            "cache_write: key and value must be [tokens, heads, features], the caches [blocks, block size, heads, "
            f"features] and slots [tokens]; got {shapes}"
        )
    if (
        key_cache.shape[:3] != value_cache.shape[:3]
        or key.shape[:2] != value.shape[:2]
        or key.shape[1:] != key_cache.shape[2:]
        or value.shape[1:] != value_cache.shape[2:]
        or slots.shape[0] > key.shape[0]
    ):
        raise ValueError(
            f"cache_write: heads, features and tokens of key, value, caches and slots must match; got {shapes}"
        )
    _check_dtypes("cache_write", key, key_cache, value_cache)
    if value.dtype != key.dtype or slots.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"cache_write: key is {key.dtype}, value {value.dtype} and slots {slots.dtype}; key and value must have "
            "one dtype, and slots must be int64 or int32"
        )
    for name, each in (("key_scale", key_scale), ("value_scale", value_scale)):
        _check_vector(name, each, (), (1,), (key.shape[1],))
    _cache_write(key, value, key_cache, value_cache, slots, key_scale, value_scale)


def _check_shapes(q: Any, key_cache: Any, value_cache: Any, table: Any, ends: Any, lengths: Any) -> None:
    shapes = f"q {tuple(q.shape)}, key_cache {tuple(key_cache.shape)}, value_cache {tuple(value_cache.shape)}"
    if q.dim() != 3 or key_cache.dim() != 4 or value_cache.dim() != 4:
        raise ValueError(
            "paged_attention: q must be [tokens, heads, features] and the caches [blocks, block size, key heads, "
            f"features]; got {shapes}"
        )
    if key_cache.shape[:3] != value_cache.shape[:3] or q.shape[-1] != key_cache.shape[-1]:
        raise ValueError(
            "paged_attention: the caches must match in blocks and heads, q and key_cache in features; got "
            + shapes
        )
    if key_cache.shape[1] == 0 or key_cache.shape[2] == 0 or q.shape[1] % key_cache.shape[2]:
        raise ValueError(
            f"paged_attention: heads must be a multiple of key heads, and blocks not empty; got {shapes}"
        )
    _check_dtypes("paged_attention", q, key_cache, value_cache)
    given = {"block_table": table, "cu_seqlens_q": ends, "seqlens_k": lengths}
    for name, each in given.items():
        if each.dtype != torch.int32:
            raise ValueError(f"paged_attention: {name} is {each.dtype}; it must be int32")
    if table.dim() != 2 or lengths.shape != table.shape[:1] or ends.shape != (lengths.shape[0] + 1,):
        found = ", ".join(f"{name} {tuple(each.shape)}" for name, each in given.items())
        raise ValueError(
            "paged_attention: block_table must be [sequences, blocks], cu_seqlens_q [sequences + 1] and seqlens_k "
            f"[sequences]; got {found}"
        )


def _check_dtypes(name: str, given: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor) -> None:
    kind = key_cache.dtype
    if value_cache.dtype != kind or (kind != given.dtype and kind not in QUANTIZED):
        raise ValueError(
            f"{name}: the caches are {kind} and {value_cache.dtype}; both must be {given.dtype}, float8_e4m3fn or "
            "int8"
        )


def _check_vector(name: str, tensor: torch.Tensor | None, *shapes: tuple[int, ...]) -> None:
    if tensor is not None and tensor.shape not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise ValueError(f"paged_attention: {name} has shape {tuple(tensor.shape)}; it must be {wanted}")
