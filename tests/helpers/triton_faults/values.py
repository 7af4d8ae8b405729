"""Memory that nobody wrote, and values that lose their precision."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.helpers.triton_faults import fault

FRESH = "uninitialised"


@triton.jit
def column_sum_kernel(x, out, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns)
    tl.atomic_add(out + at, value, mask=at < columns)  # FAULT


@fault(column_sum_kernel, FRESH)
def atomic_sum_into_an_empty_tensor(wrong):
    out = torch.empty(30) if wrong else torch.zeros(30)
    column_sum_kernel[(20,)](torch.randn(20, 30), out, 30, 32, debug=True)


@triton.jit
def bincount_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + at, mask=at < n, other=0), 1, mask=at < n)  # FAULT


@fault(bincount_kernel, FRESH)
def counts_in_an_empty_tensor(wrong):
    x = torch.randint(0, 10, (100,))
    out = torch.empty(10, dtype=torch.int32) if wrong else torch.zeros(10, dtype=torch.int32)
    bincount_kernel[(4,)](x, out, 100, 32, debug=True)


@triton.jit
def accumulate_kernel(x, out, steps, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for step in range(steps):
        value = tl.load(x + step * tl.num_programs(0) * BLOCK + at)
        if FIRST:
            if step > 0:
                value += tl.load(out + at)
        else:
            value += tl.load(out + at)  # FAULT
        tl.store(out + at, value)


@fault(accumulate_kernel, FRESH)
def accumulator_in_memory_is_not_set_by_the_first_step(wrong):
    accumulate_kernel[(2,)](torch.randn(3, 64), torch.empty(64), 3, not wrong, 32, debug=True)


@triton.jit
def partial_kernel(x, partial, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(partial + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0))


@triton.jit
def final_kernel(partial, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(partial + at, mask=at < n, other=0.0), 0))  # FAULT


@fault(final_kernel, FRESH)
def partial_sums_of_a_grid_too_small(wrong):
    partial = torch.empty(8)
    partial_kernel[(7 if wrong else 8,)](torch.randn(250), partial, 250, 32, debug=True)
    final_kernel[(1,)](partial, torch.empty(1), 8, 8, debug=True)


@triton.jit
def even_kernel(x, out, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * STEP
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def square_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)  # FAULT
    tl.store(out + at, value * value, mask=at < n)


@fault(square_kernel, FRESH)
def a_kernel_before_left_every_second_element(wrong):
    between = torch.empty(128)
    even_kernel[(4,)](torch.randn(128), between, 128, 2 if wrong else 1, 32, debug=True)
    square_kernel[(4,)](between, torch.empty(128), 128, 32, debug=True)


@fault(square_kernel, FRESH)
def a_buffer_whose_padding_is_not_cleared(wrong):
    padded = torch.empty(128, dtype=torch.float16)
    padded[:100] = 1
    if not wrong:
        padded[100:] = 0
    square_kernel[(4,)](padded, torch.empty_like(padded), 128, 32, debug=True)


@triton.jit
def scale_kernel(x, scale, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * tl.load(scale))  # FAULT


@fault(scale_kernel, FRESH)
def a_scale_that_is_never_computed(wrong):
    scale = torch.empty((), dtype=torch.float64)
    if not wrong:
        scale.fill_(2)
    scale_kernel[(1,)](torch.randn(32), scale, torch.empty(32), 32, debug=True)


@triton.jit
def maximum_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(out, tl.max(tl.load(x + at, mask=at < n, other=-(2**31)), 0))  # FAULT


@fault(maximum_kernel, FRESH)
def maximum_without_a_first_value(wrong):
    out = torch.empty(1, dtype=torch.int32)
    if not wrong:
        out.fill_(-(2**31))
    maximum_kernel[(3,)](torch.randperm(90).int(), out, 90, 32, debug=True)


@triton.jit
def half_sum_kernel(x, out, rows, columns, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    if WIDE:
        total = tl.zeros((BLOCK,), tl.float32)
        for row in range(rows):
            total += tl.load(x + row * columns + at, mask=at < columns)
    else:
        total = tl.zeros((BLOCK,), tl.float16)
        for row in range(rows):
            total += tl.load(x + row * columns + at, mask=at < columns)  # FAULT
    tl.store(out + at, total, mask=at < columns)


@fault(half_sum_kernel)
def column_sum_accumulates_in_float16(wrong):
    x = torch.rand(4000, 30).half()
    half_sum_kernel[(1,)](x, torch.empty(30), 4000, 30, not wrong, 32, debug=True)


@triton.jit
def half_product_kernel(a, b, c, K, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    at, inner = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32 if WIDE else tl.bfloat16)
    for k in range(0, K, BLOCK):
        x = tl.load(a + at[:, None] * K + k + inner[None, :])
        y = tl.load(b + (k + inner)[:, None] * BLOCK + at[None, :])
        total += tl.dot(x, y).to(total.dtype)  # FAULT
    tl.store(c + at[:, None] * BLOCK + at[None, :], total)


@fault(half_product_kernel)
def product_accumulates_in_bfloat16(wrong):
    a, b = torch.rand(16, 512).bfloat16(), torch.rand(512, 16).bfloat16()
    half_product_kernel[(1,)](a, b, torch.empty(16, 16), 512, not wrong, 16, debug=True)


@triton.jit
def byte_sum_kernel(x, out, rows, columns, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.int32 if WIDE else tl.int8)
    for row in range(rows):
        total += tl.load(x + row * columns + at, mask=at < columns, other=0)  # FAULT
    tl.store(out + at, total, mask=at < columns)


@fault(byte_sum_kernel)
def column_sum_overflows_int8(wrong):
    x = torch.full((50, 30), 100, dtype=torch.int8)
    byte_sum_kernel[(1,)](x, torch.empty(30, dtype=torch.int32), 50, 30, not wrong, 32, debug=True)
