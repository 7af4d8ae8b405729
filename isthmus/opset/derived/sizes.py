"""Sizes of operators whose tensors share them: each size is replaced wherever it occurs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from isthmus.opset.derived.calls import Arguments, Change, Scope, arrays, changed, resized
from isthmus.opset.rules import evaluate
from isthmus.opset.sampling import Array, Case, place

_SIZES = (1, 31, 32, 64, 65, 127, 129, 257, 0, 128, 2, 1025)
_LONG = 4133  # more than 4096 products or elements of a row
_MANY = 65_601  # more than 2^16 rows
_MOST = 300_000  # elements of a tensor


def sizes(scope: Scope) -> Iterator[Case]:
    """Derive a case for each size of each dimension, and with one dimension long; beside 2^16 rows others are small.

    Sizes are taken as the same dimension wherever they are equal.
    """
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
        arguments = base.arguments
        small = 3 if old != 3 else 4
        for other in _found(base) if new == _MANY else ():
            arguments = _replaced(arguments, other, small) if other not in (old, 2) else arguments
        if _fits(scope, arguments, old, new):
            arguments = _replaced(arguments, old, new)
            if new == _MANY and _sums(scope, arguments):
                continue
            yield scope.case(arguments, f"size{old}to{new}")
            if new == _MANY and _indexed(scope, arguments) and scope.operator.name.startswith("aten::"):
                far = changed(arguments, _far(new - old))
                yield scope.case(far, f"size{old}to{new}-far", kind="large")


def _found(base: Case) -> list[int]:
    return sorted({n for _, array in arrays(base.arguments) for n in array.shape if n > 1})


def _fits(scope: Scope, arguments: Arguments, old: int, new: int) -> bool:
    """Whether the call with a size replaced is small enough and indices stay within bounds, which only grow."""
    shapes = [[new if n == old else n for n in array.shape] for _, array in arrays(arguments)]
    largest = max(map(math.prod, shapes))
    output = math.prod(sorted({n for shape in shapes for n in shape})[-2:])
    grows = new > old or not _indexed(scope, arguments)
    return max(largest, output) <= _MOST and grows and largest <= scope.operator.longest


def _sums(scope: Scope, arguments: Arguments) -> bool:
    """Whether the rows are summed, which the tolerance does not allow for so many."""
    said = evaluate(scope.operator.shape, arguments)
    return str(_MANY) not in str(said) and scope.operator.tolerance[scope.maker.dtype].accumulate > 0


def _indexed(scope: Scope, arguments: Arguments) -> bool:
    return scope.maker.is_float and any(array.dtype in ("int64", "int32") for _, array in arrays(arguments))


def _far(distance: int) -> Change:
    """Move indices to the end of a dimension; PyTorch rejects those of another dimension, which did not grow."""
    return lambda _, i, array: place(array.view + distance) if array.dtype == "int64" else array


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
