"""Backward kernels of attention: one over blocks of queries, then one over blocks of keys; no atomics."""

import triton
import triton.language as tl

from isthmus.ops.triton.attention_scores import (
    LN2,
    LOG2E,
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
def backward_queries(
    q_ptr, k_ptr, v_ptr, grad_ptr, out_ptr, lse_ptr, delta_ptr, dq_ptr, slopes_ptr, bias_ptr, mask_ptr, ends_q_ptr,
    ends_k_ptr, rng_ptr, q_strides, k_strides, v_strides, grad_strides, out_strides, lse_strides, dq_strides,
    slope_strides, bias_strides, mask_strides, query_tokens, key_tokens, heads, groups, blocks, left, right,
    SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr, SCALE: tl.constexpr, SOFTCAP: tl.constexpr, KEPT: tl.constexpr,
    FACTOR: tl.constexpr, TOP_LEFT: tl.constexpr, PRECISION: tl.constexpr, DOT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
):  # fmt: skip
    """Gradient of a block of queries, and ``delta = sum(out * grad)``, which the kernel of the keys needs."""
    pair = (tl.program_id(0) // blocks).to(tl.int64)
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
    grad_ptr = token_address(grad_ptr, grad_strides, batch, q_begin, head)
    out_ptr = token_address(out_ptr, out_strides, batch, q_begin, head)
    dq_ptr = token_address(dq_ptr, dq_strides, batch, q_begin, head)
    sums_at = batch * lse_strides[0] + head * lse_strides[1] + q_begin

    q = load_tokens(q_ptr, q_strides[1], row, queries, SIZE, WIDTH, True).to(DOT)
    grad = load_tokens(grad_ptr, grad_strides[1], row, queries, VALUE_SIZE, VALUE_WIDTH, True)
    out = load_tokens(out_ptr, out_strides[1], row, queries, VALUE_SIZE, VALUE_WIDTH, True)
    delta = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(delta_ptr + sums_at + row, delta, row < queries)
    grad = grad.to(DOT)
    lse = tl.load(lse_ptr + sums_at + row, row < queries, other=0.0) * LOG2E
    lse = tl.where(lse == float("-inf"), 0.0, lse)  # queries with no visible key
    dq = tl.zeros((ROWS, WIDTH), tl.float32)
    shift = first if TOP_LEFT else first + keys - queries
    count = tl.minimum(ROWS, queries - first)
    begin, whole, whole_end, end = visible_tiles(shift, shift + count - 1, left, right, keys, COLUMNS)
    for PHASE in tl.static_range(0 if left is not None else 1, 3):
        start_at = begin if PHASE == 0 else whole if PHASE == 1 else whole_end
        stop_at = whole if PHASE == 0 else whole_end if PHASE == 1 else end
        for start in range(start_at, stop_at, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            k = load_tokens(k_ptr, k_strides[1], column, keys, SIZE, WIDTH, PHASE != 1).to(DOT)
            v = load_tokens(v_ptr, v_strides[1], column, keys, VALUE_SIZE, VALUE_WIDTH, PHASE != 1).to(DOT)
            x = scale_scores(tl.dot(q, tl.trans(k), input_precision=PRECISION), SCALE, SOFTCAP)
            score = mask_scores(
                x, row[:, None], column[None, :], queries, keys, batch, head, slopes_ptr, slope_strides,
                bias_ptr, bias_strides, mask_ptr, mask_strides, left, right, TOP_LEFT, PHASE != 1,
            )  # fmt: skip
            weight = tl.exp2(score - lse[:, None])
            dweight = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
            if rng_ptr is not None:
                keep = dropout_mask(rng_ptr, pair, row, start, KEPT, ROWS, COLUMNS)
                dweight = tl.where(keep, dweight * FACTOR, 0.0)
            dx = weight * (dweight - delta[:, None])
            if SOFTCAP > 0:
                dx *= 1 - (x / SOFTCAP) * (x / SOFTCAP)
            dq = tl.dot(dx.to(DOT), k, dq, input_precision=PRECISION)
    store_tokens(dq_ptr, dq_strides[1], row, queries, dq * (SCALE * LN2), SIZE, WIDTH)


@triton.jit
def backward_keys(
    q_ptr, k_ptr, v_ptr, grad_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, slopes_ptr, bias_ptr, mask_ptr, ends_q_ptr,
    ends_k_ptr, rng_ptr, q_strides, k_strides, v_strides, grad_strides, lse_strides, dk_strides, dv_strides,
    slope_strides, bias_strides, mask_strides, query_tokens, key_tokens, heads, groups, blocks, left, right,
    SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr, SCALE: tl.constexpr, SOFTCAP: tl.constexpr, KEPT: tl.constexpr,
    FACTOR: tl.constexpr, TOP_LEFT: tl.constexpr, PRECISION: tl.constexpr, DOT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of keys and values, summed over the heads that share them."""
    key_heads = heads // groups
    number = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(0) % blocks * COLUMNS
    batch, key_head = number // key_heads, number % key_heads
    q_begin, queries = sequence_range(ends_q_ptr, batch, query_tokens)
    k_begin, keys = sequence_range(ends_k_ptr, batch, key_tokens)
    if first >= keys:
        return
    column = first + tl.arange(0, COLUMNS)
    k_ptr = token_address(k_ptr, k_strides, batch, k_begin, key_head)
    v_ptr = token_address(v_ptr, v_strides, batch, k_begin, key_head)
    k = load_tokens(k_ptr, k_strides[1], column, keys, SIZE, WIDTH, True).to(DOT)
    v = load_tokens(v_ptr, v_strides[1], column, keys, VALUE_SIZE, VALUE_WIDTH, True).to(DOT)
    dk = tl.zeros((COLUMNS, WIDTH), tl.float32)
    dv = tl.zeros((COLUMNS, VALUE_WIDTH), tl.float32)
    shift = first if TOP_LEFT else first - keys + queries
    count = tl.minimum(COLUMNS, keys - first)
    begin, whole, whole_end, end = visible_tiles(shift, shift + count - 1, right, left, queries, ROWS)
    for member in range(0, groups):
        head = key_head * groups + member
        own_q_ptr = token_address(q_ptr, q_strides, batch, q_begin, head)
        own_grad_ptr = token_address(grad_ptr, grad_strides, batch, q_begin, head)
        sums_at = batch * lse_strides[0] + head * lse_strides[1] + q_begin
        for PHASE in tl.static_range(0 if right is not None else 1, 3):
            start_at = begin if PHASE == 0 else whole if PHASE == 1 else whole_end
            stop_at = whole if PHASE == 0 else whole_end if PHASE == 1 else end
            for start in range(start_at, stop_at, ROWS):
                row = start + tl.arange(0, ROWS)
                q = load_tokens(own_q_ptr, q_strides[1], row, queries, SIZE, WIDTH, PHASE != 1).to(DOT)
                grad = load_tokens(
                    own_grad_ptr, grad_strides[1], row, queries, VALUE_SIZE, VALUE_WIDTH, PHASE != 1
                )
                grad = grad.to(DOT)
                lse = tl.load(lse_ptr + sums_at + row, row < queries, other=0.0) * LOG2E
                lse = tl.where(lse == float("-inf"), 0.0, lse)
                delta = tl.load(delta_ptr + sums_at + row, row < queries, other=0.0)
                x = scale_scores(tl.dot(k, tl.trans(q), input_precision=PRECISION), SCALE, SOFTCAP)
                score = mask_scores(
                    x, row[None, :], column[:, None], queries, keys, batch, head, slopes_ptr,
                    slope_strides, bias_ptr, bias_strides, mask_ptr, mask_strides, left, right, TOP_LEFT, PHASE != 1,
                )  # fmt: skip
                weight = tl.exp2(score - lse[None, :])
                dweight = tl.dot(v, tl.trans(grad), input_precision=PRECISION)
                dropped = weight
                if rng_ptr is not None:
                    keep = tl.trans(
                        dropout_mask(rng_ptr, batch * heads + head, row, first, KEPT, ROWS, COLUMNS)
                    )
                    dropped = tl.where(keep, weight * FACTOR, 0.0)
                    dweight = tl.where(keep, dweight * FACTOR, 0.0)
                dv = tl.dot(dropped.to(DOT), grad, dv, input_precision=PRECISION)
                dx = weight * (dweight - delta[None, :])
                if SOFTCAP > 0:
                    dx *= 1 - (x / SOFTCAP) * (x / SOFTCAP)
                dk = tl.dot(dx.to(DOT), q, dk, input_precision=PRECISION)
    dk_ptr = token_address(dk_ptr, dk_strides, batch, k_begin, key_head)
    dv_ptr = token_address(dv_ptr, dv_strides, batch, k_begin, key_head)
    store_tokens(dk_ptr, dk_strides[1], column, keys, dk * (SCALE * LN2), SIZE, WIDTH)
    store_tokens(dv_ptr, dv_strides[1], column, keys, dv, VALUE_SIZE, VALUE_WIDTH)
