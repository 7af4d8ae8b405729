"""Comparison of results with references, element by element, in units in the last place (ulp). Uses only NumPy.

The reference is float64 and the result is rounded, so a correctly rounded result is within half an ulp.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from isthmus.conformance import laws
from isthmus.conformance.arrays import Array
from isthmus.conformance.golden import Expected, Tolerance
from isthmus.opset import dtypes as dt
from isthmus.opset.operator import CHOSEN

# Upper bounds of the histogram's bins, in ulps; a last bin holds the rest, including NaN and infinity.
BINS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0)
_BOUNDS = np.array(BINS)


class Float(NamedTuple):
    """A floating dtype: significand digits, exponents of the smallest normal and the largest number, and so on."""

    precision: int
    lowest: int
    highest: int
    largest: float
    has_infinity: bool = True


FORMATS = {
    "float64": Float(53, -1022, 1023, float(np.finfo(np.float64).max)),
    "float32": Float(24, -126, 127, float(np.finfo(np.float32).max)),
    "float16": Float(11, -14, 15, 65504.0),
    "bfloat16": Float(8, -126, 127, 255 * 2.0**120),
    "float8_e4m3fn": Float(4, -6, 8, 448.0, False),
    "float8_e5m2": Float(3, -14, 15, 57344.0),
    "complex64": Float(24, -126, 127, float(np.finfo(np.float32).max)),
    "complex128": Float(53, -1022, 1023, float(np.finfo(np.float64).max)),
}
# Rounding error of the compute dtype: float32 for the halves.
EPS = {"float64": 2.0**-52, "complex128": 2.0**-52}
EPS_OF_FLOAT32 = 2.0**-23


@dataclass(frozen=True)
class Worst:
    """An element with its error in ulps and in tolerances, and the tolerance there."""

    index: tuple[int, ...]
    got: str
    expected: str
    ulps: float
    tolerances: float
    allowed: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """The verdict on one tensor.

    Attributes:
        problem: the problem in one line, or "".
        wrong: number of wrong elements.
        worst: the element with the largest error; None for correct exact results.
        histogram: number of elements in each bin of BINS and beyond; empty unless floating.
        first: the first wrong element.
        mask: which elements are wrong; None if none are.
    """

    problem: str = ""
    wrong: int = 0
    worst: Worst | None = None
    histogram: list[int] = field(default_factory=list)
    first: Worst | None = None
    mask: Array | None = field(default=None, repr=False, compare=False)


def judge(got: Array, expected: Expected, tolerance: Tolerance) -> Verdict:
    """Compare a result with the expected one."""
    if dt.name_of(got.dtype) != expected.dtype or got.shape != expected.shape:
        found = f"{dt.name_of(got.dtype)}{list(got.shape)}"
        return Verdict(f"is {found}, expected {expected.dtype}{list(expected.shape)}", got.size)
    if expected.law is not None:
        return Verdict(laws.broken_law(got, expected.law))
    if expected.reference is None or got.size == 0:
        return Verdict()
    if expected.dtype not in FORMATS:
        return _exact(got, expected.reference)
    if tolerance.ulp == 0 and tolerance.accumulate == 0:
        return _same_bits(got, expected.reference, expected.dtype)
    return _close(got, expected, tolerance)


def ulp_of(dtype: str, values: Array) -> Array:
    """Return the distance between neighbours of a dtype at finite values, float64."""
    form = FORMATS[dtype]
    size = np.minimum(np.maximum(np.abs(values), 2.0**form.lowest), form.largest)
    return np.asarray(np.ldexp(1.0, np.frexp(size)[1] - form.precision))


@np.errstate(all="ignore")
def rounded(values: Array, dtype: str) -> Array:
    """Round float64 values to a dtype, to nearest even, in one step (ml_dtypes goes through float32)."""
    if dtype in ("float64", "float32", "float16", "complex64", "complex128"):
        return values.astype(dt.DTYPES[dtype].numpy)
    form = FORMATS[dtype]
    finite = np.isfinite(values)
    step = ulp_of(dtype, np.where(finite, values, 0.0))
    near = np.where(finite, np.rint(np.where(finite, values, 0.0) / step) * step, values)
    near = np.where(finite & (near == 0), np.copysign(0.0, values), near)
    over = np.inf if form.has_infinity else np.nan
    near = np.where(np.abs(near) > form.largest, np.copysign(over, values), near)
    return near.astype(dt.DTYPES[dtype].numpy)


def differing(left: Array, right: Any) -> Array:
    """Return for each element whether the bits of two arrays of one dtype differ; flat, shape (size,)."""
    if not left.size:
        return np.zeros(0, np.bool_)
    different = _words(left) != _words(np.broadcast_to(right, left.shape))
    return different[:, 0] | different[:, -1]


def filled_elements(array: Array, byte: int) -> Array:
    """Return for each element whether all of its bytes equal a byte; flat, shape (size,)."""
    words = _words(array)
    same = words == int.from_bytes(bytes([byte]) * words.itemsize, "little")
    return same[:, 0] & same[:, -1]


def _words(array: Array) -> Array:
    """Return the bits of the elements, at least one, as unsigned integers: one each, two for complex128."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(f"u{min(flat.itemsize, 8)}").reshape(flat.size, -1)


def _exact(got: Array, reference: Array) -> Verdict:
    left, right = got, reference
    if got.dtype == np.bool_ and (got.view(np.uint8) > 1).any():  # True must be the byte 1
        left, right = got.view(np.uint8), reference.view(np.uint8)
    wrong = np.asarray(left != right)
    error = np.where(wrong, np.inf, 0.0)
    return _verdict(left, right, wrong, error, error)


