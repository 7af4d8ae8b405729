"""Kernels whose statements read what others of them overwrite, and numbers at the ends of their types."""

from __future__ import annotations

import ctypes

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402


@triton.jit
def rotating_kernel(x, out, n, N: tl.constexpr):
    at, step = tl.arange(0, N), 1
    pointers = x + at
    a, b, c = tl.load(x + at), tl.load(x + N + at), tl.load(x + 2 * N + at)
    total = tl.zeros((N,), tl.int32)
    for _ in range(n):
        a, b, c = b, c, a + b
        total += tl.load(pointers)
        pointers += step
        step = step * 2
    tl.store(out + at, a)
    tl.store(out + N + at, b)
    tl.store(out + 2 * N + at, c)
    tl.store(out + 3 * N + at, total)


def test_loops_assign_all_that_they_carry_at_once():
    x, out = torch.randint(9, (4, 16), dtype=torch.int32), torch.zeros(4, 16, dtype=torch.int32)
    rotating_kernel[(1,)](x, out, 5, 16)
    a, b, c, _ = x
    for _ in range(5):
        a, b, c = b, c, a + b
    total = sum(x.flatten()[2**k - 1 :][:16] for k in range(5))
    assert torch.equal(out, torch.stack([a, b, c, total]))


@triton.jit
def sum_and_last(a, last_a, b, last_b):
    return a + b, last_b


@triton.jit
def overwriting_kernel(x, sums, last, out, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    running, own = tl.associative_scan((values, values), 0, sum_and_last)
    tl.store(sums + at, running)
    tl.store(last + at, own)
    tl.store(out + at, values)
    tl.store(out + at + 1, -values)


def test_statements_take_effect_one_after_another():
    x = torch.arange(1, 65, dtype=torch.int32)
    sums, last, out = torch.zeros_like(x), torch.zeros_like(x), torch.zeros(65, dtype=torch.int32)
    overwriting_kernel[(1,)](x, sums, last, out, 64)
    assert torch.equal(sums, x.cumsum(0, dtype=torch.int32)) and torch.equal(last, x)
    assert torch.equal(out, torch.cat([x[:1], -x]))


@triton.jit
def returning_kernel(x, out, n, N: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    if row >= n:
        return
    values = tl.load(x + row * N + at)
    if row == 1:
        total = tl.sum(values, 0)
        if total > 0:
            tl.store(out + row * N + at, values + total)
            return
        values = values * 2
    tl.store(out + row * N + at, values)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_early_return_may_carry_tensors(sign):
    x, out = sign * torch.arange(1.0, 65).view(4, 16), torch.zeros(4, 16)
    returning_kernel[(4,)](x, out, 3, 16)
    second = x[1] + x[1].sum() if sign > 0 else 2 * x[1]
    assert torch.equal(out, torch.stack([x[0], second, x[2], torch.zeros(16)]))


@triton.jit
def dividing_kernel(x, y, quotients, rests, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(quotients + at, tl.load(x + at) // tl.load(y + at))
    tl.store(rests + at, tl.load(x + at) % tl.load(y + at))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_the_least_integer_divided_by_minus_1(dtype):
    least = torch.iinfo(dtype).min
    x, y = torch.tensor([least, 7, -7, least], dtype=dtype), torch.tensor([-1, -1, 2, 2], dtype=dtype)
    quotients, rests = torch.zeros_like(x), torch.zeros_like(x)
    dividing_kernel[(1,)](x, y, quotients, rests, 4)
    assert quotients.tolist() == [least, -7, -3, least // 2]
    assert rests.tolist() == [0, 0, -1, 0]


@triton.jit
def copying_kernel(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at))


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"])
def test_copies_keep_every_number_of_8_bits(name):
    x = torch.arange(256).to(torch.uint8).view(getattr(torch, name))
    out = torch.zeros(256, dtype=torch.uint8).view(x.dtype)
    copying_kernel[(1,)](x, out, 256)
    assert torch.equal(out.float().nan_to_num(nan=0.5), x.float().nan_to_num(nan=0.5))
    assert torch.equal(out.float().isinf(), x.float().isinf())


@triton.jit
def scanning_kernel(x, out, N: tl.constexpr, SCANS: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    for _ in tl.static_range(SCANS):
        values = tl.cumsum(values, 0)
    tl.store(out + at, values)


def test_many_large_arrays_do_not_overflow_the_stack():
    x = torch.zeros(1 << 16, dtype=torch.int32)
    x[0], out = 1, torch.zeros_like(x)
    scanning_kernel[(2,)](x, out, 1 << 16, 40)
    assert out[:3].tolist() == [1, 40, 820]


@triton.jit
def printing_kernel(x, N: tl.constexpr):
    tl.device_print("100%d", tl.load(x))
    tl.device_print("both", tl.load(x + tl.arange(0, N)), tl.load(x + 1) * 0.5)


def test_printed_values_stand_behind_their_text(capfd):
    printing_kernel[(1,)](torch.tensor([-7, 8], dtype=torch.int32), 2)
    ctypes.CDLL(None).fflush(None)
    lines = [" ".join(each.split()) for each in capfd.readouterr().out.splitlines()]
    assert lines == [
        "pid (0, 0, 0) idx () 100%d: -7",
        "pid (0, 0, 0) idx (0) both: (operand 0) -7",
        "pid (0, 0, 0) idx (1) both: (operand 0) 8",
        "pid (0, 0, 0) idx () both: (operand 1) 4.000000",
    ]


@triton.jit
def sorting_kernel(x, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.sort(-tl.load(x + at, mask=at < n, other=1)))


def test_a_network_of_shared_values_is_analysed_once():
    x, out = torch.randint(-99, 99, (128,), dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    sorting_kernel[(1,)](x, out, 128, 128)
    assert torch.equal(out, torch.sort(-x).values)


@triton.jit(do_not_specialize=["rows"])
def unit_rows_kernel(x, y, rows, N: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    mask = (row < rows)[:, None] & (column[None, :] < N)
    values = tl.load(x + row[:, None] * N + column[None, :], mask=mask, other=0.0)
    lengths = tl.sqrt(tl.sum(values * values, 1))
    tl.store(y + row[:, None] * N + column[None, :], values / lengths[:, None], mask=mask)


@pytest.mark.parametrize("n", [57, 60, 63, 64])
def test_rows_that_end_before_their_block(n):
    # gcc 12 multiplied by gathers that load nothing where masks are vectors
    x = torch.randn(63, n)
    y = torch.zeros_like(x)
    unit_rows_kernel[(8,)](x, y, 63, n, 64, 8)
    torch.testing.assert_close(y, torch.nn.functional.normalize(x, dim=1))
