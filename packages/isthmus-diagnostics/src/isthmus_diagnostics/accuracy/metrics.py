"""Distances between two tensors, by their values or by their statistics."""

import math
from dataclasses import dataclass

import torch

from isthmus_diagnostics.accuracy.statistics import Statistics
from isthmus_diagnostics.debug.call import same_bits
from isthmus_diagnostics.debug.verdict import ulp_of

# Largest relative error that rounding and another order of sums explain, by the dtype of lowest precision.
TOLERANCES = {
    "float64": 1e-10,
    "float32": 1e-5,
    "float16": 4e-3,
    "bfloat16": 3e-2,
    "float8_e4m3fn": 0.25,
    "float8_e5m2": 0.5,
}
_BLOCK = 1 << 16  # elements


@dataclass(frozen=True)
class Distance:
    """The distance of two tensors.

    Attributes:
        error: relative error: of values the RMSE by the root mean square of the second tensor; of statistics the
            largest of theirs. 0 if equal, infinity if NaN and infinities are elsewhere or shapes differ.
        equal: whether the bits are equal, as far as the dump tells.
        by: ``values``, ``hash``, ``statistics`` or the reason why they cannot be compared.
        cosine, max_abs, max_rel, rmse: NaN without values.
        ulp_mean, ulp_max: in units in the last place of the lower precision.
        beyond_1e3, beyond_5e3: share of elements with a relative error above 1e-3 and 5e-3.
        same_special: whether NaN and infinities are in the same places.
        gathered: how the parts of each side were put together, or "".
    """

    error: float
    equal: bool
    by: str
    cosine: float = math.nan
    max_abs: float = math.nan
    max_rel: float = math.nan
    rmse: float = math.nan
    ulp_mean: float = math.nan
    ulp_max: float = math.nan
    beyond_1e3: float = math.nan
    beyond_5e3: float = math.nan
    same_special: bool = True
    gathered: str = ""


EQUAL = Distance(0.0, True, "values", 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def tolerance(*dtypes: str) -> float:
    """Return the tolerance for calls of these dtypes; integers have none."""
    return max((TOLERANCES.get(dtype, 0.0) for dtype in dtypes), default=0.0)


def of_values(a: torch.Tensor, b: torch.Tensor) -> Distance:
    """Compare values of one shape."""
    if same_bits(a, b) or not a.numel():
        return EQUAL
    if a.is_complex() or b.is_complex():
        a, b = (torch.view_as_real(t.to(torch.complex128)) for t in (a, b))
    if not (a.is_floating_point() or b.is_floating_point()):
        share = float((a != b).double().mean())
        return Distance(math.inf if share else 0.0, False, "values", beyond_1e3=share, beyond_5e3=share)
    coarse = _coarser_dtype(a.dtype, b.dtype)
    blocks = zip(a.reshape(-1).split(_BLOCK), b.reshape(-1).split(_BLOCK), strict=True)
    sums, most = (
        torch.stack(numbers) for numbers in zip(*(_block(x, y, coarse) for x, y in blocks), strict=True)
    )
    squares, x_squares, y_squares, product, ulps, beyond_1e3, beyond_5e3, misplaced = sums.sum(0).tolist()
    max_abs, max_rel, ulp_max = most.amax(0).tolist()
    count, size, norms = a.numel(), math.sqrt(max(x_squares, y_squares)), math.sqrt(x_squares * y_squares)
    bad = misplaced > 0
    return Distance(
        math.inf if bad else (math.sqrt(squares) / size if size else 0.0),
        False,
        "values",
        cosine=product / norms if norms else math.nan,
        max_abs=max_abs,
        max_rel=max_rel,
        rmse=math.sqrt(squares / count),
        ulp_mean=ulps / count,
        ulp_max=ulp_max,
        beyond_1e3=beyond_1e3 / count,
        beyond_5e3=beyond_5e3 / count,
        same_special=not bad,
    )


def _block(a: torch.Tensor, b: torch.Tensor, coarse: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sums and maxima over a few elements: a block stays in the cache through all the passes."""
    x, y = a.double(), b.double()
    finite = x.isfinite() & y.isfinite()
    misplaced = finite.logical_not() & (x != y) & ~(x.isnan() & y.isnan())
    x, y = x.where(finite, 0.0), y.where(finite, 0.0)
    difference = (x - y).abs()
    relative = difference / y.abs().clamp_min(torch.finfo(coarse).tiny)
    ulps = difference / ulp_of(coarse, y)
    sums = (
        difference.dot(difference), x.dot(x), y.dot(y), x.dot(y), ulps.sum(),
        (relative > 1e-3).sum(), (relative > 5e-3).sum(), misplaced.sum(),
    )  # fmt: skip
    return torch.stack([each.double() for each in sums]), torch.stack(
        [difference.max(), relative.max(), ulps.max()]
    )


def _coarser_dtype(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    floats = [dtype for dtype in (a, b) if dtype.is_floating_point]
    return max(floats, key=lambda dtype: torch.finfo(dtype).eps)


def of_statistics(a: Statistics, b: Statistics, count: int, dtypes: tuple[str, str]) -> Distance:
    """Compare the statistics of two tensors with `count` elements."""
    if a.hash and b.hash and dtypes[0] == dtypes[1]:
        if a.hash == b.hash:
            return Distance(0.0, True, "hash", max_abs=0.0)
        return Distance(_relative_difference(a, b, count), False, "hash")
    if (a.nans, a.infinities) != (b.nans, b.infinities):
        return Distance(math.inf, False, "statistics", same_special=False)
    error = _relative_difference(a, b, count)
    return Distance(error, error == 0, "statistics")


def of_means(a: Statistics, b: Statistics, count: int) -> Distance:
    """Compare the means alone, relative to the root mean square of one element."""
    if (a.nans, a.infinities) != (b.nans, b.infinities):
        return Distance(math.inf, False, "means", same_special=False)
    root = max(a.norm, b.norm) / math.sqrt(max(count, 1))
    return Distance(_quotient(abs(a.mean - b.mean), root), False, "means")


def _relative_difference(a: Statistics, b: Statistics, count: int) -> float:
    if (a.nans, a.infinities) != (b.nans, b.infinities):
        return math.inf
    if math.isnan(a.norm) or math.isnan(b.norm):
        return 0.0 if math.isnan(a.norm) and math.isnan(b.norm) else math.inf
    largest = max(abs(a.min), abs(a.max), abs(b.min), abs(b.max))
    root = max(a.norm, b.norm) / math.sqrt(max(count, 1))
    errors = [
        _quotient(max(abs(a.min - b.min), abs(a.max - b.max)), largest),
        _quotient(abs(a.norm - b.norm), max(a.norm, b.norm)),
        _quotient(abs(a.mean - b.mean), root),
    ]
    return max(errors)


def _quotient(difference: float, size: float) -> float:
    return difference / size if size and math.isfinite(size) else 0.0
