"""Values that expose errors: NaN, infinities, signed zeros, denormals, extremes, integers beyond 2^24."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.derived.calls import Change, Scope, arrays, changed
from isthmus.opset.sampling import Array, Case, place

_MOST = 8192  # maximum elements of a base case
_BEYOND_FLOAT = {"int32": (1 << 24) + 1, "int64": (1 << 53) + 1}  # not representable in float32 and float64
_POSITIONS = ("index", "indices", "target", "shifts", "offsets", "repeats")  # integers that are positions
_SETTINGS = ("grad_scale", "found_inf", "inv_scale")  # of a gradient scaler; always float32


def values(scope: Scope) -> Iterator[Case]:
    """Derive cases with special values."""
    base = max((case for case in scope.own if _plain(case)), key=_tensors, default=None)
    if base is None:
        return
    operator, dtype = scope.operator, scope.maker.dtype
    ranked = any(array.shape for _, array in arrays(base.arguments))
    if operator.strided and ranked:
        yield scope.case(changed(base.arguments, _sliced), "sliced", kind="strided")
    shapes = [array.shape for _, array in arrays(base.arguments)]
    if operator.broadcasts and len(shapes) > 1 and all(len(shape) > 1 for shape in shapes):
        yield scope.case(changed(base.arguments, _narrowed), "narrowed", kind="broadcast")
    if scope.maker.is_float:
        moves = operator.tolerance[dtype].ulp == operator.tolerance[dtype].accumulate == 0
        for value in operator.special:
            planted = changed(base.arguments, _planted(value, dtype, moves, operator.strided))
            yield scope.case(planted, "nan" if math.isnan(value) else "inf", kind="special")
    if dtype in _BEYOND_FLOAT:
        yield scope.case(changed(base.arguments, _enlarged(dtype)), "beyond-float", kind="special")


def _plain(case: Case) -> bool:
    sizes = [math.prod(array.shape) for _, array in arrays(case.arguments)]
    return case.kind == "contiguous" and any(sizes) and max(sizes) <= _MOST


def _tensors(case: Case) -> int:
    return sum(1 for _ in arrays(case.arguments))


def _sliced(_: str, i: int, array: Array) -> Array:
    return place(array.view, "sliced") if array.shape else array


def _narrowed(_: str, i: int, array: Array) -> Array:
    """Alternately reduce the last dimension, and the one before it, to size 1."""
    return place(array.view[..., :1, :] if i % 2 else array.view[..., :1])


def _planted(value: float, dtype: str, everywhere: bool, strided: bool) -> Change:
    """Insert the value (NaN with its sign bit set), -0.0 and 0.0 into every tensor of the dtype.

    Each tensor has them at different positions; at half of all positions if no element depends on another.
    """
    numbers = (math.copysign(value, -1) if math.isnan(value) else value, -0.0, 0.0)
    count = 0

    def change(name: str, _: int, array: Array) -> Array:
        nonlocal count
        if array.dtype != dtype or not array.view.size or name in _SETTINGS:
            return array
        found = np.array(array.view)
        flat = found.reshape(-1)
        count += 1
        for i, number in reversed([*enumerate(numbers)]):
            first = 5 * count + 2 * i
            if everywhere:
                flat[first % 6 :: 6] = number
            flat[first % flat.size] = number
        return place(found, "sliced" if strided and found.ndim else "contiguous")

    return change


def _enlarged(dtype: str) -> Change:
    def change(name: str, _: int, array: Array) -> Array:
        if name in _POSITIONS or array.dtype != dtype:
            return array
        return place((array.view.astype(np.int64) * 2 + _BEYOND_FLOAT[dtype]).astype(dt.DTYPES[dtype].numpy))

    return change
