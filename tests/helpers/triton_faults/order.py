"""Programs that access the same memory without an order between them, and locks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.helpers.triton_faults import fault

RACE = "race"


@triton.jit
def column_sum_kernel(x, out, columns, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns)
    if ATOMIC:
        tl.atomic_add(out + at, value, mask=at < columns)
    else:
        sofar = tl.load(out + at, mask=at < columns)  # FAULT
        tl.store(out + at, sofar + value, mask=at < columns)  # FAULT


@fault(column_sum_kernel, RACE)
def column_sum_without_atomics(wrong):
    column_sum_kernel[(20,)](torch.randn(20, 30), torch.zeros(30), 30, not wrong, 32, debug=True)


@triton.jit
def layer_norm_backward_kernel(
    x, gradient, partial, locks, counts, columns, GROUPS: tl.constexpr, LOCK: tl.constexpr, RELEASE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    group = row % GROUPS
    value = tl.load(x + row * columns + at, mask=mask) * tl.load(gradient + row * columns + at, mask=mask)
    if LOCK:
        while tl.atomic_cas(locks + group, 0, 1) == 1:  # FAULT
            pass
    count = tl.load(counts + group)  # FAULT
    if count == 0:
        tl.atomic_xchg(counts + group, 1)  # FAULT
    else:
        value += tl.load(partial + group * columns + at, mask=mask)  # FAULT
    tl.store(partial + group * columns + at, value, mask=mask)  # FAULT
    tl.debug_barrier()
    if LOCK and RELEASE:
        tl.atomic_xchg(locks + group, 0)


def _layer_norm(lock, release):
    x, gradient, partial = torch.randn(37, 50), torch.randn(37, 50), torch.empty(4, 50)
    locks, counts = torch.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    layer_norm_backward_kernel[(37,)](
        x, gradient, partial, locks, counts, 50, 4, lock, release, 64, debug=True
    )


@fault(layer_norm_backward_kernel, RACE)
def layer_norm_backward_without_its_lock(wrong):
    _layer_norm(not wrong, True)


@fault(layer_norm_backward_kernel, "deadlock")
def layer_norm_backward_does_not_release_its_lock(wrong):
    _layer_norm(True, not wrong)


@triton.jit
def early_return_kernel(x, out, lock, LEAK: tl.constexpr):
    row = tl.program_id(0)
    while tl.atomic_cas(lock, 0, 1) == 1:  # FAULT
        pass
    value = tl.load(x + row)
    if value > 0:
        tl.store(out, tl.load(out) + value)
        tl.atomic_xchg(lock, 0)
    else:
        if not LEAK:
            tl.atomic_xchg(lock, 0)


@fault(early_return_kernel, "deadlock")
def lock_is_kept_by_a_branch(wrong):
    x = torch.tensor([1.0, -1.0, 2.0, -3.0])
    early_return_kernel[(4,)](x, torch.zeros(1), torch.zeros(1, dtype=torch.int32), wrong, debug=True)


@triton.jit
def locked_kernel(x, out, locks, OWN: tl.constexpr):
    row = tl.program_id(0)
    lock = locks + (row if OWN else 0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) + tl.load(x + row))  # FAULT
    tl.atomic_xchg(lock, 0)


@fault(locked_kernel, RACE)
def each_program_takes_a_lock_of_its_own(wrong):
    locked_kernel[(9,)](torch.randn(9), torch.zeros(1), torch.zeros(9, dtype=torch.int32), wrong, debug=True)


@triton.jit
def two_locks_kernel(x, locks, ORDERED: tl.constexpr, TWICE: tl.constexpr):
    first = 0 if ORDERED else tl.program_id(0) % 2
    second = first if TWICE else 1 - first
    while tl.atomic_cas(locks + first, 0, 1) == 1:  # FAULT
        pass
    while tl.atomic_cas(locks + second, 0, 1) == 1:  # FAULT
        pass
    tl.store(x, tl.load(x) + 1)
    tl.atomic_xchg(locks + second, 0)
    tl.atomic_xchg(locks + first, 0)


@fault(two_locks_kernel, "deadlock")
def two_locks_are_taken_in_either_order(wrong):
    two_locks_kernel[(9,)](torch.zeros(1), torch.zeros(2, dtype=torch.int32), not wrong, False, debug=True)


@fault(two_locks_kernel, "deadlock")
def a_lock_is_taken_twice(wrong):
    two_locks_kernel[(9,)](torch.zeros(1), torch.zeros(2, dtype=torch.int32), True, wrong, debug=True)


@triton.jit
def early_release_kernel(x, out, lock, EARLY: tl.constexpr):
    row = tl.program_id(0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    total = tl.load(out) + tl.load(x + row)  # FAULT
    if EARLY:
        tl.atomic_xchg(lock, 0)
    tl.store(out, total)  # FAULT
    if not EARLY:
        tl.atomic_xchg(lock, 0)


@fault(early_release_kernel, RACE)
def lock_is_released_before_the_store(wrong):
    early_release_kernel[(9,)](
        torch.randn(9), torch.zeros(1), torch.zeros(1, dtype=torch.int32), wrong, debug=True
    )


@triton.jit
def relaxed_kernel(x, out, lock, RELAXED: tl.constexpr):
    row = tl.program_id(0)
    if RELAXED:
        while tl.atomic_cas(lock, 0, 1, sem="relaxed") == 1:
            pass
    else:
        while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
            pass
    tl.store(out, tl.load(out) + tl.load(x + row))  # FAULT
    if RELAXED:
        tl.atomic_xchg(lock, 0, sem="relaxed")
    else:
        tl.atomic_xchg(lock, 0, sem="release")


@fault(relaxed_kernel, RACE)
def lock_of_relaxed_operations(wrong):
    relaxed_kernel[(9,)](torch.randn(9), torch.zeros(1), torch.zeros(1, dtype=torch.int32), wrong, debug=True)


@triton.jit
def last_block_kernel(x, partial, out, counter, n, COUNTED: tl.constexpr, BLOCK: tl.constexpr):
    program, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(partial + program, tl.sum(tl.load(x + program * BLOCK + at), 0))  # FAULT
    tl.debug_barrier()
    done = tl.atomic_add(counter, 1)
    if done == (n - 1 if COUNTED else n // 2):
        partials = tl.load(partial + at, mask=at < n, other=0.0)  # FAULT
        tl.store(out, tl.sum(partials, 0))


@fault(last_block_kernel, RACE)
def partial_sums_are_added_before_all_are_there(wrong):
    counter = torch.zeros(1, dtype=torch.int32)
    last_block_kernel[(12,)](
        torch.randn(12 * 16), torch.zeros(12), torch.empty(1), counter, 12, not wrong, 16, debug=True
    )


@triton.jit
def grid_barrier_kernel(x, out, counter, n, WAIT: tl.constexpr, BLOCK: tl.constexpr):
    program, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(x + program * BLOCK + at, program.to(tl.float32))  # FAULT
    tl.debug_barrier()
    tl.atomic_add(counter, 1)
    if WAIT:
        while tl.atomic_add(counter, 0) < n:
            pass
    other = (program + 1) % n
    tl.store(out + program * BLOCK + at, tl.load(x + other * BLOCK + at))  # FAULT


@fault(grid_barrier_kernel, RACE)
def neighbours_do_not_wait_for_each_other(wrong):
    counter = torch.zeros(1, dtype=torch.int32)
    grid_barrier_kernel[(10,)](torch.zeros(160), torch.empty(160), counter, 10, not wrong, 16, debug=True)


@triton.jit
def ticket_kernel(x, out, counter, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    tl.store(x + program, program.to(tl.float32))
    tl.atomic_add(counter, 1)
    while tl.atomic_add(counter, 0) < n:  # FAULT
        pass
    tl.store(out + program, tl.load(x + (program + 1) % tl.num_programs(0)))


@fault(ticket_kernel, "deadlock")
def barrier_expects_a_program_too_many(wrong):
    counter = torch.zeros(1, dtype=torch.int32)
    ticket_kernel[(6,)](torch.zeros(6), torch.empty(6), counter, 6 + wrong, 16, debug=True)


@triton.jit
def stencil_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(x + at - 1, mask=(at > 0) & (at < n), other=0.0)  # FAULT
    right = tl.load(x + at + 1, mask=at + 1 < n, other=0.0)  # FAULT
    tl.store(out + at, left + right, mask=at < n)  # FAULT


@fault(stencil_kernel, RACE)
def stencil_in_place(wrong):
    x = torch.randn(200)
    stencil_kernel[(7,)](x, x if wrong else torch.empty(200), 200, 32, debug=True)


@fault(stencil_kernel, RACE)
def stencil_into_a_shifted_view(wrong):
    x = torch.randn(401)
    stencil_kernel[(7,)](x[:200], x[100:300] if wrong else x[200:400], 200, 32, debug=True)


@triton.jit
def reverse_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)  # FAULT
    tl.store(out + n - 1 - at, value, mask=at < n)  # FAULT


@fault(reverse_kernel, RACE)
def reversal_in_place(wrong):
    x = torch.randn(100)
    reverse_kernel[(4,)](x, x if wrong else torch.empty(100), 100, 32, debug=True)


@triton.jit
def rows_kernel(x, out, row_stride, out_stride, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * out_stride + at, tl.load(x + row * row_stride + at) * 2)  # FAULT


@fault(rows_kernel, RACE)
def rows_of_the_output_overlap(wrong):
    rows_kernel[(8,)](torch.randn(8, 32), torch.empty(8, 32), 32, 24 if wrong else 32, 32, debug=True)


@fault(rows_kernel, RACE)
def output_is_an_expanded_tensor(wrong):
    out = torch.empty(1, 32).expand(8, 32) if wrong else torch.empty(8, 32)
    rows_kernel[(8,)](torch.randn(8, 32), out, 32, out.stride(0), 32, debug=True)


@triton.jit
def scatter_kernel(x, index, out, n, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(index + at, mask=at < n, other=0)
    value = tl.load(x + at, mask=at < n)
    if ATOMIC:
        tl.atomic_add(out + place, value, mask=at < n)
    else:
        tl.store(out + place, tl.load(out + place, mask=at < n) + value, mask=at < n)  # FAULT


@fault(scatter_kernel, RACE)
def embedding_gradient_of_repeated_tokens(wrong):
    index = torch.arange(100) % 40
    scatter_kernel[(4,)](torch.randn(100), index, torch.zeros(40), 100, not wrong, 32, debug=True)


@triton.jit
def attention_backward_kernel(
    q, k, dq, length, ATOMIC: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    start = tl.program_id(0) * BLOCK
    at = tl.arange(0, WIDTH)[None, :]
    keys = tl.load(k + (start + tl.arange(0, BLOCK))[:, None] * WIDTH + at)
    for first in range(0, length, BLOCK):
        place = (first + tl.arange(0, BLOCK))[:, None] * WIDTH + at
        scores = tl.dot(tl.load(q + place), tl.trans(keys))
        part = tl.dot(scores, keys)
        if ATOMIC:
            tl.atomic_add(dq + place, part)
        else:
            tl.store(dq + place, tl.load(dq + place) + part)  # FAULT


@fault(attention_backward_kernel, RACE)
def attention_gradient_of_queries_by_blocks_of_keys(wrong):
    q, k, dq = torch.randn(64, 16), torch.randn(64, 16), torch.zeros(64, 16)
    attention_backward_kernel[(4,)](q, k, dq, 64, not wrong, 16, 16, debug=True)


@triton.jit
def split_k_kernel(a, b, c, K, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    at, inner = tl.arange(0, BLOCK), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.dot(
        tl.load(a + at[:, None] * K + inner[None, :]), tl.load(b + inner[:, None] * BLOCK + at[None, :])
    )
    place = c + at[:, None] * BLOCK + at[None, :]
    if ATOMIC:
        tl.atomic_add(place, part)
    else:
        tl.store(place, part)  # FAULT


@fault(split_k_kernel, RACE)
def parts_of_a_product_overwrite_each_other(wrong):
    a, b, c = torch.randn(16, 64), torch.randn(64, 16), torch.zeros(16, 16)
    split_k_kernel[(4,)](a, b, c, 64, not wrong, 16, debug=True)


@fault(rows_kernel, RACE)
def programs_of_an_axis_that_the_kernel_does_not_read(wrong):
    """The second axis repeats every row in place: each program doubles it."""
    x = torch.randn(8, 32)
    rows_kernel[(8, 2 if wrong else 1)](x, x, 32, 32, 32, debug=True)


@triton.jit
def maximum_kernel(x, out, n, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    most = tl.max(tl.load(x + at, mask=at < n, other=-(2**31)), 0)
    if ATOMIC:
        tl.atomic_max(out, most)
    else:
        tl.store(out, most)  # FAULT


@fault(maximum_kernel, RACE)
def each_program_stores_its_maximum(wrong):
    x = torch.randperm(300).int()
    maximum_kernel[(5,)](x, torch.full((1,), -(2**31), dtype=torch.int32), 300, not wrong, 64, debug=True)


@triton.jit
def flag_kernel(x, out, flag, n, VISIBLE: tl.constexpr):
    program = tl.program_id(0)
    if program == 0:
        tl.store(x, 42.0)  # FAULT
        if VISIBLE:
            tl.atomic_xchg(flag, 1, sem="release")
        else:
            tl.atomic_xchg(flag, 1, sem="relaxed")
    else:
        while tl.atomic_add(flag, 0, sem="acquire") == 0:
            pass
        tl.store(out + program, tl.load(x))  # FAULT


@fault(flag_kernel, RACE)
def flag_is_set_without_release(wrong):
    flag_kernel[(5,)](
        torch.zeros(1), torch.zeros(5), torch.zeros(1, dtype=torch.int32), 5, not wrong, debug=True
    )
