"""Sizes of operators whose tensors share them: each size is replaced wherever it occurs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from isthmus.opset.derived.calls import LARGE, Arguments, Scope, arrays, changed, resized
from isthmus.opset.sampling import Array, Case, place

_SIZES = (1, 31, 32, 64, 65, 127, 129, 257, 0, 128, 2, 1025)
_LONG = 4133  # more than 4096 products or elements of a row
_MANY = 65_601  # more than 2^16 rows
_MOST = 300_000  # elements of a tensor


def sizes(scope: Scope) -> Iterator[Case]:
    """Derive a case for each size of each dimension, and with one dimension long."""
    bases = scope.bases()
    if not bases or not scope.operator.resizable:
        return
    rows: list[tuple[Case, int, int]] = []
    for i, base in enumerate(bases):
        found = _found(base)
        for j, old in enumerate(found):
            news = _SIZES if i == 0 or scope.pairs else _SIZES[(i + j) % 4 :: 4]
            rows += [(base, old, new) for new in news]
        if i == 0:
            rows += [(base, old, new) for old in found for new in (_LONG, _MANY)]
    for base, old, new in scope.shared(iter(rows), 5):
        if (new > 2000 and not scope.leading) or (new == 0 and not scope.operator.empty):
            continue
        arguments = _replaced(base.arguments, old, new)
        if _fits(scope, arguments, old, new):
            yield scope.case(arguments, f"size{old}to{new}")


def _found(base: Case) -> list[int]:
    return sorted({n for _, array in arrays(base.arguments) for n in array.shape if n > 1})


def _fits(scope: Scope, arguments: Arguments, old: int, new: int) -> bool:
    """Whether the call is small enough and its indices stay within bounds, which only grow."""
    found = [array for _, array in arrays(arguments)]
    largest = max(math.prod(array.shape) for array in found)
    indexed = any(array.dtype in ("int64", "int32") for array in found) and scope.maker.is_float
    output = math.prod(sorted({n for array in found for n in array.shape})[-2:])
    return max(largest, output) <= _MOST and (new > old or not indexed) and largest <= max(LARGE, scope.operator.longest)


def _replaced(arguments: Arguments, old: int, new: int) -> Arguments:
    def change(_: str, i: int, array: Array) -> Array:
        shape = tuple(new if n == old else n for n in array.shape)
        return place(resized(array.view, shape)) if shape != array.shape else array

    def number(name: str, value: Any) -> Any:
        if isinstance(value, bool) or name in ("dim", "padding_idx", "ignore_index", "reduction"):
            return value
        if isinstance(value, list):
            return [number(name, item) for item in value]
        return new if isinstance(value, int) and value == old else value

    return {name: number(name, value) for name, value in changed(arguments, change).items()}
