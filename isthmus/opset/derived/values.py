"""Values that expose errors: NaN, infinities, signed zeros, denormals, extremes, limits of integers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.derived.calls import Arguments, Change, Scope, arrays, changed, resized
from isthmus.opset.derived.shapes import same_shaped
from isthmus.opset.sampling import Array, Case, place

_MOST = 8192  # maximum elements of a base case
_BEYOND_FLOAT = {"int32": (1 << 24) + 1, "int64": (1 << 53) + 1}  # not representable in float32 and float64
_POSITIONS = ("index", "indices", "target", "shifts", "offsets", "repeats")  # integers that are positions
_SETTINGS = ("grad_scale", "found_inf", "inv_scale")  # of a gradient scaler; always float32
_PLACES = (0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 66)  # of a row of 67: ends of vectors, and the ends of the row


def planted(scope: Scope) -> Iterator[Case]:
    """Derive cases with NaN, infinity and integers beyond the floats' precision among ordinary values."""
    base = max((case for case in scope.own if _plain(case)), key=_tensors, default=None)
    if base is None:
        return
    operator, dtype = scope.operator, scope.maker.dtype
    shapes = [array.shape for _, array in arrays(base.arguments)]
    if operator.strided and any(shapes):
        yield scope.case(changed(base.arguments, _sliced), "sliced", kind="strided")
    if operator.broadcasts and len(shapes) > 1 and all(len(shape) > 1 for shape in shapes):
        yield scope.case(changed(base.arguments, _narrowed), "narrowed", kind="broadcast")
    if scope.maker.is_float:
        moves = operator.tolerance[dtype].ulp == operator.tolerance[dtype].accumulate == 0
        for value in operator.special:
            change = _planted(value, dtype, moves, operator.strided)
            yield scope.case(
                changed(base.arguments, change), "nan" if math.isnan(value) else "inf", kind="special"
            )
    if dtype in _BEYOND_FLOAT:
        yield scope.case(changed(base.arguments, _enlarged(dtype)), "beyond-float", kind="special")


def of_any_shape(scope: Scope) -> Iterator[Case]:
    """Derive cases of operators whose tensors may have any one shape: special rows, extremes, denormals, limits."""
    operator, dtype = scope.operator, scope.maker.dtype
    bases = same_shaped(scope)
    pointwise = operator.pointwise
    along = next((a for a in scope.maker.schema.arguments if a.name in ("dim", "dims")), None)
    for i, (label, found) in enumerate(_sets(scope, pointwise)):
        # Pointwise operators meet all pairs of the values; others get them as rows and as columns.
        base = bases[i % len(bases)]
        count = sum(1 for name, array in arrays(base.arguments) if array.dtype == dtype)
        grids = np.meshgrid(*[found] * min(count, 2), indexing="ij") if pointwise else [found] * count
        kept = [array for _, array in arrays(base.arguments)]

        def change(name: str, i: int, array: Array, grids: Any = grids, kept: Any = kept) -> Array:
            if array.dtype != dtype or name in _SETTINGS:
                return place(resized(array.view, grids[0].shape))
            n = sum(1 for each in kept[:i] if each.dtype == dtype)
            return place(grids[n]) if n < len(grids) else place(resized(array.view, grids[0].shape))

        for flags in _settings(base.arguments) if along else ({"axis": -1},):
            arguments = changed(base.arguments, change) | {k: v for k, v in flags.items() if k != "axis"}
            axis = flags["axis"]
            if along:
                arguments[along.name] = [axis] if along.is_list else axis
            if "shifts" in arguments:
                arguments["shifts"] = [3]
            words = [label, *[f"{name}-{value}".lower() for name, value in flags.items()]]
            yield scope.case(arguments, "-".join(words), kind="special")


def _settings(arguments: Arguments) -> Iterator[dict[str, Any]]:
    """Yield the axes of rows and of columns, with each order of sorting."""
    order = next((name for name in ("descending", "largest") if name in arguments), None)
    for axis in (-1, 0):
        for value in (False, True) if order else (None,):
            yield {"axis": axis, **({order: value} if order else {})}


def _sets(scope: Scope, pointwise: bool) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield (label, values of the dtype under test): 1-D for pointwise operators, else rows."""
    operator, dtype = scope.operator, scope.maker.dtype
    kind = dt.DTYPES[dtype].numpy
    if not scope.maker.is_float:
        if scope.maker.kind_of_dtype in ("int", "uint") and operator.limits:
            yield "limits", _limits(kind) if pointwise else np.stack([_limits(kind), _limits(kind)[::-1]])
        return
    limit = operator.tolerance[dtype]
    extreme = operator.extreme
    if pointwise:
        if extreme is None and limit.accumulate == 0:
            yield "extremes", _of_functions(dtype)
        elif extreme:
            yield "extremes", np.array(extreme).astype(kind)
        return
    if extreme:
        rows = [[x, x - 1, 0.5, -x, 1.0] for x in extreme]
        with np.errstate(over="ignore"):
            made = np.array(rows).astype(kind)
        yield "extremes", made[np.isfinite(made.astype(np.float64)).all(1)]
    if operator.distinct:
        return
    ordinary = np.linspace(-1.7, 2.3, 67)
    if not any(a.name in ("dim", "dims") for a in scope.maker.schema.arguments):
        for value in operator.special:  # alone in the tensor
            for i in (0, 33, 66):
                row = ordinary.copy()
                row[i] = value
                yield f"{value}-at-{i}", row.astype(kind)
        return
    if any(map(math.isnan, operator.special)):
        missing = np.stack([ordinary] * len(_PLACES))
        missing[range(len(_PLACES)), _PLACES] = math.nan
        yield "nan-by-place", missing.astype(kind)
    if math.inf in operator.special:
        yield "infinite-rows", _infinite(ordinary).astype(kind)


def _infinite(ordinary: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    rows = np.stack([ordinary] * 6)
    rows[0], rows[1] = -np.inf, np.inf
    rows[2, 3::2] = -np.inf
    rows[3, 66] = np.inf
    rows[4, :66] = -np.inf
    return rows


def _limits(kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    info = np.iinfo(kind)
    half = 1 << (info.bits // 2)
    numbers = [
        info.min,
        info.max,
        info.min + 1,
        info.max - 1,
        0,
        1,
        2,
        half - 1,
        half,
        info.max // 2,
        info.max // 2 + 1,
    ]
    return np.array(sorted({n % info.max for n in numbers} | {info.min, info.max}), kind)


def _of_functions(dtype: str) -> np.ndarray[Any, Any]:
    """Values at which functions overflow, underflow, become denormal or round halves."""
    info = ml_dtypes.finfo(dt.DTYPES[dtype].numpy)
    largest, tiny, least = float(info.max), float(info.tiny), float(info.smallest_subnormal)
    top, bottom, floor = math.log(largest), math.log(tiny), math.log(least)
    numbers = [
        top * 0.998, math.log2(largest) * 0.998, top * 1.004, bottom * 0.99, (bottom + floor) / 2,
        math.sqrt(largest) * 0.9, math.sqrt(tiny) * 0.7, tiny * 0.5, least, least * 5, tiny, largest, largest / 3,
        0.5, 1.5, 2.5, -0.0, 1e-3,
    ]  # fmt: skip
    signed = sorted({*numbers, *[-n for n in numbers]})
    return np.array([*signed, -0.0]).astype(dt.DTYPES[dtype].numpy)


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
