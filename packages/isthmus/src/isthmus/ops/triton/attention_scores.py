"""Shared parts of the attention kernels: addresses, visibility, and the scores of a tile.

Scores are in base 2, because the hardware has exp2.
"""

import math

import triton
import triton.language as tl

LOG2E = tl.constexpr(math.log2(math.e))
LN2 = tl.constexpr(math.log(2))


@triton.jit
def sequence_range(ends_ptr, batch, tokens):
    """Return the first token and the length of a sequence, clamped to the number of tokens."""
    begin = tl.zeros((), tl.int64)
    count = tl.zeros((), tl.int32) + tokens
    if ends_ptr is not None:
        begin = tl.minimum(tl.maximum(tl.load(ends_ptr + batch).to(tl.int64), 0), tokens)
        end = tl.minimum(tl.maximum(tl.load(ends_ptr + batch + 1).to(tl.int64), begin), tokens)
        count = (end - begin).to(tl.int32)
    return begin, count


@triton.jit
def token_address(ptr, strides, batch, token, head):
    """Return the address of a token's features; strides are (batch, token, head)."""
    return ptr + (batch * strides[0] + token * strides[1] + head * strides[2])


@triton.jit
def visible_tiles(first, last, before, after, count, STEP: tl.constexpr):
    """Return the range of tiles visible from positions first to last: (begin, whole, whole_end, end).

    Position p sees tokens p - before to p + after; None is unbounded. Tiles from begin to end are visible; those from
    whole to whole_end need no mask.
    """
    begin = tl.zeros((), tl.int32)
    whole = tl.zeros((), tl.int32)
    end = count
    whole_end = count // STEP * STEP
    if before is not None:
        begin = tl.maximum(first - before, 0) // STEP * STEP
        whole = tl.cdiv(tl.maximum(last - before, 0), STEP) * STEP
    if after is not None:
        end = tl.minimum(count, last + after + 1)
        whole_end = tl.minimum(whole_end, tl.maximum(first + after + 1, 0) // STEP * STEP)
    whole = tl.maximum(begin, tl.minimum(whole, tl.cdiv(tl.maximum(end, 0), STEP) * STEP))
    return begin, whole, tl.maximum(whole, whole_end), end


@triton.jit
def load_tokens(ptr, stride, token, count, SIZE: tl.constexpr, WIDTH: tl.constexpr, CHECKED: tl.constexpr):
    """Load features of tokens, [tokens, WIDTH]; 0 after the last feature, and after the last token if CHECKED."""
    feature = tl.arange(0, WIDTH)[None, :]
    where = ptr + token[:, None].to(tl.int64) * stride + feature
    if CHECKED:
        loaded = tl.load(where, (token[:, None] < count) & (feature < SIZE), other=0.0)
    elif SIZE != WIDTH:
        loaded = tl.load(where, feature < SIZE, other=0.0)
    else:
        loaded = tl.load(where)
    return loaded


@triton.jit
def store_tokens(ptr, stride, token, count, values, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """Store features of tokens, with bounds checks."""
    feature = tl.arange(0, WIDTH)[None, :]
    where = ptr + token[:, None].to(tl.int64) * stride + feature
    tl.store(where, values, (token[:, None] < count) & (feature < SIZE))


@triton.jit
def scale_scores(products, SCALE: tl.constexpr, SOFTCAP: tl.constexpr):
    """Scale products, and apply the softcap, ``SOFTCAP * tanh(x / SOFTCAP)``."""
    x = products * SCALE
    if SOFTCAP > 0:
        x = SOFTCAP - 2 * SOFTCAP / (tl.exp2(x * (2 * LOG2E / SOFTCAP)) + 1)
    return x


@triton.jit
def pair_addresses(ptr, strides, batch, head, row, column):
    """Return the addresses of a tile of bias or mask; strides are (batch, head, query, key)."""
    return (
        ptr
        + (batch * strides[0] + head * strides[1])
        + (row.to(tl.int64) * strides[2] + column.to(tl.int64) * strides[3])
    )


@triton.jit
def mask_scores(
    x, row, column, queries, keys, batch, head, slopes_ptr, slope_strides, bias_ptr, bias_strides, mask_ptr,
    mask_strides, left, right, TOP_LEFT: tl.constexpr, CHECKED: tl.constexpr,
):  # fmt: skip
    """Apply ALiBi, bias, mask and window to a tile of scores; hidden scores become -inf.

    Row and column are [rows, 1] and [1, columns], or transposed.
    """
    if slopes_ptr is not None:
        slope = tl.load(slopes_ptr + (batch * slope_strides[0] + head * slope_strides[1])).to(tl.float32)
        x -= slope * LOG2E * tl.abs(row + (keys - queries) - column)
    inside = (row < queries) & (column < keys)
    if bias_ptr is not None:
        bias = tl.load(pair_addresses(bias_ptr, bias_strides, batch, head, row, column), inside, other=0.0)
        x += bias.to(tl.float32) * LOG2E
    if mask_ptr is not None:
        hidden = tl.load(pair_addresses(mask_ptr, mask_strides, batch, head, row, column), inside, other=0)
        x = tl.where(hidden == 0, x, float("-inf"))
    if CHECKED:
        seen = inside
        position = row if TOP_LEFT else row + (keys - queries)
        if left is not None:
            seen = seen & (column >= position - left)
        if right is not None:
            seen = seen & (column <= position + right)
        x = tl.where(seen, x, float("-inf"))
    return x


@triton.jit
def dropout_mask(rng_ptr, number, row, start, KEPT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the dropout mask of a tile, bool [ROWS, COLUMNS]; the same as isthmus.ops.philox."""
    block = (start // 4 + tl.arange(0, COLUMNS // 4)).to(tl.int32)[None, :]
    block = tl.broadcast_to(block, (ROWS, COLUMNS // 4))
    offset = tl.load(rng_ptr + 1).to(tl.int32)
    one, two, three, four = tl.philox(tl.load(rng_ptr), block, row[:, None], number.to(tl.int32), offset)
    words = tl.join(tl.join(one, three), tl.join(two, four))
    return tl.reshape(words, (ROWS, COLUMNS)).to(tl.int64) < KEPT
