"""Forward kernel of attention: a program iterates over the keys for a block of queries of one head."""

import triton
import triton.language as tl

from isthmus.ops.triton.attention_scores import (
    LN2,
    dropout_mask,
    load_tokens,
    mask_scores,
    scale_scores,
    sequence_range,
    store_tokens,
    token_address,
    visible_tiles,
)


@triton.jit
def forward(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, slopes_ptr, bias_ptr, mask_ptr, ends_q_ptr, ends_k_ptr, rng_ptr,
    q_strides, k_strides, v_strides, out_strides, lse_strides, slope_strides, bias_strides, mask_strides,
    query_tokens, key_tokens, heads, groups, blocks, left, right,
    SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr, SCALE: tl.constexpr, SOFTCAP: tl.constexpr, KEPT: tl.constexpr,
    FACTOR: tl.constexpr, TOP_LEFT: tl.constexpr, PRECISION: tl.constexpr, DOT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
):  # fmt: skip
    """One program per block. Strides are (batch, token, head); for pairs (batch, head, query, key)."""
    pair = (tl.program_id(0) // blocks).to(tl.int64)
    # With a causal mask the last queries have the most keys, so their programs start first.
    first = (blocks - 1 - tl.program_id(0) % blocks) * ROWS
    batch, head = pair // heads, pair % heads
    q_begin, queries = sequence_range(ends_q_ptr, batch, query_tokens)
    k_begin, keys = sequence_range(ends_k_ptr, batch, key_tokens)
    if first >= queries:
        return
    row = first + tl.arange(0, ROWS)
    q_ptr = token_address(q_ptr, q_strides, batch, q_begin, head)
    k_ptr = token_address(k_ptr, k_strides, batch, k_begin, head // groups)
    v_ptr = token_address(v_ptr, v_strides, batch, k_begin, head // groups)

    q = load_tokens(q_ptr, q_strides[1], row, queries, SIZE, WIDTH, True).to(DOT)
    acc = tl.zeros((ROWS, VALUE_WIDTH), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    shift = first if TOP_LEFT else first + keys - queries
    count = tl.minimum(ROWS, queries - first)
    begin, whole, whole_end, end = visible_tiles(shift, shift + count - 1, left, right, keys, COLUMNS)
    for PHASE in tl.static_range(0 if left is not None else 1, 3):  # only edge tiles are masked
        start_at = begin if PHASE == 0 else whole if PHASE == 1 else whole_end
        stop_at = whole if PHASE == 0 else whole_end if PHASE == 1 else end
        for start in range(start_at, stop_at, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            k = load_tokens(k_ptr, k_strides[1], column, keys, SIZE, WIDTH, PHASE != 1).to(DOT)
            x = tl.dot(q, tl.trans(k), input_precision=PRECISION)
            x = mask_scores(
                scale_scores(x, SCALE, SOFTCAP), row[:, None], column[None, :], queries, keys, batch, head,
                slopes_ptr, slope_strides, bias_ptr, bias_strides, mask_ptr, mask_strides, left, right, TOP_LEFT,
                PHASE != 1,
            )  # fmt: skip
            before, top = top, tl.maximum(top, tl.max(x, 1))
            base = tl.where(top == float("-inf"), 0.0, top)
            weight = tl.exp2(x - base[:, None])
            rescale = tl.exp2(before - base)
            total = total * rescale + tl.sum(weight, 1)
            if rng_ptr is not None:
                keep = dropout_mask(rng_ptr, pair, row, start, KEPT, ROWS, COLUMNS)
                weight = tl.where(keep, weight * FACTOR, 0.0)
            v = load_tokens(v_ptr, v_strides[1], column, keys, VALUE_SIZE, VALUE_WIDTH, PHASE != 1).to(DOT)
            acc = tl.dot(weight.to(DOT), v, acc * rescale[:, None], input_precision=PRECISION)

    out_ptr = token_address(out_ptr, out_strides, batch, q_begin, head)
    acc /= tl.where(total == 0, 1.0, total)[:, None]
    store_tokens(out_ptr, out_strides[1], row, queries, acc, VALUE_SIZE, VALUE_WIDTH)
    lse_ptr += batch * lse_strides[0] + head * lse_strides[1] + q_begin
    tl.store(lse_ptr + row, (top + tl.log2(total)) * LN2, row < queries)
