"""Functions that are the package's own, against NumPy's of more digits: at most 2 units in the last place."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
np = pytest.importorskip("numpy")
tl = pytest.importorskip("triton.language")
mpmath = pytest.importorskip("mpmath")
from triton.language.extra.cuda import libdevice  # noqa: E402

SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.0,
    3.0,
    -3.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-40,
    5e-324,
    88.8,
    -103.9,
    -745.2,
)
FUNCTIONS = (np.exp, np.exp2, np.log, np.log2)


@triton.jit
def functions_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < n
    values = tl.load(x + at, mask=mask)
    tl.store(out + at, tl.exp(values), mask=mask)
    tl.store(out + n + at, tl.exp2(values), mask=mask)
    tl.store(out + 2 * n + at, tl.log(values), mask=mask)
    tl.store(out + 3 * n + at, tl.log2(values), mask=mask)


@triton.jit
def binary_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < n
    values, others = tl.load(x + at, mask=mask), tl.load(y + at, mask=mask)
    tl.store(out + at, libdevice.pow(values, others), mask=mask)
    tl.store(out + n + at, tl.erf(values), mask=mask)
    tl.store(out + 2 * n + at, libdevice.tanh(values), mask=mask)


def numbers(dtype, seed):
    """Of all magnitudes, and near 1."""
    draw = np.random.default_rng(seed)
    wide = draw.standard_normal(1500) * 10.0 ** draw.uniform(-38, 3, 1500)
    return np.concatenate(
        [wide, 2.0 ** draw.uniform(-1, 1, 500), draw.uniform(-100, 100, 500), SPECIAL]
    ).astype(dtype)


def check(found, expected):
    right = expected.astype(found.dtype)
    unknown = np.isnan(right)
    assert np.array_equal(np.isnan(found), unknown)
    ends = ~np.isfinite(right) & ~unknown
    assert np.array_equal(found[ends], right[ends])
    rest = np.isfinite(right)
    assert (abs(found[rest] - expected[rest]) <= 2 * np.spacing(abs(right[rest]))).all()


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_exponentials_and_logarithms(dtype):
    x = numbers(dtype, 1)
    out = torch.empty(4, x.size, dtype=getattr(torch, np.dtype(dtype).name))
    functions_kernel[(1,)](torch.from_numpy(x), out, x.size, BLOCK=4096)
    wide = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        for found, function in zip(out.numpy(), FUNCTIONS, strict=True):
            check(found, function(wide))


@triton.jit
def periodic_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.sin(values), mask=at < n)
    tl.store(out + n + at, tl.cos(values), mask=at < n)


def test_sine_and_cosine_of_all_magnitudes():
    turns = np.arange(1, 700) * np.pi / 2
    x = np.concatenate([numbers(np.float32, 4), turns, -turns * 2.0 ** np.arange(699) % 1e38, [3e38, -1e30]])
    x = x.astype(np.float32)
    out = torch.empty(2, x.size)
    periodic_kernel[(1,)](torch.from_numpy(x), out, x.size, BLOCK=4096)
    with np.errstate(all="ignore"):
        check(out[0].numpy(), np.sin(x.astype(np.longdouble)))
        check(out[1].numpy(), np.cos(x.astype(np.longdouble)))


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_powers_error_functions_and_tangents(dtype):
    x, y = numbers(dtype, 2), numbers(dtype, 3)[::-1].copy()
    pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL], dtype=dtype)
    near = np.random.default_rng(5).uniform(-6, 6, 500).astype(dtype)
    x, y = np.concatenate([x, pairs[:, 0], near]), np.concatenate([y, pairs[:, 1], near[::-1] * 100])
    out = torch.empty(3, x.size, dtype=getattr(torch, np.dtype(dtype).name))
    binary_kernel[(1,)](torch.from_numpy(x), torch.from_numpy(y), out, x.size, BLOCK=4096)
    wide = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        check(out[0].numpy(), np.power(wide, y.astype(np.longdouble)))
        check(out[2].numpy(), np.tanh(wide))
    exact = np.array([np.longdouble(mpmath.nstr(mpmath.erf(mpmath.mpf(float(each))), 25)) for each in x])
    check(out[1].numpy(), exact)