def _same_bits(got: Array, reference: Array, dtype: str) -> Verdict:
    should = rounded(reference, dtype)
    wrong = differing(got, should).reshape(got.shape) & ~(np.isnan(got) & np.isnan(should))
    ulps = np.where(wrong, _ulps(got, reference, dtype), 0.0)
    return _verdict(got, reference, wrong, ulps, np.where(wrong, np.inf, 0.0), _histogram(ulps))


def _ulps(got: Array, reference: Array, dtype: str) -> Array:
    """Return the error in ulps; infinite if one of two different values is not finite."""
    wide = got.astype(reference.dtype)
    finite = np.isfinite(wide) & np.isfinite(reference)
    same = (wide == reference) | (np.isnan(wide) & np.isnan(reference))
    with np.errstate(all="ignore"):
        error = np.abs(wide - reference) / ulp_of(dtype, np.where(finite, np.abs(reference), 0.0))
    return np.where(same, 0.0, np.where(finite, error, np.inf))


@np.errstate(all="ignore")
def _close(got: Array, expected: Expected, tolerance: Tolerance) -> Verdict:
    reference = expected.reference
    assert reference is not None
    dtype, form = expected.dtype, FORMATS[expected.dtype]
    wide = got.astype(reference.dtype)
    size = np.abs(reference)
    finite, stays = np.isfinite(reference), np.isfinite(wide)
    ordinary = bool(finite.all() and stays.all())
    ulp = ulp_of(dtype, size if ordinary else np.where(finite, size, 0.0))
    allowed = tolerance.ulp * ulp
    if expected.magnitude is not None:
        magnitude = np.abs(expected.magnitude)
        magnitude = magnitude if np.isfinite(magnitude).all() else np.abs(np.nan_to_num(expected.magnitude))
        allowed = allowed + tolerance.accumulate * EPS.get(dtype, EPS_OF_FLOAT32) * magnitude
    error = np.abs(wide - reference)
    error = error if ordinary else np.where(finite, error, np.inf)
    ratio = np.where(error == 0, 0.0, error / allowed)
    if not ordinary:
        ratio[np.isnan(ratio) | (finite & ~stays)] = np.inf
        ratio = np.where(finite | _same_special(wide, reference), np.where(finite, ratio, 0.0), np.inf)
    # A reference near or beyond the largest number may round to infinity.
    limit = np.float64(form.largest) + np.ldexp(0.5, form.highest - (form.precision - 1))
    may_overflow = finite & (size + allowed >= limit)
    if may_overflow.any():
        beyond = np.inf if form.has_infinity else np.nan
        overflown = _same_special(
            wide, np.where(may_overflow, np.copysign(beyond, reference.real), reference)
        )
        ratio[may_overflow & overflown] = 0.0
    if expected.magnitude is None and tolerance.reason != CHOSEN.reason:
        ratio[_other_zero(got, reference)] = np.inf
    ulps = error / ulp
    if not ordinary:
        ulps = np.where((ratio == 0) & ~(finite & stays), 0.0, ulps)
    wrong = ratio > 1
    return _verdict(got, reference, wrong, ulps, ratio, _histogram(ulps), allowed)


def _same_special(left: Array, right: Array) -> Array:
    """Return whether two numbers are both NaN or the same infinity, per part of complex numbers."""
    same = np.asarray(np.isfinite(left) == np.isfinite(right))
    for a, b in ((left.real, right.real), (left.imag, right.imag))[: 1 + np.iscomplexobj(left)]:
        same &= (np.isnan(a) & np.isnan(b)) | (a == b) | (np.isfinite(a) & np.isfinite(b))
    return same


def _other_zero(got: Array, reference: Array) -> Array:
    """Return where both are zero with different signs. Sums do not fix the sign, nor do complex products."""
    if np.iscomplexobj(reference):
        return np.zeros(got.shape, np.bool_)
    return np.asarray((got == 0) & (reference == 0) & (np.signbit(got) != np.signbit(reference)))


def _histogram(ulps: Array) -> list[int]:
    bins = np.searchsorted(_BOUNDS, ulps.reshape(-1), side="left")  # NaN is in the last bin
    return [int(n) for n in np.bincount(bins, minlength=len(BINS) + 1)]


def _verdict(
    got: Array,
    reference: Array,
    wrong: Array,
    ulps: Array,
    ratio: Array,
    histogram: list[int] | None = None,
    allowed: Array | float = 0.0,
) -> Verdict:
    def element(position: int) -> Worst:
        index = np.unravel_index(position, ratio.shape)
        at = tuple(int(i) for i in index)
        bound = float(np.broadcast_to(allowed, ratio.shape)[index])
        numbers = float(ulps[index]), float(ratio[index]), bound
        return Worst(at, _number(got[index]), _number(reference[index]), *numbers)

    # The first of equal errors is reported.
    worst = element(int(np.argmax(ratio)))
    count = int(np.count_nonzero(wrong))
    problem = ""
    if count:
        where = f"[{', '.join(map(str, worst.index))}]"
        problem = (
            f"{count} of {got.size} elements are wrong; {where} is {worst.got}, expected {worst.expected}"
        )
        if histogram and np.isfinite(worst.ulps):
            problem += f" ({worst.ulps:.4g} ulp"
            problem += f", {worst.tolerances:.3g} x the tolerance)" if np.isfinite(worst.tolerances) else ")"
    if not count:
        return Verdict("", 0, worst if histogram else None, histogram or [])
    return Verdict(problem, count, worst, histogram or [], element(int(np.argmax(wrong))), wrong)


def _number(value: Any) -> str:
    number = value.item() if isinstance(value, np.generic) else value
    return f"{number:.9g}" if isinstance(number, float) else str(number)
