"""Tensors created from numbers."""

from collections.abc import Iterator

from isthmus.opset import dtypes as dt
from isthmus.opset.operator import Operator, accumulated, op
from isthmus.opset.rules import steps
from isthmus.opset.sampling import Case, Maker


def _ranges(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", 0, 17, 1, dtype=m.dtype, model="llama")
    yield m.case("contiguous", 3, 40, 5, dtype=m.dtype)
    yield m.case("zero-size", 3, 3, 1, dtype=m.dtype)
    if m.kind_of_dtype != "uint":
        yield m.case("contiguous", 9, -4, -2, dtype=m.dtype)
        yield m.case("contiguous", -7, 6, 3, dtype=m.dtype)
        yield m.case("contiguous", -3, -17, -7, dtype=m.dtype)  # the end is not reached
    if m.is_float:
        yield m.case("contiguous", 0.5, 3.25, 0.25, dtype=m.dtype, model="llama")
        yield m.case("contiguous", 2.75, -1.5, -0.375, dtype=m.dtype)
        yield m.case("contiguous", -0.125, 0.0, 1.0, dtype=m.dtype)
        most = 256.0 if m.dtype == "bfloat16" else 2048.0  # so many numbers a half counts
        yield m.case("contiguous", -most, most, 1.0, dtype=m.dtype)
        if m.dtype not in dt.HALVES:  # a running sum is off; halves round the step
            yield m.case("contiguous", 0.05, 300.0, 0.1, dtype=m.dtype)
    if m.dtype == "float64":  # not representable in float32
        yield m.case("contiguous", 0.5, 3.25, 0.25 + 2.0**-30, dtype=m.dtype)
    if m.dtype in ("float32", "int32", "int64"):
        yield m.case("large", -3, 3 * 65_601, 3, dtype=m.dtype)
    if m.dtype in ("int32", "int64"):  # not representable in float32
        yield m.case("contiguous", 2**24 + 1, 2**24 + 24, 3, dtype=m.dtype)
    if m.dtype == "int64":  # not representable in float64; numbers are truncated first
        yield m.case("contiguous", 2**53 + 1, 2**53 + 24, 3, dtype=m.dtype)
        for start, end, step in ((2.1, -2.9, -1.0), (-2.9, 3.7, 1.6), (0.5, 9.5, 2.9)):
            yield m.case("contiguous", start, end, step, dtype=m.dtype)


def _spaces(m: Maker) -> Iterator[Case]:
    for start, end, count in (
        (-1, 1, 7),
        (0.25, 8, 13),
        (3, 3, 1),
        (5, -2, 6),
        (2, 7, 1),
        (-3, 4, 2),
        (2.5, 2.5, 5),
        (0, 0.7, 131),
    ):
        yield m.case("contiguous", start, end, count, dtype=m.dtype)
    yield m.case("zero-size", 0, 1, 0, dtype=m.dtype)
    if not m.is_float:  # ends are truncated first, numbers after
        for start, end, count in ((0.5, -3.7, 7), (-9.9, 9.9, 8), (2**24 + 1, 2**24 + 10, 10), (7.9, 7.1, 3)):
            yield m.case("contiguous", start, end, count, dtype=m.dtype)
    if m.dtype in ("float32", "float64"):  # in halves PyTorch rounds the ends first
        yield m.case("contiguous", 0.3, -1.1, 9, dtype=m.dtype)
    if m.dtype == "float32":
        yield m.case("large", -2, 5, 65_601, dtype=m.dtype)


def _eyes(m: Maker) -> Iterator[Case]:
    for rows, columns in ((5, 7), (7, 5), (3, 3), (1, 9), (1, 2), (67, 131), (2, 1031)):
        yield m.case("contiguous", rows, columns, dtype=m.dtype)
    yield m.case("zero-size", 0, 5, dtype=m.dtype)
    yield m.case("zero-size", 5, 0, dtype=m.dtype)
    if m.dtype == "float32":
        yield m.case("large", 259, 257, dtype=m.dtype)


def _line_size(start: float, end: float, steps: int, **_: object) -> object:
    import torch

    return torch.full((steps,), float(abs(start) + abs(end)), dtype=torch.float64)


def _range_size(start: float, end: float, step: float, dtype: object, **_: object) -> object:
    return _line_size(start, end, *steps(start, end, step, str(dtype).removeprefix("torch.")))


OPERATORS: list[Operator] = [
    op("arange.start_step", dt.NUMBERS, "steps(start, end, step, dtype)", "dtype", _ranges,
       accumulated(4, "a step, a product and a sum"), magnitude=_range_size),
    op("linspace", (*dt.FLOATS, "int32", "int64"), "(steps,)", "dtype", _spaces,
       accumulated(4, "a step, a product and a sum"), magnitude=_line_size),
    op("eye.m", dt.ALL, "(n, m)", "dtype", _eyes),
]  # fmt: skip
