"""Kernels of attention over a paged cache, and of writes into it."""

import triton
import triton.language as tl

from isthmus.ops.triton.attention_scores import LN2, LOG2E, scale_scores, visible_tiles


@triton.jit
def _token_rows(ptr, strides, table_ptr, key, inside, block, head):
    """Return the addresses of the features of keys, [keys, 1], and their numbers of blocks."""
    number = tl.load(table_ptr + key // block, inside, other=0).to(tl.int64)
    rows = ptr + (number * strides[0] + (key % block).to(tl.int64) * strides[1] + head * strides[2])
    return rows[:, None], number


@triton.jit
def _scores(
    q, by, k_ptr, k_strides, table_ptr, key, inside, blocks, block, head, SIZE: tl.constexpr, WIDTH: tl.constexpr,
    SCALE: tl.constexpr, SOFTCAP: tl.constexpr, PRECISION: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Return the scores of a tile without masks, and which of its keys the cache holds."""
    feature = tl.arange(0, WIDTH)[None, :]
    rows, number = _token_rows(k_ptr, k_strides, table_ptr, key, inside, block, head)
    held = inside & (number >= 0) & (number < blocks)
    k = tl.load(rows + feature, held[:, None] & (feature < SIZE), other=0.0)
    products = tl.dot(q, tl.trans(k.to(DOT)), input_precision=PRECISION)
    return scale_scores(products * by, SCALE, SOFTCAP), held


@triton.jit
def _mask(x, distance, slope, SLOPED: tl.constexpr, inside, held, left, right):
    """Apply ALiBi and the window; keys of blocks that the cache does not have are NaN: a kernel cannot raise."""
    if SLOPED:
        x -= slope[:, None] * LOG2E * tl.abs(distance)
    seen = inside[None, :]
    if left is not None:
        seen = seen & (distance <= left)
    if right is not None:
        seen = seen & (distance >= -right)
    x = tl.where(seen, x, float("-inf"))
    return tl.where((inside & (held == 0))[None, :], float("nan"), x)


@triton.jit
def _load_values(ptr, strides, table_ptr, key, held, block, head, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """Return the values of keys, [keys, WIDTH]."""
    feature = tl.arange(0, WIDTH)[None, :]
    rows, _ = _token_rows(ptr, strides, table_ptr, key, held, block, head)
    return tl.load(rows + feature, held[:, None] & (feature < SIZE), other=0.0)


@triton.jit
def _begin(sinks_ptr, stride, head, known, ROWS: tl.constexpr):
    """Return the maximum and the sum of each row before its first key."""
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    if sinks_ptr is not None:
        top = tl.load(sinks_ptr + head * stride, known, other=0.0).to(tl.float32) * LOG2E
        total += 1.0
    return top, total


@triton.jit
def _slopes(ptr, strides, sequence, head, known, ROWS: tl.constexpr):
    """Return the slope of ALiBi of each row."""
    slope = tl.zeros((ROWS,), tl.float32)
    if ptr is not None:
        slope = tl.load(ptr + (sequence * strides[0] + head * strides[1]), known, other=0.0).to(tl.float32)
    return slope


@triton.jit
def paged_forward(
    q_ptr, k_ptr, v_ptr, table_ptr, ends_ptr, lengths_ptr, slopes_ptr, sinks_ptr, key_scale_ptr, value_scale_ptr,
    out_ptr, lse_ptr, q_strides, k_strides, v_strides, table_stride, slope_strides, sink_stride, scale_strides,
    out_strides, lse_strides, key_heads, groups, programs, blocks, block, left, right,
    SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr, SCALE: tl.constexpr, SOFTCAP: tl.constexpr,
    PRECISION: tl.constexpr, DOT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
):  # fmt: skip
    """One program per sequence, key head and block of rows; a row is a query of a head that shares the key head."""
    pair = (tl.program_id(0) // programs).to(tl.int64)
    first = (tl.program_id(0) % programs) * ROWS
    sequence, key_head = pair // key_heads, pair % key_heads
    begin_q = tl.load(ends_ptr + sequence).to(tl.int64)
    queries = (tl.load(ends_ptr + sequence + 1).to(tl.int64) - begin_q).to(tl.int32)
    keys = tl.load(lengths_ptr + sequence).to(tl.int32)
    if first >= queries * groups:
        return
    row = first + tl.arange(0, ROWS)
    query, head = row // groups, key_head * groups + row % groups
    known = query < queries
    feature, value_feature = tl.arange(0, WIDTH)[None, :], tl.arange(0, VALUE_WIDTH)[None, :]
    token = begin_q + query
    q_rows = q_ptr + (token * q_strides[0] + head * q_strides[1])[:, None]
    q = tl.load(q_rows + feature, known[:, None] & (feature < SIZE), other=0.0).to(DOT)
    table_ptr += sequence * table_stride
    acc = tl.zeros((ROWS, VALUE_WIDTH), tl.float32)
    top, total = _begin(sinks_ptr, sink_stride, head, known, ROWS)
    by = 1.0
    if key_scale_ptr is not None:
        by = tl.load(key_scale_ptr + key_head * scale_strides[0])
    slope = _slopes(slopes_ptr, slope_strides, sequence, head, known, ROWS)
    shift = keys - queries
    position = query + shift
    last = tl.minimum(queries - 1, (first + ROWS - 1) // groups)
    begin, _, _, end = visible_tiles(first // groups + shift, last + shift, left, right, keys, COLUMNS)
    seen_from = 0
    if left is not None:  # blocks before the window may be those of other sequences
        seen_from = tl.maximum(first // groups + shift - left, 0)
    for start in range(begin, end, COLUMNS):
        key = start + tl.arange(0, COLUMNS)
        inside = (key >= seen_from) & (key < end)
        x, held = _scores(
            q, by, k_ptr, k_strides, table_ptr, key, inside, blocks, block, key_head, SIZE, WIDTH, SCALE, SOFTCAP,
            PRECISION, DOT,
        )  # fmt: skip
        x = _mask(
            x, position[:, None] - key[None, :], slope, slopes_ptr is not None, inside, held, left, right
        )
        before, top = top, tl.maximum(top, tl.max(x, 1))
        base = tl.where(top == float("-inf"), 0.0, top)
        weight = tl.exp2(x - base[:, None])
        rescale = tl.exp2(before - base)
        total = total * rescale + tl.sum(weight, 1)
        v = _load_values(v_ptr, v_strides, table_ptr, key, held, block, key_head, VALUE_SIZE, VALUE_WIDTH)
        acc = tl.dot(weight.to(DOT), v.to(DOT), acc * rescale[:, None], input_precision=PRECISION)
    acc /= tl.where(total == 0, 1.0, total)[:, None]
    if value_scale_ptr is not None:
        acc *= tl.load(value_scale_ptr + key_head * scale_strides[1])
    out_rows = out_ptr + (token * out_strides[0] + head * out_strides[1])[:, None]
    tl.store(out_rows + value_feature, acc, known[:, None] & (value_feature < VALUE_SIZE))
    if lse_ptr is not None:
        sums = (top + tl.log2(total)) * LN2
        tl.store(lse_ptr + (head * lse_strides[0] + token * lse_strides[1]), sums, known)


@triton.jit
def _write_rows(
    from_ptr, into_ptr, scale_ptr, token, number, offset, strides, cache_strides, scale_stride, heads,
    SIZE: tl.constexpr, LIMIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write a token's keys or values; LIMIT is the largest number of a quantized cache, or 0."""
    from_ptr += token * strides[0]
    into_ptr += number * cache_strides[0] + offset * cache_strides[1]
    for start in range(0, heads * SIZE, BLOCK):
        at = start + tl.arange(0, BLOCK)
        head, feature, inside = (at // SIZE).to(tl.int64), at % SIZE, at < heads * SIZE
        x = tl.load(from_ptr + head * strides[1] + feature, inside, other=0.0)
        if scale_ptr is not None:
            x = x.to(tl.float32) / tl.load(scale_ptr + head * scale_stride, inside, other=1.0)
        if LIMIT > 0:
            x = x.to(tl.float32)
            low = -128.0 if LIMIT == 127.0 else -LIMIT
            x = tl.where(x > LIMIT, LIMIT, tl.where(x < low, low, x))
        if LIMIT == 127.0:  # the sum with 1.5 * 2^23 is rounded to an integer
            x = tl.where((x <= 0) | (x >= 0), (x + 12582912.0) - 12582912.0, 0.0)
        tl.store(into_ptr + head * cache_strides[2] + feature, x.to(into_ptr.dtype.element_ty), inside)


@triton.jit
def write_tokens(
    key_ptr, value_ptr, key_cache_ptr, value_cache_ptr, slots_ptr, key_scale_ptr, value_scale_ptr, key_strides,
    value_strides, key_cache_strides, value_cache_strides, slot_stride, scale_strides, heads, blocks, block,
    SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr, LIMIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per token; slots that the cache does not have are skipped, because a kernel cannot raise."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token * slot_stride).to(tl.int64)
    number, offset = slot // block, slot % block
    if (slot < 0) | (number >= blocks):
        return
    _write_rows(key_ptr, key_cache_ptr, key_scale_ptr, token, number, offset, key_strides, key_cache_strides,
                scale_strides[0], heads, SIZE, LIMIT, BLOCK)  # fmt: skip
    _write_rows(value_ptr, value_cache_ptr, value_scale_ptr, token, number, offset, value_strides,
                value_cache_strides, scale_strides[1], heads, VALUE_SIZE, LIMIT, BLOCK)  # fmt: skip
