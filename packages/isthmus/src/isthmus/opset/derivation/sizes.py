"""Sizes of operators whose tensors share them: each size is replaced wherever it occurs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.derivation.calls import (
    MOST,
    Arguments,
    Change,
    Scope,
    all_in,
    arrays,
    change_tensors,
    elements,
    in_layouts,
    resize,
)
from isthmus.opset.derivation.layouts import ALL, PACKED, STRIDED, laid
from isthmus.opset.derivation.shapes import LONGEST, WIDTHS
from isthmus.opset.rules import evaluate
from isthmus.opset.sampling import Array, Case, place

_SIZES = (1, 31, 32, 64, 65, 127, 129, 257, 0, 41, 2, 1030)  # 41 * (1 / 41) < 1 in float32
_LONG = 8209  # more than 8192 products or elements of a row
_THICK = 1031  # products or elements of a row, whose sum in a half is far off
_MANY = 65_601  # more than 2^16 rows
_MOST_OF_LONGEST = 11 * LONGEST  # elements of a call with such rows
_HEAVY = ("convolution", "pooling", "spatial", "llm_attention")  # families without them
_SMALL = 50_000  # elements of a call without a long dimension
_OTHERS = 12  # one in so many sizes is tried on cases after the first
_EACH = 5  # sizes of a case that are replaced, of lists of tensors of many sizes
_INDICES = ("int64", "int32")
_KEPT = (
    "dim", "padding_idx", "ignore_index", "reduction", "pad", "padding", "repeats", "start", "end", "step", "index",
    "compute_mode", "interpolation_mode", "padding_mode", "kernel_size", "stride", "dilation", "output_padding",
)  # fmt: skip
_BESIDE_WIDTHS = dict.fromkeys(WIDTHS, 4)
_ONES = (1, 1, 1)  # beside that of _SIZES, so that every tensor with one row or column has each layout of one
_BESIDE = 6  # the other sizes of a call that would have too many elements
_HEADS = (64, 128)  # sizes of heads, for which kernels have paths of their own
_SQUARE = (131, 144)  # rows and columns of more than a tile, for masks that know of both
_OF_ONE = ("step", "reversed", "swapped", "rows")  # layouts that differ where a dimension has size 1


def sizes(scope: Scope) -> Iterator[Case]:
    """Derive a case for each size of each dimension, and with one dimension long; beside a long one others are small.

    Sizes are taken as the same dimension wherever they are equal. Layouts of tensors and outputs vary alike.
    """
    bases = scope.bases()
    if not bases or not scope.operator.resizable:
        return
    rows: list[tuple[Case, int, int]] = []
    deepest = max(
        range(len(bases)), key=lambda i: sum(len(array.shape) for _, array in arrays(bases[i].arguments))
    )
    for i, base in enumerate(bases):
        found = sizes_of(base)
        for j, old in enumerate(found):
            news = (*_ONES, *_SIZES) if i == 0 or scope.pairs else _SIZES[(i + j) % _OTHERS :: _OTHERS]
            news = (*_ONES, *news) if i == deepest > 0 else news
            rows += [(base, old, _in_groups(base, old, new)) for new in news]
        rows += [(base, old, new) for old in _square_of(base) for new in _SQUARE]
        if i == 0:
            rows += [(base, old, new) for old in found for new in (_LONG, _MANY)]
            rows += [(base, old, LONGEST) for old in _row_of(base) if scope.operator.family not in _HEAVY]
            rows += [(base, _last_size(base), new) for new in WIDTHS if _last_size(base) > 1]
    yield scope.case(_reduce_to_one(bases[0]), "single")
    yield from _derive_even(scope, bases[deepest])
    yield from _derive_heads(scope, bases[deepest])
    for base in scope.shared(iter(bases[:_EACH])):  # equal sizes, so that exchanged ones fit
        sizes = dict.fromkeys(sizes_of(base), max(sizes_of(base), default=1))
        if elements_with(base.arguments, sizes) <= _SMALL:
            equal = replace_sizes(base.arguments, sizes)
            if _count_elements(equal, results_of(scope, equal)) <= _SMALL:
                yield scope.case(equal, "equal")
    halves = scope.maker.dtype in dt.HALVES and scope.operator.tolerance[scope.maker.dtype].accumulate
    thick = [(bases[0], old, _THICK) for old in sizes_of(bases[0])] if halves else []
    for i, (base, old, new) in enumerate([*scope.shared(iter(rows), 8), *thick]):
        if (new > 2000 and not scope.leading) or (new == 0 and not scope.operator.empty):
            continue
        arguments = _enlarge(
            scope,
            base,
            old,
            new,
            {_MANY: 2, _LONG: 6, LONGEST: 1, _SIZES[-1]: 6, _THICK: 6, **_BESIDE_WIDTHS}.get(new, 0),
        )
        if arguments is None:
            beside = {_MANY: 1, **dict.fromkeys(_SQUARE, 1)}.get(new, _BESIDE)
            arguments = _enlarge(scope, base, old, new, beside) if new in (*_SIZES, *_SQUARE, _MANY) else None
        if arguments is None or (new == _THICK and not _sums(scope, new, results_of(scope, arguments))):
            continue
        arguments = change_tensors(arguments, _layout_change(scope, new, i))
        output = (*STRIDED, "unaligned")[i % 8] if scope.operator.strided and new < _LONG else "unaligned"
        yield scope.case(arguments, f"size{old}to{new}-out-{output}", output)
        if new == _MANY and has_indices(scope, arguments) and scope.operator.name.startswith("aten::"):
            far = change_tensors(arguments, _move_indices(new - old))
            yield scope.case(far, f"size{old}to{new}-far", kind="large")


def _derive_even(scope: Scope, base: Case) -> Iterator[Case]:
    """Derive a case for each layout whose sizes, but small ones, are multiples of 8, so that kernels load vectors."""
    large = [n for n in sizes_of(base) if n > 4]
    news = itertools.accumulate(large, lambda last, n: max(last + 8, -(-n // 8) * 8), initial=0)
    arguments = replace_sizes(base.arguments, {3: 4, **dict(zip(large, [*news][1:], strict=True))})
    for name in scope.shared(iter(ALL if scope.operator.strided else PACKED)):
        output = name if scope.operator.strided else "unaligned"
        yield scope.case(change_tensors(arguments, in_layouts(name)), f"even-{name}-out-{output}", output)


def _derive_heads(scope: Scope, base: Case) -> Iterator[Case]:
    """Derive calls whose last size is that of heads, and whose tensors are dense in another order."""
    rows = [(new, name) for new in _HEADS for name in ("heads", "channels_last")]
    for new, name in scope.shared(iter(rows)) if scope.operator.strided and _last_size(base) > 1 else ():
        arguments = _enlarge(scope, base, _last_size(base), new, 4)
        if arguments is not None:
            yield scope.case(change_tensors(arguments, all_in(name)), f"last{new}-{name}-out-{name}", name)


def _row_of(base: Case) -> list[int]:
    """Return the size of the rows of a call's first tensor, if it is above 1."""
    shape = next(array.shape for _, array in arrays(base.arguments))
    return [n for n in shape[-1:] if n > 1]


