"""Kernels printed as OpenCL C, on an OpenCL device: equal to those of the host."""

from __future__ import annotations

from ctypes import c_float, c_int32

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from tests.helpers.opencl_device import Device  # noqa: E402


@pytest.fixture(scope="module")
def device():
    try:
        return Device()
    except OSError as error:
        pytest.skip(str(error))


def run(device, kernel, grid, arguments, fuses=True, **constants):
    """Run a kernel on the device, and on copies on the host; return the tensors of both."""
    from isthmus_triton.analysis import Sharing
    from isthmus_triton.kernel import to_c
    from isthmus_triton.opencl import OPTIONS, OpenCL

    there = [each.clone() if isinstance(each, torch.Tensor) else each for each in arguments]
    values = [getattr(each, "value", each) for each in arguments]
    compiled = kernel[grid](*values, **constants, enable_fp_fusion=fuses)
    text = to_c(compiled.asm["ttir"], Sharing.NOTHING, OpenCL(fuses))
    device.run(text, OPTIONS, grid, there)
    return [
        (one, other) for one, other in zip(there, arguments, strict=True) if isinstance(one, torch.Tensor)
    ]


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8))
def test_sums(device, dtype):
    x, y = (torch.randn(1003) * 9).to(dtype), (torch.randn(1003) * 9).to(dtype)
    found = run(device, add_kernel, (8, 1, 1), [x, y, torch.zeros_like(x), c_int32(1003)], BLOCK=128)
    assert all(torch.equal(one, other) for one, other in found)


def test_a_pointer_is_an_offset_into_a_buffer(device):
    x = torch.randn(1024)
    run(device, add_kernel, (4, 1, 1), [x[:256], x[256:512], x[512:768], c_int32(256)], BLOCK=64)
    assert torch.equal(x[512:768], x[:256] + x[256:512])


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, values / tl.sum(values, 0), mask=at < columns)


def test_softmax(device):
    x = torch.randn(40, 781)
    (_, (one, other)) = run(
        device, softmax_kernel, (40, 1, 1), [x, torch.zeros_like(x), c_int32(781)], BLOCK=1024
    )
    torch.testing.assert_close(one, torch.softmax(x, 1))
    torch.testing.assert_close(one, other, rtol=1e-6, atol=0)


@triton.jit
def layer_norm_kernel(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    mean = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mean += tl.sum(tl.load(x + row * columns + at, mask=at < columns, other=0.0), 0)
    mean /= columns
    variance = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        centred = tl.where(
            at < columns, tl.load(x + row * columns + at, mask=at < columns, other=0.0) - mean, 0.0
        )
        variance += centred * centred
    scale = tl.rsqrt(tl.sum(variance, 0) / columns + eps)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < columns
        values = (tl.load(x + row * columns + at, mask=mask) - mean) * scale
        values = values * tl.load(weight + at, mask=mask) + tl.load(bias + at, mask=mask)
        tl.store(out + row * columns + at, values, mask=mask)


def test_layer_norm(device):
    x, weight, bias = torch.randn(30, 300), torch.randn(300), torch.randn(300)
    arguments = [x, weight, bias, torch.zeros_like(x), c_int32(300), c_float(1e-5)]
    *_, (one, other) = run(device, layer_norm_kernel, (30, 1, 1), arguments, BLOCK=128)
    torch.testing.assert_close(one, torch.nn.functional.layer_norm(x, (300,), weight, bias))
    torch.testing.assert_close(one, other)


@triton.jit
def matmul_kernel(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    a_at = a + rows[:, None] * k + inner[None, :]
    b_at = b + inner[:, None] * n + columns[None, :]
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        left = tl.load(a_at, mask=(rows[:, None] < m) & (start + inner[None, :] < k), other=0.0)
        right = tl.load(b_at, mask=(start + inner[:, None] < k) & (columns[None, :] < n), other=0.0)
        total = tl.dot(left, right, total)
        a_at += K
        b_at += K * n
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=mask)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("tile", ((32, 64, 32), (16, 16, 16), (2, 8, 4)))
def test_products(device, dtype, tile):
    m, n, k = 75, 90, 100
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    grid = (-(-m // tile[0]), -(-n // tile[1]), 1)
    arguments = [a, b, torch.zeros(m, n), c_int32(m), c_int32(n), c_int32(k)]
    *_, (one, other) = run(device, matmul_kernel, grid, arguments, **dict(zip("MNK", tile, strict=True)))
    torch.testing.assert_close(one, a.float() @ b.float(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@triton.jit
def histogram_kernel(x, counts, sums, most, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    value = tl.load(x + at, mask=mask, other=0)
    tl.atomic_add(counts + value, 1, mask=mask)
    tl.atomic_add(sums + value % 4, value.to(tl.float32), mask=mask)
    tl.atomic_max(most + value * 0, value.to(tl.int64), mask=mask)


def test_atomic_updates(device):
    x = torch.randint(0, 50, (5000,), dtype=torch.int32)
    counts, sums, most = torch.zeros(50, dtype=torch.int32), torch.zeros(4), torch.zeros(1, dtype=torch.int64)
    found = run(device, histogram_kernel, (40, 1, 1), [x, counts, sums, most, c_int32(5000)], BLOCK=128)
    assert torch.equal(found[1][0], torch.bincount(x, minlength=50).int())
    assert all(torch.equal(one, other) for one, other in found)


@triton.jit
def many_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    values = tl.sort(values)
    total = 0.0
    i = 0
    while i < n:
        values = tl.where(values > 0, tl.sqrt(tl.abs(values)), tl.sin(values))
        total += tl.sum(values, 0)
        i += 1
    if total > 0:
        values += tl.cumsum(values, 0)
    tl.store(out + at, values + tl.argmax(values, 0), mask=at % 7 != 0)


def test_sorts_scans_branches_and_functions(device):
    x = torch.randn(256)
    _, (one, other) = run(device, many_kernel, (1, 1, 1), [x, torch.zeros(256), c_int32(3)], False, BLOCK=256)
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@triton.jit
def asserting_kernel(x):
    tl.device_assert(tl.load(x) > 0, "positive")


@triton.jit
def half_kernel(x):
    tl.atomic_add(x, 1.0)


def test_what_opencl_c_has_not_is_refused_by_name(device):
    from isthmus_triton.refusals import Unsupported

    with pytest.raises(Unsupported, match="atomic operations on f16"):
        run(device, half_kernel, (1, 1, 1), [torch.ones(8, dtype=torch.float16)])
    with pytest.raises(Unsupported, match="a device assertion"):
        run(device, asserting_kernel, (1, 1, 1), [torch.ones(8)], debug=True, sanitize_overflow=False)
