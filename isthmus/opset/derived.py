"""Additional cases derived from an operator's own: all tensors strided, each broadcast, NaN, infinity, signed zeros,
integers beyond 2^24.

They cover all arguments, where sample makers often vary only the first.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.sampling import Array, Case, Maker, place

_MOST = 8192  # maximum elements of a base case
_BEYOND_FLOAT = {"int32": (1 << 24) + 1, "int64": (1 << 53) + 1}  # not representable in float32 and float64
_POSITIONS = ("index", "indices", "target", "shifts", "offsets", "repeats")  # integers that are positions
_SETTINGS = ("grad_scale", "found_inf", "inv_scale")  # of a gradient scaler; always float32
Change = Callable[[str, Array], Array]


def derived(
    maker: Maker,
    cases: Sequence[Case],
    strided: bool,
    special: Sequence[float],
    broadcasts: bool,
    moves: bool,
) -> Iterator[Case]:
    """Derive cases for the maker's operator and dtype.

    Args:
        maker: the maker of the cases.
        cases: the operator's own cases.
        strided: whether the operator supports strided tensors.
        special: the values among NaN and infinity that it supports.
        broadcasts: whether its tensors are broadcast.
        moves: whether it only moves elements, with unchanged bits.
    """
    base = max((case for case in cases if _plain(case)), key=_tensors, default=None)
    if base is None:
        return
    if strided and any(array.shape for _, array in _arrays(base)):
        yield _changed(maker, base, "strided", _sliced)
    if broadcasts and _tensors(base) > 1 and all(len(array.shape) > 1 for _, array in _arrays(base)):
        yield _changed(maker, base, "broadcast", _narrowed())
    if maker.is_float:
        for value in special:
            yield _changed(maker, base, "special", _planted(value, maker.dtype, moves, strided))
    if maker.dtype in _BEYOND_FLOAT:
        yield _changed(maker, base, "special", _enlarged(maker.dtype))


def _plain(case: Case) -> bool:
    sizes = [math.prod(array.shape) for _, array in _arrays(case)]
    return case.kind == "contiguous" and any(sizes) and max(sizes) <= _MOST


def _tensors(case: Case) -> int:
    return sum(1 for _ in _arrays(case))


def _arrays(case: Case) -> Iterator[tuple[str, Array]]:
    for name, value in case.arguments.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Array):
                yield name, item


def _changed(maker: Maker, base: Case, kind: str, change: Change) -> Case:
    def each(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [each(name, item) for item in value]
        return change(name, value) if isinstance(value, Array) else value

    arguments = [each(name, value) for name, value in base.arguments.items()]
    return maker.case(kind, *arguments, model=base.model)


def _sliced(_: str, array: Array) -> Array:
    return place(array.view, "sliced") if array.shape else array


def _narrowed() -> Change:
    """Alternately reduce the last dimension, and the one before it, to size 1."""
    count = 0

    def change(_: str, array: Array) -> Array:
        nonlocal count
        count += 1
        return place(array.view[..., :1] if count % 2 else array.view[..., :1, :])

    return change


def _planted(value: float, dtype: str, everywhere: bool, strided: bool) -> Change:
    """Insert the value (NaN with its sign bit set), -0.0 and 0.0 into every tensor of the dtype.

    Each tensor has them at different positions; at half of all positions if no element depends on another.
    """
    count = 0
    numbers = (math.copysign(value, -1) if math.isnan(value) else value, -0.0, 0.0)

    def change(name: str, array: Array) -> Array:
        nonlocal count
        if array.dtype != dtype or not array.view.size or name in _SETTINGS:
            return array
        values = np.array(array.view)
        flat = values.reshape(-1)
        count += 1
        for i, number in reversed([*enumerate(numbers)]):
            first = 5 * count + 2 * i
            if everywhere:
                flat[first % 6 :: 6] = number
            flat[first % flat.size] = number
        return place(values, "sliced" if strided and values.ndim else "contiguous")

    return change


def _enlarged(dtype: str) -> Change:
    def change(name: str, array: Array) -> Array:
        if name in _POSITIONS or array.dtype != dtype:
            return array
        return place((array.view.astype(np.int64) * 2 + _BEYOND_FLOAT[dtype]).astype(dt.DTYPES[dtype].numpy))

    return change
