"""Calls of powers and clamps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import ANY, denormals, elementwise, points
from isthmus.opset.sampling import Array, Case, Maker, place


def powers(m: Maker) -> Iterator[Case]:
    """Samples of powers with a number as exponent."""
    if not m.is_float:
        yield from _whole_powers_of_numbers(m)
        return
    for exponent in (2, 3, 0.5, -1.0, 1.7, 0, 1, -2, -0.5, -1.7, 7.25, 0.25):
        low = 0.05 if isinstance(exponent, float) or exponent < 0 else -2.7
        # The square root of -0.0 is -0.0, its power 0.0; both are used for 0.5: no case with -0.0 may derive of it.
        kind = "special" if exponent in (0.5, -0.5) else "contiguous"
        yield m.case(kind, m.tensor(3, 29, low=low), exponent)
    for exponent in (-1, -3, 4, 5.0, -2.0, 0.0):  # whole ones are defined for negative bases
        yield m.case("special", m.values([-2.5, -1.0, -0.375, 0.25, 1.0, 3.0]), exponent)
    for exponent in (0.5, 2, 3, 0):
        zero = 0.0 if exponent == 0.5 else -0.0
        yield m.case("special", m.values([0.0, zero, 1.0, 4.0]), exponent)
        infinite = [math.inf, math.nan] if exponent == 0.5 else [math.inf, -math.inf, math.nan]
        yield m.case("special", m.values([*infinite, 1.0]), exponent)
    yield m.case("strided", m.tensor(5, 13, layout="transposed"), 2, model="llama")
    yield m.case("strided", m.tensor(5, 13, layout="sliced"), 3)
    yield m.case("zero-size", m.tensor(0, 3), 2)
    yield m.case("0-dim", m.tensor(), 2)
    yield m.case("large", m.tensor(3, 1371), 2, model="llama")


def power_base(m: Maker) -> Iterator[Case]:
    """Samples of powers of a number."""
    if not m.is_float:
        yield from _whole_powers_of_a_number(m)
        return
    for base in (2.0, 10000.0, 0.5, 3):
        yield m.case("contiguous", base, m.tensor(3, 29, low=-1, high=1), model="llama")
    yield m.case("strided", 10000.0, m.tensor(5, 13, low=-1, high=1, layout="transposed"))
    yield m.case("special", -2.0, m.values([-3.0, 0.0, 2.0, 5.0, 1.0, -1.0]))  # whole exponents
    yield m.case("special", 0, m.values([0.0, 0.5, 2.0, 3.0, *denormals(m, 1).view.astype(float)]))
    yield m.case("special", 2.0, _limits_of_powers(m))
    if m.dtype in ("float32", "float64"):
        yield m.case("special", -1, m.values([70_001.0, 65_505.0, -3.0, 2.0]))
    yield m.case("special", 1, m.values([-900.0, 0.0, 0.5, 900.0]))
    yield m.case("zero-size", 2.0, m.tensor(0, 3))
    yield m.case("0-dim", 2.0, m.tensor())


def _whole_powers_of_numbers(m: Maker) -> Iterator[Case]:
    """Powers of integers with a number as exponent, which PyTorch refuses below 0; most of them overflow."""
    for exponent in (2, 3, 0, 1, 5, 8, 31, 100):
        yield m.case("contiguous", m.tensor(3, 29), exponent)
    yield m.case("special", _whole_bases(m), 7)
    yield m.case("strided", m.tensor(5, 13, layout="transposed"), 2)
    yield m.case("strided", m.tensor(5, 13, layout="sliced"), 3)
    yield m.case("zero-size", m.tensor(0, 3), 2)
    yield m.case("0-dim", m.tensor(), 2)
    yield m.case("large", m.tensor(3, 1371), 2)


def _whole_powers_of_a_number(m: Maker) -> Iterator[Case]:
    """Powers of a number with integers as exponents, also below 0."""
    for base in (3, 2, 1, 0, *(() if m.kind_of_dtype == "uint" else (-3, -1))):
        yield m.case("contiguous", base, m.tensor(3, 29))
    yield m.case("strided", 3, m.tensor(5, 13, layout="transposed"))
    yield m.case("special", 5, _whole_bases(m))
    yield m.case("zero-size", 2, m.tensor(0, 3))
    yield m.case("0-dim", 2, m.tensor())


def _whole_bases(m: Maker) -> Array:
    """Integers up to the limits of the dtype, of which float32 and float64 lose digits."""
    info = np.iinfo(dt.DTYPES[m.dtype].numpy)
    far = [int(info.max) >> shift for shift in (0, 1, 3, 5)]
    values = [0, 1, 2, 3, 11, *far, *[-each for each in (1, 2, 3, 11, *far) if info.min < 0], int(info.min)]
    return place(np.array(values, info.dtype))


def whole_pairs(m: Maker) -> Iterator[Case]:
    """Pairs of integers as base and exponent, which may be below 0."""
    if m.is_float:
        return
    signs = (-1, 1) if m.kind_of_dtype != "uint" else (1,)
    base = [sign * each for sign in signs for each in (1, 2, 3, 7, 10) for _ in range(7)]
    exponent = [0, 1, 2, 3, 63, *([-1, -2] if len(signs) > 1 else [4, 9])]
    yield m.case("special", m.values(base), m.values(np.resize(exponent, len(base))))


def _limits_of_powers(m: Maker) -> Array:
    """Exponents of 2 whose powers are denormal, though far from the least number, and beyond float16."""
    least = math.log2(float(ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy).smallest_subnormal))
    return m.values([least + 5, -2.0, 20.0])


def far_powers(m: Maker) -> Iterator[Case]:
    """Samples of powers that are denormal, or beyond float16, and of denormal numbers."""
    if not m.is_float:
        return
    small = denormals(m, 2).view.astype(float)
    base = [70_000.0, 70_000.0, *small, small[0]]
    yield m.case("special", m.values(base), m.values([1.0, -1.0, 1.0, 1.0, 0.5]))
    if m.dtype != "float16":  # even exponents beyond 32 bits
        yield m.case("special", m.values([-1.0, -1.0]), m.values([2.0**31, 2.0**40]))


_WHOLE_POWERS = points(
    [-2.0, -2.0, -0.5, -1.0, -1.0, 0.0, 0.0, -0.0, 3.0, 1.0, -2.0, 4.0, 4.0, math.nan, 1.0],
    [3.0, -3.0, 4.0, -5.0, 0.0, 0.0, 2.0, 3.0, -0.0, -900.0, 8.0, -0.5, 0.5, 0.0, math.nan],
)


def whole_powers(m: Maker) -> Iterator[Case]:
    """Powers of floats that are whole numbers, and of NaN."""
    if m.is_float:
        yield from _WHOLE_POWERS(m)


def clamps(m: Maker) -> Iterator[Case]:
    """Samples of clamps to numbers."""
    low, high = (-0.75, 1.25) if m.is_float else (3, 7)
    yield from elementwise(ANY, min=low, max=high)(m)
    yield m.case("contiguous", m.tensor(3, 29), min=low)
    yield m.case("contiguous", m.tensor(3, 29), max=high)
    yield m.case("contiguous", m.tensor(3, 29), min=high, max=low)
    if m.is_float:
        special = [float("nan"), float("inf"), -float("inf"), -0.0, 2.0]
        yield m.case("special", m.values(special), min=low)
        yield m.case("special", m.values(special), max=high)
    if m.dtype in ("int32", "int64"):
        yield m.case("special", m.values([2**24 + i for i in range(7)]), min=2**24 + 1, max=2**24 + 5)


def low_bound(m: Maker) -> Iterator[Case]:
    """Lower bounds that floats, or zeros, lose."""
    if m.is_float:
        yield m.case("special", m.values([-0.0, 0.0, -3.0, 5.0]), -2)
    if m.dtype in ("int32", "int64"):
        yield m.case("special", m.values([2**24 + i for i in range(7)]), 2**24 + 1)


def large_bound(m: Maker) -> Iterator[Case]:
    """Upper bounds that floats lose."""
    if m.dtype in ("int32", "int64"):
        yield m.case("special", m.values([2**24 + i for i in range(7)]), 2**24 + 5)


def scalar_bounds(name: str) -> Any:
    """Samples of one bound, on both sides of 0."""

    def samples(m: Maker) -> Iterator[Case]:
        for value in (-0.6, 0.35) if m.is_float else (0, 5):
            bound: dict[str, Any] = {name: value}
            yield m.case("contiguous", m.tensor(3, 29), **bound)

    return samples


def tensor_clamps(m: Maker) -> Iterator[Case]:
    """Samples of clamps to tensors."""
    yield from elementwise(ANY, (-2, 1), (0, 3), special=False)(m)
    yield m.case("contiguous", m.tensor(3, 29), None, m.tensor(3, 29))
    yield m.case("broadcast", m.tensor(3, 29), m.tensor(3, 1), None)
    yield m.case(
        "contiguous", m.tensor(3, 29), m.tensor(3, 29, low=0), m.tensor(3, 29, high=1)
    )  # some min > max
