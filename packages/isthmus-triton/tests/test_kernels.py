"""Kernels against PyTorch: every kind of statement, odd sizes, all dtypes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
from triton.language.extra.cuda import libdevice  # noqa: E402

DEVICES = ("cpu", "chip")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def close(found, expected, tolerance=2e-6):
    assert found.shape == expected.shape
    found, expected = found.cpu().double(), expected.cpu().double()
    assert (found - expected).abs().max() <= tolerance * max(1.0, expected.abs().max().item())


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", (*FLOATS, torch.int8, torch.int16, torch.int32, torch.int64))
def test_sums_are_those_of_pytorch(device, dtype):
    x, y = (torch.randn(1003, device=device).mul(50).to(dtype) for _ in range(2))
    out = torch.zeros(1100, dtype=dtype, device=device)
    add_kernel[(triton.cdiv(1003, 128),)](x, y, out, 1003, BLOCK=128)
    assert torch.equal(out[:1003], x + y) and not out[1003:].any()


@triton.jit
def softmax_kernel(x, out, stride, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    values = values - tl.max(values, 0)
    powers = tl.exp(values)
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), mask=at < columns)


@pytest.mark.parametrize("columns", (1, 5, 781, 1024))
def test_softmax_of_rows_with_gaps(columns):
    x = torch.randn(37, columns + 3)[:, :columns]
    out = torch.empty(37, columns)
    softmax_kernel[(37,)](x, out, x.stride(0), columns, BLOCK=triton.next_power_of_2(columns))
    close(out, x.softmax(1))


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = (tl.program_id(0) * BM + tl.arange(0, BM)) % M
    columns = (tl.program_id(1) * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    left, right = a + rows[:, None] * K + inner[None, :], b + inner[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        rest = K - k * BK
        x = tl.load(left, mask=inner[None, :] < rest, other=0.0)
        y = tl.load(right, mask=inner[:, None] < rest, other=0.0)
        total = tl.dot(x, y, total)
        left += BK
        right += BK * N
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    within = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total, mask=within)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16))
@pytest.mark.parametrize("blocks", ((16, 16, 16), (64, 32, 32), (32, 64, 8)))
def test_products_of_odd_sizes(dtype, blocks):
    m, n, k = 67, 91, 53
    a, b, c = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype), torch.empty(m, n)
    matmul_kernel[(triton.cdiv(m, blocks[0]), triton.cdiv(n, blocks[1]))](a, b, c, m, n, k, *blocks)
    close(c, a.double() @ b.double())


@triton.jit
def shared_factor_kernel(x, y, z, out, copy, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    left, one, other = tl.load(x + at), tl.load(y + at), tl.load(z + at)
    tl.store(out + at, tl.dot(left, one) + tl.dot(left, other))
    tl.store(copy + at, other + other)


def test_factors_of_several_products():
    x, y, z = torch.randn(3, 32, 32).bfloat16()
    out, copy = torch.empty(32, 32), torch.empty_like(z)
    shared_factor_kernel[(1,)](x, y, z, out, copy, 32)
    close(out, x.double() @ y.double() + x.double() @ z.double())
    assert torch.equal(copy, z + z)


@triton.jit
def edges_kernel(x, out, n, m, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=-1.5)
    tl.store(out + at, values + tl.load(x + at, mask=(at < m) & (at > 2), other=7.0), mask=at < 300)


@pytest.mark.parametrize("n", (-5, 0, 1, 64, 200, 255, 256, 301))
def test_masks_of_leading_elements(n):
    """Masks may end before, at, behind or within a block, or a strip of it."""
    x, out = torch.randn(512), torch.zeros(512)
    edges_kernel[(2,)](x, out, n, 2 * n, BLOCK=256)
    at = torch.arange(512)
    expected = torch.where(at < n, x, -1.5) + torch.where((at < 2 * n) & (at > 2), x, 7.0)
    assert torch.equal(out, torch.where(at < 300, expected, 0.0))


@triton.jit
def extrema_kernel(x, out, rows, BLOCK: tl.constexpr):
    for row in range(rows):
        values = tl.load(x + row * BLOCK + tl.arange(0, BLOCK))
        tl.store(out + row * 3, tl.max(values, 0))
        tl.store(out + row * 3 + 1, tl.min(values, 0))
        tl.store(out + row * 3 + 2, tl.sum(values, 0))


@pytest.mark.parametrize("block", (16, 128, 4096))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.int32, torch.int64))
def test_reductions_of_rows_with_special_values(block, dtype):
    x = torch.randn(4, block).mul(100).to(dtype)
    if dtype.is_floating_point:
        x[1], x[2, 3], x[3] = float("nan"), float("nan"), -float("inf")
    out = torch.empty(4, 3, dtype=dtype)
    extrema_kernel[(1,)](x, out, 4, block)
    high = x.clone()
    low, no_number = x.clone(), x != x
    if dtype.is_floating_point:
        high[no_number], low[no_number] = -float("inf"), float("inf")
    for found, wide, each in ((out[:, 0], high.amax(1), x), (out[:, 1], low.amin(1), x)):
        right = torch.where(no_number.all(1), each[:, 0], wide)
        assert torch.equal(found.nan_to_num(nan=7), right.nan_to_num(nan=7))
    sums = x.double().sum(1)
    assert torch.equal(sums.isnan(), out[:, 2].double().isnan())
    close(out[:, 2][sums.isfinite()], sums[sums.isfinite()])


@triton.jit
def columns_kernel(x, sums, places, running, sorted, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    values = tl.load(x + at)
    tl.store(sums + tl.arange(0, COLUMNS), tl.sum(values, 0))
    tl.store(sums + COLUMNS + tl.arange(0, ROWS), tl.max(values, 1))
    tl.store(places + tl.arange(0, ROWS), tl.argmin(values, 1))
    tl.store(running + at, tl.cumsum(values, 0))
    tl.store(sorted + at, tl.sort(values, 1))


@pytest.mark.parametrize("shape", ((4, 8), (32, 64), (64, 2)))
def test_reductions_scans_and_sorting(shape):
    rows, columns = shape
    x = torch.randn(shape)
    sums, places = torch.empty(rows + columns), torch.empty(rows, dtype=torch.int32)
    running, ordered = torch.empty(shape), torch.empty(shape)
    columns_kernel[(1,)](x, sums, places, running, ordered, rows, columns)
    close(sums, torch.cat([x.sum(0), x.max(1).values]))
    assert places.tolist() == x.argmin(1).tolist()
    close(running, x.cumsum(0))
    assert torch.equal(ordered, x.sort(1).values)


@triton.jit
def reshaping_kernel(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    tl.store(out + at, tl.reshape(tl.trans(tl.reshape(values, (4, N // 4))), (N,)))
    low, high = tl.split(tl.join(values, -values))
    tl.store(out + N + at, low * high)
    tl.store(out + 2 * N + at, tl.gather(values, N - 1 - at, 0))
    tl.store(out + 3 * N + tl.arange(0, 2 * N), tl.cat(values, values + 1, can_reorder=True))


def test_elements_that_move():
    x, out = torch.randn(32), torch.empty(160)
    reshaping_kernel[(1,)](x, out, 32)
    expected = (x.view(4, 8).t().reshape(-1), -(x * x), x.flip(0), x, x + 1)
    assert torch.equal(out, torch.cat(expected))


@triton.jit
def control_kernel(out, n, limit):
    total, step = 0, 0
    vector = tl.zeros((16,), tl.float32)
    while step < n:
        total += step * step
        vector += step
        if total > limit:
            vector *= 2.0
        else:
            total += 1
        step += 1
    for i in range(n, 0, -2):
        total -= i
    if n > 100:
        tl.store(out, -1.0)
        return
    tl.store(out, total.to(tl.float32))
    tl.store(out + 1 + tl.arange(0, 16), vector)


@pytest.mark.parametrize("n", (0, 1, 9, 101))
def test_loops_branches_and_early_returns(n):
    out = torch.zeros(17)
    control_kernel[(1,)](out, n, 20)
    total, value = 0, 0.0
    for step in range(n):
        total, value = total + step * step, value + step
        if total > 20:
            value *= 2
        else:
            total += 1
    for i in range(n, 0, -2):
        total -= i
    assert out.tolist() == ([-1.0] + [0.0] * 16 if n > 100 else pytest.approx([total] + [value] * 16))


@triton.jit
def atomic_kernel(out, integers, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.atomic_add(out + at % 3, 1.0, mask=mask)
    tl.atomic_max(integers + at * 0, at, mask=mask)
    tl.atomic_xor(integers + 1 + at * 0, at, mask=mask)
    tl.atomic_cas(integers + 2, 0, tl.program_id(0) + 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_atomics_of_many_programs(dtype):
    out, integers = torch.zeros(3, dtype=dtype), torch.zeros(3, dtype=torch.int32)
    atomic_kernel[(13,)](out, integers, 200, BLOCK=16)
    assert out.tolist() == [67, 67, 66]
    bits = 0
    for i in range(200):
        bits ^= i
    assert integers[:2].tolist() == [199, bits] and 1 <= integers[2] <= 13


@triton.jit
def functions_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < n
    values = tl.load(x + at, mask=mask)
    tl.store(out + at, tl.exp(values), mask=mask)
    tl.store(out + n + at, tl.log(tl.abs(values)), mask=mask)
    tl.store(out + 2 * n + at, tl.exp2(values), mask=mask)
    tl.store(out + 3 * n + at, libdevice.tanh(values), mask=mask)
    tl.store(out + 4 * n + at, libdevice.isnan(values).to(tl.float32), mask=mask)
    tl.store(out + 5 * n + at, libdevice.round(values), mask=mask)


def test_functions_are_exact_to_two_units():
    special = torch.tensor(
        [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, 88.8, -103.9, 127.9, -149.5]
    )
    x = torch.cat([torch.randn(4000) * 30, special])
    n, out = x.numel(), torch.empty(6, x.numel())
    functions_kernel[(1,)](x, out, n, BLOCK=4096)
    wide = x.double()
    expected = (wide.exp(), wide.abs().log(), wide.exp2(), wide.tanh(), wide.isnan().double())
    for found, each in zip(out, expected, strict=False):
        right = each.float()
        assert torch.equal(found.isnan(), right.isnan())
        unit = torch.nextafter(right.abs(), torch.tensor(float("inf"))) - right.abs()
        far = (found.double() - each).abs() > 2 * unit.double()
        assert not (far & right.isfinite()).any()
        assert torch.equal(found[right.isinf()], right[right.isinf()])
    half = x - x.trunc()
    assert torch.equal(out[5].nan_to_num(), (x.trunc() + half.sign() * (half.abs() >= 0.5)).nan_to_num())


@triton.jit
def reversing_kernel(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + BLOCK - 1 - at, tl.load(x + at))


@triton.jit
def doubling_kernel(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * 2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shift", (-3, -1, 0, 1, 100))
def test_arguments_may_overlap(device, shift):
    """A program reads its block before it writes, wherever the arguments lie."""
    memory = torch.arange(600.0, device=device)
    before = memory.clone()
    doubling_kernel[(1,)](memory[200:], memory[200 + shift :], 256)
    expected = before.clone()
    expected[200 + shift : 456 + shift] = before[200:456] * 2
    assert torch.equal(memory, expected)
    reversing_kernel[(1,)](memory[200:], memory[200 + shift :], 256)
    after = expected.clone()
    after[200 + shift : 456 + shift] = expected[200:456].flip(0)
    assert torch.equal(memory, after)


@triton.jit
def wrapping_kernel(x, out, start, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + (at * stride + start), mask=at % 2 == 0, other=-1.0))


@pytest.mark.parametrize(("stride", "sign"), ((1, 1), (-(2**31) + 1, 1), (2**31 - 1, -1)))
def test_integers_of_addresses_wrap_around(stride, sign):
    x, out, at = torch.arange(1100.0), torch.zeros(512), torch.arange(512)
    wrapping_kernel[(2,)](x[550:], out, -7, stride, 256)
    assert torch.equal(out, torch.where(at % 2 == 0, x[543 + sign * at], -1.0))


@triton.jit
def block_pointer_kernel(x, y, rows, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    source = tl.make_block_ptr(x, (rows, columns), (columns, 1), (start, 0), (BLOCK, BLOCK), (1, 0))
    to = tl.make_tensor_descriptor(y, [rows, columns], [columns, 1], [BLOCK, BLOCK])
    for k in range(0, tl.cdiv(columns, BLOCK)):
        to.store([start, k * BLOCK], tl.load(source, boundary_check=(0, 1), padding_option="zero") + 1)
        source = tl.advance(source, (0, BLOCK))


@pytest.mark.skipif(triton.__version__ >= "3.9", reason="Triton 3.9 removed block pointers")
def test_block_pointers_and_descriptors():
    x, y = torch.randn(100, 72), torch.zeros(100, 72)
    block_pointer_kernel[(4,)](x, y, 100, 72, 32)
    assert torch.equal(y, x + 1)


@triton.jit
def random_kernel(out, seed, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.rand(seed, at))
    tl.store(out + BLOCK + at, tl.randn(seed, at))


def test_random_numbers_have_their_distribution():
    out = torch.empty(2, 4096)
    random_kernel[(1,)](out, 7, 4096)
    assert out[0].min() >= 0 and out[0].max() < 1 and abs(out[0].mean() - 0.5) < 0.02
    assert abs(out[1].mean()) < 0.05 and abs(out[1].std() - 1) < 0.05


@triton.jit
def narrow_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < n
    value = tl.load(x + at, mask=mask)
    tl.store(out + at, value.to(tl.float16), mask=mask)
    tl.store(out + n + at, value.to(tl.bfloat16).to(tl.float16), mask=mask)


def test_conversions_round_to_the_nearest():
    x = torch.cat(
        [torch.randn(2000) * 10 ** torch.randn(2000), torch.tensor([65519.9, 65520.0, 6e-8, 3e-8, -0.0])]
    )
    out = torch.empty(2, x.numel(), dtype=torch.float16)
    narrow_kernel[(1,)](x, out, x.numel(), BLOCK=4096)
    assert torch.equal(out[0], x.half()) and torch.equal(out[1], x.bfloat16().half())


@triton.jit
def walsh_kernel(x, out, N: tl.constexpr, STAGES: tl.constexpr):
    at = tl.arange(0, N)
    y = tl.load(x + at)
    for stage in tl.static_range(STAGES):
        a, b = tl.split(tl.permute(tl.reshape(y, (N >> (stage + 1), 2, 1 << stage)), (0, 2, 1)))
        y = tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 2, 1)), (N,))
    tl.store(out + at, y)


def test_the_c_of_halves_of_halves_stays_short():
    """A Walsh-Hadamard transform: each stage reads both halves of the one before."""
    x, out = torch.randint(-9, 9, (512,)).float(), torch.empty(512)
    kernel = walsh_kernel[(1,)](x, out, 512, 9)
    matrix = torch.ones(1, 1)
    for _ in range(9):
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), matrix)
    assert torch.equal(out, matrix @ x)
    assert len(kernel.asm["c"]) < 30_000


@triton.jit
def float8_kernel(x, y, wide, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    narrow = tl.load(x + at, mask=at < n).to(y.dtype.element_ty)
    tl.store(y + at, narrow, mask=at < n)
    tl.store(wide + at, narrow.to(tl.float32), mask=at < n)


@pytest.mark.parametrize("name", ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"))
def test_numbers_of_8_bits_round_to_the_nearest_and_saturate(name):
    dtype = getattr(torch, name)
    every = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    x = torch.cat(
        [every, torch.randn(9000) * torch.randn(9000).mul(4).exp(), torch.tensor([torch.inf, -0.0])]
    )
    y, wide = torch.empty(x.numel(), dtype=dtype), torch.empty(x.numel())
    float8_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, wide, x.numel(), 1024)
    largest = torch.finfo(dtype).max
    expected = x.clamp(-largest, largest).to(dtype)
    assert torch.equal(y.view(torch.uint8)[~x.isnan()], expected.view(torch.uint8)[~x.isnan()])
    assert torch.equal(y.float().isnan(), x.isnan()) and torch.equal(
        wide.nan_to_num(), y.float().nan_to_num()
    )


@triton.jit
def scaled_kernel(a, a_scale, b, c, K: tl.constexpr):
    m, k = tl.arange(0, 16), tl.arange(0, K)
    left = tl.load(a + m[:, None] * (K // 2) + tl.arange(0, K // 2)[None, :])
    scale = tl.load(a_scale + m[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    right = tl.load(b + k[:, None] * 16 + m[None, :])
    tl.store(c + m[:, None] * 16 + m[None, :], tl.dot_scaled(left, scale, "e2m1", right, None, "bf16"))


def test_products_of_scaled_formats():
    a = torch.randint(0, 256, (16, 32), dtype=torch.uint8)
    scale = torch.randint(120, 134, (16, 2), dtype=torch.uint8)
    b, c = torch.randn(64, 16).bfloat16(), torch.empty(16, 16)
    scaled_kernel[(1,)](a, scale, b, c, 64)
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = torch.cat([values, -values]).double()
    left = torch.stack([values[(a & 15).long()], values[(a >> 4).long()]], -1).view(16, 64)
    close(c, (left * 2.0 ** (scale.double() - 127).repeat_interleave(32, 1)) @ b.double())


@triton.jit(noinline=True)
def early_return(p, n):
    tl.store(p, n)
    if n > 3:
        return n, tl.arange(0, 16) * n
    return n * 2, tl.arange(0, 16)


@triton.jit
def larger_or_double(a, b):
    if a > b:
        return a
    return b * 2


@triton.jit
def calling_kernel(p, out, n):
    number, block = early_return(p, n)
    at = tl.arange(0, 16)
    tl.store(out + at, tl.map_elementwise(larger_or_double, tl.load(out + at) + block, number.to(tl.float32)))


@pytest.mark.parametrize("n", (2, 5))
def test_functions_that_are_called(n):
    p, out = torch.zeros(1, dtype=torch.int32), torch.randn(16)
    number, block = (n, torch.arange(16) * n) if n > 3 else (n * 2, torch.arange(16))
    expected = out + block
    calling_kernel[(1,)](p, out, n)
    assert torch.equal(out, torch.where(expected > number, expected, 2.0 * number)) and p.item() == n


@triton.jit
def descriptor_kernel(source, to):
    at = tl.program_id(0) * 8
    to.store([at, 0], source.load([at, 1]) * 2)


def test_descriptors_made_on_the_host():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, y = torch.randn(13, 20), torch.zeros(13, 16)
    descriptor_kernel[(2,)](
        TensorDescriptor.from_tensor(x, [8, 16]), TensorDescriptor.from_tensor(y, [8, 16])
    )
    assert torch.equal(y, x[:, 1:17] * 2)
