"""Sorting and topk. Only a stable sort defines the order of ties, so other samples have none."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.operator import Operator, op
from isthmus.opset.sampling import Array, Case, Maker


def _long(m: Maker) -> Iterator[Array]:
    """More elements than one block sorts, with positions above 2^16; more rows than 2^16."""
    if m.dtype == "float32":
        for shape in ((140_001,), (5, 4133), (65_601, 3)):
            yield m.distinct(*shape)


def _sorts(m: Maker) -> Iterator[Case]:
    for descending in (False, True):
        yield m.case("contiguous", m.distinct(3, 37), -1, descending, model="qwen_moe")
        yield m.case("contiguous", m.distinct(5, 7, 3), 1, descending)
        yield m.case("strided", m.distinct(5, 7, layout="transposed"), 0, descending)
        yield m.case("strided", m.distinct(5, 7, layout="sliced"), 1, descending)
    yield m.case("0-dim", m.tensor())
    yield m.case("zero-size", m.tensor(0, 5))
    for tensor in _long(m):
        yield m.case("large", tensor, -1, True)
        yield m.case("large", tensor, 0, False)
    if m.is_float:
        for descending in (False, True):  # NaN is the largest, whatever its sign
            special = m.values([1.0, -float("nan"), -float("inf"), -0.0, float("inf"), -2.0])
            yield m.case("special", special, 0, descending)


def _stable(m: Maker) -> Iterator[Case]:
    for descending in (False, True):
        ties = m.values(m.integers(3, 31, high=5).view, m.dtype)
        yield m.case("contiguous", ties, stable=True, dim=-1, descending=descending, model="qwen_moe")
        yield m.case("strided", m.values(m.integers(7, 9, high=3).view, m.dtype, "transposed"), stable=True, dim=0,
                     descending=descending)  # fmt: skip
        many = m.integers(9001, high=19).view  # runs of ties longer than a block
        yield m.case("contiguous", m.values(many), stable=True, dim=0, descending=descending)
        yield m.case("contiguous", m.values(np.zeros((3, 300))), stable=True, dim=1, descending=descending)
        for tensor in _long(m):
            yield m.case("large", tensor, stable=True, dim=0, descending=descending)
    if m.is_float:
        zeros = m.values([0.0, -0.0, 1.0, -0.0, 0.0, -1.0, -0.0])  # zeros of both signs are ties
        for descending in (False, True):
            yield m.case("contiguous", zeros, stable=True, dim=0, descending=descending)

        eps = float(ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy).eps)  # adjacent floats are not ties
        close = m.values([1 + eps, 1.0, 1 + 2 * eps, 1 - eps])
        yield m.case("contiguous", close, stable=True, dim=0, descending=False)
        for descending in (False, True):
            special = m.values([1.0, float("nan"), float("-inf"), 0.0, float("inf"), -float("nan"), -2.0])
            yield m.case("special", special, stable=True, dim=0, descending=descending)


def _tops(m: Maker) -> Iterator[Case]:
    for k, largest in ((2, True), (3, False), (1, True)):
        yield m.case("contiguous", m.distinct(17, 8), k, -1, largest, model="qwen_moe")
        yield m.case("strided", m.distinct(9, 7, layout="transposed"), k, 0, largest)
    for k, dim, largest in ((7, 1, True), (7, -2, False), (4, 1, False), (3, 2, True), (1, 0, False)):
        yield m.case("contiguous", m.distinct(5, 7, 3), k, dim, largest)
    for tensor in _long(m):
        yield m.case("large", tensor, 3, -1, False)
        yield m.case("large", tensor, 5, 0, True)
    if m.dtype == "float32":
        yield m.case("contiguous", m.distinct(2, 2053), 1030, -1, False)
        for k, largest in ((130, True), (300, False)):  # all of them neighbours, so in one block
            yield m.case("contiguous", m.values(np.arange(2053) / 8), k, 0, largest)
    yield m.case("zero-size", m.tensor(0, 5), 2)
    yield m.case("0-dim", m.tensor(), 1)
    if m.is_float:
        least = float(ml_dtypes.finfo(dt.DTYPES[m.dtype].numpy).smallest_subnormal)
        for largest in (False, True):  # denormal numbers are not ties
            yield m.case("special", m.values([0, least * 3, -least, 5 * least, -9 * least]), 5, 0, largest)
        special = m.values([1.0, float("inf"), -0.0, -float("nan"), -2.0])
        for k, largest in ((4, True), (1, True), (3, False), (5, False)):
            yield m.case("special", special, k, 0, largest)


_SAME = ("(self.shape, self.shape)", '(self.dtype, "int64")')

OPERATORS: list[Operator] = [
    op("sort", dt.NUMBERS, *_SAME, _sorts, special=(), distinct=True),
    op("sort.stable", dt.NUMBERS, *_SAME, _stable),
    op(
        "topk",
        dt.NUMBERS,
        "(at(self, dim, k), at(self, dim, k))",
        '(self.dtype, "int64")',
        _tops,
        special=(),
        distinct=True,
    ),
]
