"""Comparisons, logical operators and tests; all return bool."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import ANY, elementwise, signaling
from isthmus.opset.operator import Operator, op
from isthmus.opset.sampling import Case, Maker


def _pairs(m: Maker) -> Iterator[Case]:
    yield from elementwise(ANY, ANY)(m)
    # Few distinct values, to have equal pairs.
    few = [m.values(m.integers(5, 31, low=0, high=3).view, m.dtype) for _ in range(2)]
    yield m.case("contiguous", *few)


def _numbers(m: Maker) -> Iterator[Case]:
    yield from elementwise(ANY, other=1)(m)
    if m.is_float:
        yield m.case("contiguous", m.values([0.1, 0.25, -0.25, 0.2500001, 0.24]), 0.25)
        for bound in (0.1, 0.7):  # rounded to less and to more, except in float64
            yield m.case("contiguous", m.values([0.1, 0.7, -0.1, 0.6, 0.2]), bound)
        inf, largest = float("inf"), float(ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy).max)
        for bound in (inf, -inf, largest):
            yield m.case("special", m.values([inf, -inf, largest, -largest, float("nan"), 1.0]), bound)
        for bound in (0.0, -1.0):  # NaN on either side of zero
            yield m.case("special", m.values([float("nan"), 0.0, -0.0, 1.0, -1.0, -2.0]), bound)
    if m.kind_of_dtype in ("int", "uint"):  # a fraction, which no integer equals
        for bound in (2.5, -0.5):
            yield m.case("special", m.values([0, 1, 2, 3, 4]), bound)
    if m.dtype == "int64":  # equal in 32 bits
        yield m.case("special", m.values([5, 2**33 + 5, 2**33 + 4, 2**33 + 6, -3]), 2**33 + 5)
    if m.dtype in ("int32", "int64"):  # equal in float32
        for bound in (2**24 + 1, 2**24 + 3):
            yield m.case("special", m.values([2**24 + i for i in range(6)]), bound)


def _tests(m: Maker) -> Iterator[Case]:
    """Tensors of which a part is NaN, and a part infinite."""
    for case in elementwise(ANY)(m):
        values = case.arguments["self"].view
        chosen = np.asarray(m.rng.random(values.shape))
        for value, low in ((np.nan, 0.0), (np.inf, 0.2), (-np.inf, 0.4)):
            values[(chosen >= low) & (chosen < low + 0.2)] = value
        signaling(values, chosen > 0.9)
        yield case


_PAIR = ("broadcast(self, other)", '"bool"')
_ONE = ("like(self)", '"bool"')
_ORDER = ("eq", "ne", "lt", "le", "gt", "ge")

OPERATORS: list[Operator] = [
    *[op(f"{name}.Tensor", dt.ALL, *_PAIR, _pairs) for name in _ORDER],
    *[op(f"{name}.Scalar", dt.NUMBERS, *_ONE, _numbers, rounds_numbers=True) for name in _ORDER],
    *[op(f"logical_{name}", dt.ALL, *_PAIR, _pairs) for name in ("and", "or", "xor")],
    op("logical_not", dt.ALL, *_ONE, elementwise(ANY)),
    op("isnan", dt.FLOATS, *_ONE, _tests),
    op("isinf", dt.FLOATS, *_ONE, _tests),
]
