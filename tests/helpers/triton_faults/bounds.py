"""Accesses outside of their argument."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.helpers.triton_faults import fault

BOUNDS, OTHER = "out of bounds", "other allocation"


@triton.jit
def add_kernel(x, y, out, n, LOAD: tl.constexpr, STORE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    a = tl.load(x + at, mask=mask | LOAD)  # FAULT
    b = tl.load(y + at, mask=mask, other=0.0)
    tl.store(out + at, a + b, mask=mask | STORE)  # FAULT


def _add(load=False, store=False, n=1000, dtype=torch.float32, **options):
    x, y, out = (torch.ones(1000, dtype=dtype) for _ in range(3))
    add_kernel[(triton.cdiv(1000, 128),)](x, y, out, n, load, store, 128, debug=True)


@fault(add_kernel, BOUNDS, OTHER)
def add_loads_without_mask(wrong):
    _add(load=wrong)


@fault(add_kernel, BOUNDS, OTHER)
def add_stores_without_mask(wrong):
    _add(store=wrong)


@fault(add_kernel, BOUNDS, OTHER)
def add_with_a_length_one_too_large(wrong):
    _add(n=1001 if wrong else 1000)


@fault(add_kernel, BOUNDS, OTHER)
def add_of_bfloat16_with_the_length_of_the_padded_tensor(wrong):
    _add(n=1024 if wrong else 1000, dtype=torch.bfloat16)


@triton.jit
def softmax_kernel(x, out, stride, columns, MASK: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns if MASK else at < BLOCK
    values = tl.load(x + row * stride + at, mask=mask, other=-float("inf"))  # FAULT
    values = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, values / tl.sum(values, 0), mask=at < columns)


@fault(softmax_kernel, BOUNDS, OTHER)
def softmax_loads_a_whole_block(wrong):
    x = torch.randn(17, 100)
    softmax_kernel[(17,)](x, torch.empty(17, 100), 100, 100, not wrong, 128, debug=True)


@fault(softmax_kernel, BOUNDS, OTHER)
def softmax_with_the_stride_of_another_tensor(wrong):
    x = torch.randn(17, 100)
    softmax_kernel[(17,)](x, torch.empty(17, 100), 112 if wrong else 100, 100, True, 128, debug=True)


@fault(softmax_kernel, BOUNDS, OTHER)
def softmax_with_a_program_too_many(wrong):
    x = torch.randn(17, 100)
    softmax_kernel[(17 + wrong,)](x, torch.empty(18, 100), 100, 100, True, 128, debug=True)


@triton.jit
def shift_kernel(x, out, n, GUARD: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    if GUARD:
        before = tl.load(x + at - 1, mask=mask & (at > 0), other=0.0)
    else:
        before = tl.load(x + at - 1, mask=mask, other=0.0)  # FAULT
    tl.store(out + at, tl.load(x + at, mask=mask) - before, mask=mask)


@fault(shift_kernel, BOUNDS, OTHER)
def difference_reads_before_the_start(wrong):
    x = torch.randn(300)
    shift_kernel[(3,)](x, torch.empty(300), 300, not wrong, 128, debug=True)


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, a_row, b_row, MASK: tl.constexpr, WRAP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a + (rows % M if WRAP else rows)[:, None] * a_row + inner[None, :]
    right = b + inner[:, None] * b_row + (columns % N)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        rest = K - k * BK if MASK else K
        x = tl.load(left, mask=inner[None, :] < rest, other=0.0)  # FAULT
        y = tl.load(right, mask=inner[:, None] < rest, other=0.0)  # FAULT
        total = tl.dot(x, y, total)
        left += BK
        right += BK * b_row
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total, mask=mask)


def _matmul(strides=None, mask=True, wrap=True, grid=None, shape=(50, 70, 43)):
    m, n, k = shape
    a, b, c = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
    grid = grid or (triton.cdiv(m, 16), triton.cdiv(n, 32))
    matmul_kernel[grid](a, b, c, m, n, k, *(strides or (k, n)), mask, wrap, 16, 32, 16, debug=True)


@fault(matmul_kernel, BOUNDS, OTHER)
def matmul_does_not_mask_its_last_step(wrong):
    _matmul(mask=not wrong)


@fault(matmul_kernel, BOUNDS, OTHER)
def matmul_does_not_wrap_its_rows(wrong):
    _matmul(wrap=not wrong)


@fault(matmul_kernel, BOUNDS, OTHER)
def matmul_with_strides_of_the_transpose(wrong):
    _matmul(strides=(43, 86) if wrong else None)


@fault(matmul_kernel, BOUNDS, OTHER)
def matmul_with_the_row_stride_of_the_other_factor(wrong):
    _matmul(strides=(70, 70) if wrong else None)


@triton.jit
def transpose_kernel(x, out, rows, columns, SWAP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (i < rows) & (j < columns)
    values = tl.load(x + i * columns + j, mask=mask)
    if SWAP:
        tl.store(out + j * columns + i, values, mask=mask)  # FAULT
    else:
        tl.store(out + j * rows + i, values, mask=mask)


@fault(transpose_kernel, BOUNDS, OTHER, "race")
def transpose_with_the_stride_of_its_input(wrong):
    x = torch.randn(40, 70)
    transpose_kernel[(3, 5)](x, torch.empty(70, 40), 40, 70, wrong, 16, debug=True)


@triton.jit
def transposed_load_kernel(x, out, rows, columns, row_stride, column_stride, BLOCK: tl.constexpr):
    i, j = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + i * row_stride + j * column_stride, mask=j < columns)  # FAULT
    tl.store(out + i * columns + j, values, mask=j < columns)


@fault(transposed_load_kernel, BOUNDS, OTHER)
def copy_of_a_view_with_strides_in_the_wrong_order(wrong):
    x = torch.randn(20, 60)[:, ::2]
    strides = x.stride()[::-1] if wrong else x.stride()
    transposed_load_kernel[(20,)](x, torch.empty(20, 30), 20, 30, *strides, 32, debug=True)


@triton.jit
def gather_kernel(x, index, out, n, SAFE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = tl.load(index + at, mask=at < n, other=0)
    if SAFE:
        place = tl.where(place < 0, place + n, place)
    tl.store(out + at, tl.load(x + place, mask=at < n), mask=at < n)  # FAULT


@fault(gather_kernel, BOUNDS, OTHER)
def gather_by_negative_indices(wrong):
    index = torch.arange(50) - 25
    gather_kernel[(1,)](torch.randn(50), index, torch.empty(50), 50, not wrong, 64, debug=True)


@fault(gather_kernel, BOUNDS, OTHER)
def gather_by_the_ignored_index_of_a_loss(wrong):
    index = torch.arange(50)
    index[7] = -100 if wrong else 3
    gather_kernel[(1,)](torch.randn(50), index, torch.empty(50), 50, True, 64, debug=True)


@triton.jit
def scatter_kernel(x, index, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = tl.load(index + at, mask=at < n, other=0)
    tl.store(out + place, tl.load(x + at, mask=at < n), mask=at < n)  # FAULT


@fault(scatter_kernel, BOUNDS, OTHER)
def scatter_counts_from_one(wrong):
    index = torch.randperm(50) + (1 if wrong else 0)
    scatter_kernel[(1,)](torch.randn(50), index, torch.empty(50), 50, 64, debug=True)


@triton.jit
def histogram_kernel(x, bins, n, CLAMP: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0.0)
    place = (values * COUNT).to(tl.int32)
    if CLAMP:
        place = tl.minimum(place, COUNT - 1)
    tl.atomic_add(bins + place, 1, mask=at < n)  # FAULT


@fault(histogram_kernel, BOUNDS, OTHER)
def histogram_of_values_up_to_one(wrong):
    x = torch.rand(500)
    x[123] = 1.0
    histogram_kernel[(4,)](x, torch.zeros(10, dtype=torch.int32), 500, not wrong, 10, 128, debug=True)


@triton.jit
def loop_kernel(x, out, n, steps, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(0, steps):
        total += tl.load(x + step * BLOCK + tl.arange(0, BLOCK))  # FAULT
    tl.store(out, tl.sum(total, 0))


@fault(loop_kernel, BOUNDS, OTHER)
def sum_with_a_step_too_many(wrong):
    loop_kernel[(1,)](torch.randn(320), torch.empty(1), 320, 320 // 64 + wrong, 64, debug=True)


@fault(loop_kernel, BOUNDS, OTHER)
def sum_of_a_length_that_is_no_multiple(wrong):
    loop_kernel[(1,)](torch.randn(300 if wrong else 320), torch.empty(1), 320, 5, 64, debug=True)


@triton.jit
def moving_pointer_kernel(x, out, rows, stride, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    pointer = x + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(rows):
        if FIRST:
            pointer += stride
        total += tl.load(pointer)  # FAULT
        if not FIRST:
            pointer += stride
    tl.store(out + tl.arange(0, BLOCK), total)


@fault(moving_pointer_kernel, BOUNDS, OTHER)
def column_sum_moves_before_it_reads(wrong):
    moving_pointer_kernel[(1,)](torch.randn(9, 32), torch.empty(32), 9, 32, wrong, 32, debug=True)


@triton.jit
def reverse_kernel(x, out, n, LAST: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + n - LAST - at, tl.load(x + at, mask=at < n), mask=at < n)  # FAULT


@fault(reverse_kernel, BOUNDS, OTHER)
def reversal_stores_one_past_the_end(wrong):
    reverse_kernel[(1,)](torch.randn(50), torch.empty(50), 50, 0 if wrong else 1, 64, debug=True)


@triton.jit
def wide_offset_kernel(x, out, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) + 2**11 - 2
    if WIDE:
        row = row.to(tl.int64)
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(x + row * stride + at))  # FAULT


@fault(wide_offset_kernel, BOUNDS, OTHER)
def offset_of_a_row_overflows(wrong):
    x = torch.empty(2**31 + 2**21, dtype=torch.int8)
    x[(2**11 - 2) * 2**20 :].zero_()
    wide_offset_kernel[(3,)](x, torch.empty(3, 16, dtype=torch.int8), 2**20, not wrong, 16, debug=True)


@triton.jit
def wide_store_kernel(out, batch_stride, row_stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    batch, row = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    start = batch.to(tl.int64) * batch_stride if WIDE else batch * batch_stride
    tl.store(out + start + row * row_stride + at, at.to(tl.int8))  # FAULT


@fault(wide_store_kernel, BOUNDS, OTHER)
def offset_of_a_batch_overflows(wrong):
    out = torch.empty(3, 2**30, dtype=torch.int8)
    wide_store_kernel[(3, 2)](out, 2**30, 64, not wrong, 64, debug=True)


@triton.jit
def cache_kernel(cache, table, out, length, LAST: tl.constexpr, PAGE: tl.constexpr, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), tl.float32)
    for position in range(0, length + LAST):
        page = tl.load(table + position // PAGE)  # FAULT
        total += tl.load(cache + (page * PAGE + position % PAGE) * WIDTH + at)
    tl.store(out + at, total)


@fault(cache_kernel, BOUNDS, OTHER)
def paged_cache_with_a_position_too_many(wrong):
    table = torch.tensor([3, 0, 5])
    cache_kernel[(1,)](
        torch.randn(6, 8, 16), table, torch.empty(16), 24, 1 if wrong else 0, 8, 16, debug=True
    )


@triton.jit
def page_kernel(cache, table, out, PAGE: tl.constexpr):
    page = tl.load(table + tl.program_id(0))
    at = tl.arange(0, PAGE)
    tl.store(out + tl.program_id(0) * PAGE + at, tl.load(cache + page * PAGE + at))  # FAULT


@fault(page_kernel, BOUNDS, OTHER)
def paged_cache_with_an_unused_entry(wrong):
    table = torch.tensor([2, 1, -1 if wrong else 0])
    page_kernel[(3,)](torch.randn(3, 32), table, torch.empty(3, 32), 32, debug=True)


@triton.jit
def table_kernel(pointers, out, BLOCK: tl.constexpr):
    source = tl.load(pointers + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(source + at))  # FAULT


@fault(table_kernel, BOUNDS)
def table_of_pointers_to_freed_tensors(wrong):
    tensors = [torch.ones(1 << 20) for _ in range(3)]
    pointers = torch.tensor([each.data_ptr() for each in tensors])
    if wrong:
        del tensors[1]
    table_kernel[(3,)](pointers, torch.empty(3, 64), 64, debug=True)


@fault(table_kernel, BOUNDS)
def table_of_pointers_to_short_tensors(wrong):
    tensors = [torch.ones(64), torch.ones(50 if wrong else 64)]
    pointers = torch.tensor([each.data_ptr() for each in tensors])
    table_kernel[(2,)](pointers, torch.empty(2, 64), 64, debug=True)


@fault(table_kernel, BOUNDS)
def table_with_a_null_pointer(wrong):
    tensor = torch.ones(64)
    pointers = torch.tensor([tensor.data_ptr(), 0 if wrong else tensor.data_ptr()])
    table_kernel[(2,)](pointers, torch.empty(2, 64), 64, debug=True)


@fault(add_kernel, BOUNDS, OTHER)
def argument_whose_memory_was_released(wrong):
    x, y, out = (torch.ones(128) for _ in range(3))
    if wrong:
        x.untyped_storage().resize_(0)
    add_kernel[(1,)](x, y, out, 128, False, False, 128, debug=True)


@triton.jit
def optional_kernel(x, bias, out, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    if HAS_BIAS:
        value += tl.load(bias + at)  # FAULT
    tl.store(out + at, value)


@fault(optional_kernel, BOUNDS, OTHER)
def optional_bias_that_is_empty(wrong):
    optional_kernel[(1,)](torch.ones(64), torch.empty(0), torch.empty(64), wrong, 64, debug=True)


@fault(optional_kernel, BOUNDS, OTHER)
def bias_of_one_element_is_not_broadcast(wrong):
    bias = torch.ones(1) if wrong else torch.ones(1).repeat(64)
    optional_kernel[(1,)](torch.ones(64), bias, torch.empty(64), True, 64, debug=True)


@triton.jit
def convolution_kernel(x, weight, out, n, TAPS: tl.constexpr, CAUSAL: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(TAPS):
        place = at - tap
        mask = (place >= 0) & (at < n) if CAUSAL else at < n
        total += tl.load(x + place, mask=mask, other=0.0) * tl.load(weight + tap)  # FAULT
    tl.store(out + at, total, mask=at < n)


@fault(convolution_kernel, BOUNDS, OTHER)
def causal_convolution_without_its_left_border(wrong):
    convolution_kernel[(3,)](
        torch.randn(90), torch.randn(4), torch.empty(90), 90, 4, not wrong, 32, debug=True
    )


@triton.jit
def embedding_kernel(weight, tokens, out, width, BLOCK: tl.constexpr):
    token = tl.load(tokens + tl.program_id(0))
    at = tl.arange(0, BLOCK)
    row = tl.load(weight + token * width + at, mask=at < width)  # FAULT
    tl.store(out + tl.program_id(0) * width + at, row, mask=at < width)


@fault(embedding_kernel, BOUNDS, OTHER)
def embedding_of_a_token_beyond_the_vocabulary(wrong):
    tokens = torch.tensor([1, 4, 10 if wrong else 9])
    embedding_kernel[(3,)](torch.randn(10, 24), tokens, torch.empty(3, 24), 24, 32, debug=True)


@triton.jit
def pool_kernel(x, out, height, width, EDGE: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), -float("inf"), tl.float32)
    for i in tl.static_range(3):
        for j in tl.static_range(3):
            y, z = row + i - 1, at + j - 1
            mask = (z >= 0) & (z < width) & ((y >= 0) & (y < height) if EDGE else True)
            most = tl.maximum(most, tl.load(x + y * width + z, mask=mask, other=-float("inf")))  # FAULT
    tl.store(out + row * width + at, most, mask=at < width)


@fault(pool_kernel, BOUNDS, OTHER)
def pooling_beyond_the_first_and_last_row(wrong):
    pool_kernel[(8,)](torch.randn(8, 12), torch.empty(8, 12), 8, 12, not wrong, 16, debug=True)


@triton.jit
def half_kernel(x, out, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    words = (x + 0).to(tl.pointer_type(tl.int32))
    value = tl.load(words + at, mask=at < n // WIDTH)  # FAULT
    tl.store(out + at, value, mask=at < n // WIDTH)


@fault(half_kernel, BOUNDS, OTHER)
def packed_words_with_the_count_of_bytes(wrong):
    x = torch.ones(40, dtype=torch.int8)
    half_kernel[(1,)](x, torch.empty(64, dtype=torch.int32), 40, 1 if wrong else 4, 64, debug=True)


@triton.jit
def ragged_kernel(x, starts, out, SIZES: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    start = tl.load(starts + row)
    end = tl.load(starts + row + 1) if SIZES else start + BLOCK
    value = tl.load(x + start + at, mask=start + at < end, other=0.0)  # FAULT
    tl.store(out + row, tl.sum(value, 0))


@fault(ragged_kernel, BOUNDS, OTHER)
def ragged_rows_of_a_whole_block(wrong):
    starts = torch.tensor([0, 5, 17, 30])
    ragged_kernel[(3,)](torch.randn(30), starts, torch.empty(3), not wrong, 16, debug=True)
