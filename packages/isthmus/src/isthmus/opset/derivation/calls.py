"""Calls made from other calls: their tensors changed one by one, and what they then test."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.opset.derivation.layouts import ALL, laid
from isthmus.opset.sampling import PERIOD, Array, Case, Maker, Values, contiguous_strides

if TYPE_CHECKING:
    from isthmus.opset.operator import Operator

Arguments = dict[str, Any]
Change = Callable[[str, int, Array], Array]
LARGE = 1 << 16  # elements beyond which 16-bit indices wrap
MOST = 400_000  # elements of a call with a long dimension


class Scope:
    """The operators and dtypes that cases are derived for.

    Args:
        operator: the operator.
        maker: maker of its cases for one dtype.
        own: its own cases.
        pairs: derive cases for every pair of values, instead of every value.

    Attributes:
        leading: whether this dtype gets every case; the other dtypes share them.
    """

    def __init__(self, operator: Operator, maker: Maker, own: list[Case], pairs: bool) -> None:
        self.operator, self.maker, self.own, self.pairs = operator, maker, own, pairs
        dtypes = operator.dtypes
        self._rank = dtypes.index(maker.dtype)
        self.leading = pairs or maker.dtype == ("float32" if "float32" in dtypes else dtypes[0])

    def shared(self, rows: Iterator[Any], parts: int = 3) -> Iterator[Any]:
        """Yield all rows for the leading dtype, else every ``parts``-th, others for each dtype.

        The more dtypes share the rows, the fewer each gets: another dtype or two meet each row.
        """
        parts = max(parts, len(self.operator.dtypes) // 2)
        for i, row in enumerate(rows):
            if self.leading or i % parts == self._rank % parts:
                yield row

    def bases(self, deepest: bool = False) -> list[Case]:
        """The own cases with elements in all tensors, the first or deepest of each setting of the other arguments."""
        kinds = ("contiguous", "broadcast", "strided")[: 3 if self.operator.strided else 2]
        found: dict[str, Case] = {}
        for case in sorted(self.own, key=rank_of, reverse=True) if deepest else self.own:
            sizes = [math.prod(array.shape) for _, array in arrays(case.arguments)]
            ranked = any(array.shape for _, array in arrays(case.arguments))
            if ranked and all(sizes) and case.kind in kinds:
                others = {k: v for k, v in case.arguments.items() if not _holds_array(v)}
                found.setdefault(repr((others, _pattern(case.arguments))), case)
        return list(found.values())

    def case(self, arguments: Arguments, label: str, output: str = "contiguous", kind: str = "") -> Case:
        """Make a case of complete arguments."""
        made = self.maker.case(kind or _kind(arguments), *arguments.values())
        return replace(made, label=label, output=output)


def rank_of(case: Case) -> int:
    """Return the highest rank of a call's tensors."""
    return max((len(array.shape) for _, array in arrays(case.arguments)), default=0)


def _pattern(arguments: Arguments) -> list[str]:
    """Return the names of the arguments of a call's tensors, and "" where a list has none."""
    lists = [(name, value if isinstance(value, list) else [value]) for name, value in arguments.items()]
    return [
        name if isinstance(each, Array) else ""
        for name, items in lists
        for each in items
        if isinstance(each, Array) or (each is None and len(items) > 1)
    ]


def _holds_array(value: Any) -> bool:
    return isinstance(value, Array) or (isinstance(value, list) and any(map(_holds_array, value)))


def arrays(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of a call with the names of their arguments."""
    for name, value in arguments.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Array):
                yield name, item


def elements(arguments: Mapping[str, Any]) -> int:
    """Return the number of elements of all tensors of a call."""
    return sum(math.prod(array.shape) for _, array in arrays(arguments))


def given_names(case: Case) -> set[str]:
    """Return the names of the arguments that have tensors."""
    return {name for name, _ in arrays(case.arguments)}


def change_tensors(arguments: Arguments, change: Change) -> Arguments:
    """Change every tensor; the change gets the argument's name, the position among all tensors, and the tensor."""
    count = -1

    def each(name: str, value: Any) -> Any:
        nonlocal count
        if isinstance(value, list):
            return [each(name, item) for item in value]
        if not isinstance(value, Array):
            return value
        count += 1
        return change(name, count, value)

    return {name: each(name, value) for name, value in arguments.items()}


def resize(values: Values, shape: tuple[int, ...]) -> Values:
    """Repeat or cut values to a shape; large ones repeat with PERIOD."""
    return np.resize(np.resize(values.reshape(-1), PERIOD), shape)


def in_layouts(first: str) -> Change:
    """Lay out each tensor differently, beginning with a layout."""
    names = list(ALL)
    start = names.index(first)
    return lambda _, i, array: laid(array.view, names[(start + 5 * i) % len(names)])


def all_in(name: str) -> Change:
    """Lay out each tensor alike."""
    return lambda _, i, array: laid(array.view, name)


def _kind(arguments: Arguments) -> str:
    found = [array for _, array in arrays(arguments)]
    shapes = {array.shape for array in found}
    sizes = [math.prod(shape) for shape in shapes]
    if not all(sizes):
        return "zero-size"
    if shapes == {()}:
        return "0-dim"
    if max(sizes) > LARGE:
        return "large"
    if any(0 in array.strides for array in found):
        return "broadcast"
    return "contiguous" if all(map(_is_contiguous, found)) else "strided"


def _is_contiguous(array: Array) -> bool:
    packed = contiguous_strides(array.shape)
    return all(n == 1 or s == p for n, s, p in zip(array.shape, array.strides, packed, strict=True))