def _square_of(base: Case) -> list[int]:
    """Return the size of the last two dimensions of a call's first tensor, if they are equal and above 1."""
    shape = next(array.shape for _, array in arrays(base.arguments))
    return [n for n in shape[-1:] if shape[-2:] == (n, n) and n > 1]


def _in_groups(base: Case, old: int, new: int) -> int:
    """Round a number of channels up to a multiple of their groups."""
    group = base.arguments.get("group", 1) if old == base.arguments.get("C") else 1
    return -(-new // group) * group


def _reduce_to_one(base: Case) -> Arguments:
    """Replace every size by 1, and indices by 0: fewer elements than a vector has."""
    sizes = {n for _, array in arrays(base.arguments) for n in array.shape if n > 1}
    return change_tensors(replace_sizes(base.arguments, dict.fromkeys(sizes, 1)), _first)


def _first(_: str, i: int, array: Array) -> Array:
    """Make indices 0, which is within the bounds of every dimension."""
    return place(array.view * 0) if array.dtype in _INDICES else array


def _enlarge(scope: Scope, base: Case, old: int, new: int, small: int) -> Arguments | None:
    """Replace a size, and all others by a small one unless that is 0; None if the call has too many elements."""
    small += small == old
    others = [other for other in sizes_of(base) if small and other not in (old, 2)]
    arguments = replace_sizes(base.arguments, dict.fromkeys(others, small))
    if not _fits(scope, arguments, old, new):
        return None
    arguments = replace_sizes(arguments, {old: new})
    if new == LONGEST:  # sums of small integers are exact in any order
        arguments = change_tensors(
            arguments, lambda _, i, array: place(np.rint(array.view).astype(array.view.dtype))
        )
    if new == 1 and has_indices(scope, arguments):
        arguments = change_tensors(arguments, _first)
    shapes = results_of(scope, arguments)
    most = (
        2 * MOST if small == 1 and new == _MANY else MOST if new >= _LONG else _SMALL * (1 + (new in _SQUARE))
    )
    most, terms = (_MOST_OF_LONGEST, LONGEST) if new == LONGEST else (most, _most_terms(scope))
    if _count_elements(arguments, shapes) > most or (new > terms and _sums(scope, new, shapes)):
        return None
    return arguments


def _count_elements(arguments: Arguments, shapes: list[tuple[int, ...]]) -> int:
    """Return the number of elements of a call's tensors and of results of some shapes."""
    return elements(arguments) + sum(map(math.prod, shapes))


def sizes_of(base: Case) -> list[int]:
    """Return the sizes above 1 of a call's tensors, the smallest few."""
    return sorted({n for _, array in arrays(base.arguments) for n in array.shape if n > 1})[:_EACH]


def _last_size(base: Case) -> int:
    """Return the size of the last dimension of a call's first tensor of the highest rank."""
    return max((array.shape for _, array in arrays(base.arguments)), key=len)[-1]


def _layout_change(scope: Scope, size: int, i: int) -> Change:
    """Vary layouts; long tensors have none that need more memory."""
    if size >= _LONG or not scope.operator.strided:
        return lambda _, j, array: laid(array.view, "unaligned")
    if size == 1:
        return lambda _, j, array: laid(array.view, _OF_ONE[(i + j) % len(_OF_ONE)])
    return in_layouts([*ALL][i % len(ALL)])


def _fits(scope: Scope, arguments: Arguments, old: int, new: int) -> bool:
    """Whether the tensors with a size replaced are small enough and indices stay within bounds, which only grow."""
    sizes = [math.prod(new if n == old else n for n in array.shape) for _, array in arrays(arguments)]
    # PyTorch rejects targets that name a class beyond fewer ones.
    grows = new > old or new == 1 or not has_indices(scope, arguments) or {"target", "logits"} <= {*arguments}
    most = _MOST_OF_LONGEST if new == LONGEST else 2 * MOST
    return grows and sum(sizes) <= most and max(sizes) <= scope.operator.longest


def results_of(scope: Scope, arguments: Arguments) -> list[tuple[int, ...]]:
    """Return the shapes of the results; none if PyTorch will reject the call, to which no rule applies."""
    try:
        said = evaluate(scope.operator.shape, arguments)
    except (ValueError, IndexError, ZeroDivisionError):
        return []
    several = isinstance(said, list | tuple) and any(each is None or isinstance(each, tuple) for each in said)
    return [each for each in (said if several else (said,)) if each is not None]


def _most_terms(scope: Scope) -> int:
    """Return the most terms of a sum; few if each addition may round to a half."""
    return 512 if scope.operator.tolerance[scope.maker.dtype].accumulate > 1024 else _MANY


def _sums(scope: Scope, new: int, shapes: list[tuple[int, ...]]) -> bool:
    """Whether a dimension is summed."""
    summed = any(new not in shape for shape in shapes)
    return summed and scope.operator.tolerance[scope.maker.dtype].accumulate > 0


def has_indices(scope: Scope, arguments: Arguments) -> bool:
    """Whether a call has indices, which must stay within bounds."""
    return any(
        array.dtype in _INDICES and (scope.maker.is_float or name in ("index", "indices"))
        for name, array in arrays(arguments)
    )


def _move_indices(distance: int) -> Change:
    """Move indices to the end of a dimension; PyTorch rejects those of another dimension, which did not grow."""
    return lambda _, i, array: place(array.view + distance) if array.dtype == "int64" else array


def elements_with(arguments: Arguments, sizes: dict[int, int]) -> int:
    """Return the number of elements of a call's tensors with sizes replaced."""
    return sum(math.prod(sizes.get(n, n) for n in array.shape) for _, array in arrays(arguments))


def replace_sizes(arguments: Arguments, sizes: dict[int, int]) -> Arguments:
    """Replace sizes wherever they occur, in tensors and in numbers."""

    def change(_: str, i: int, array: Array) -> Array:
        shape = tuple(sizes.get(n, n) for n in array.shape)
        return place(resize(array.view, shape)) if shape != array.shape else array

    def number(name: str, value: Any) -> Any:
        if isinstance(value, bool) or name in _KEPT:
            return value
        if isinstance(value, list):
            return [number(name, item) for item in value]
        return sizes.get(value, value) if isinstance(value, int) else value

    return {name: number(name, value) for name, value in change_tensors(arguments, change).items()}
