"""Loop nests of C: the elements of one or more tensors of the same shape, computed together."""

from __future__ import annotations

import re
from typing import NamedTuple

from isthmus_triton.ttir import Value

PANEL = 32  # columns of a panel of a product's second factor


class Index(NamedTuple):
    """An index along a dimension: a C expression, and the number of loops around it that it depends on."""

    code: str
    depth: int


ZERO = Index("0", 0)


class Nest:
    """One loop per dimension; statements at every depth, before and after the loop within.

    Args:
        shape: of the tensors.
        order: dimensions, from the outermost loop inwards.

    Attributes:
        before: statements by number of loops around them.
        after: the same, behind the loop within.
        index: of the element, one per dimension.
        known: elements that have a variable.
        unfinished: tensors whose elements are made here, by number; whether reading one at its own index is right.
        loads: pointers read.
        stores: pointers written.
        is_parallel: the iterations of the innermost loop are independent.
        panels: dimensions along which a loop goes panel by panel.
        conditions: C flags under which indices are consecutive; the nest is printed for both cases.
    """

    def __init__(self, shape: tuple[int, ...], order: list[int]) -> None:
        self.shape, self.order = shape, order
        self.before: list[list[str]] = [[] for _ in range(len(shape) + 1)]
        self.after: list[list[str]] = [[] for _ in range(len(shape) + 1)]
        self.index = [
            Index(f"i{d}", order.index(d) + 1) if size > 1 else ZERO for d, size in enumerate(shape)
        ]
        self.known: dict[tuple[int, tuple[str, ...]], Index] = {}
        self.unfinished: dict[int, bool] = {}
        self.loads: list[Value] = []
        self.stores: list[Value] = []
        self.is_parallel = True
        self.panels: set[int] = set()
        self.conditions: set[str] = set()

    def add(self, statement: str) -> None:
        """Add a statement for each element."""
        self.before[-1].append(statement)

    def lines(self) -> list[str]:
        """The C text."""
        text = ["{", *self._level(0), "}"]
        if not self.conditions:
            return text
        return [
            f"if ({' & '.join(sorted(self.conditions))})",
            *_chosen(text, r"\1[0] + \2"),
            "else",
            *_chosen(text, r"\1[\2]"),
        ]

    def _level(self, depth: int) -> list[str]:
        text = list(self.before[depth])
        if depth < len(self.shape):
            dimension = self.order[depth]
            within = self._level(depth + 1)
            is_innermost = all(self.shape[each] == 1 for each in self.order[depth + 1 :])
            if self.shape[dimension] == 1:
                text += within
            else:
                text += [*self._loops(dimension, is_innermost), *within, "}"]
        return text + self.after[depth]

    def _loops(self, dimension: int, is_innermost: bool) -> list[str]:
        size, i, j = self.shape[dimension], f"i{dimension}", f"j{dimension}"
        independent = ["#pragma GCC ivdep"] if is_innermost and self.is_parallel else []
        if dimension in self.panels and is_innermost:
            return [
                f"for (int {j} = 0; {j} < {size}; {j} += {PANEL})",
                "#pragma GCC ivdep",
                f"for (int {i} = {j}; {i} < {j} + {PANEL}; {i}++) {{",
            ]
        return [*independent, f"for (int {i} = 0; {i} < {size}; {i}++) {{"]


def conditional(flag: str, array: str, index: str) -> str:
    """An element of an array that holds consecutive integers if a flag is set."""
    return f"@{flag}@{array}@{index}@"


def _chosen(text: list[str], form: str) -> list[str]:
    return [re.sub(r"@\w+@(\w+)@(.*?)@", form, line) for line in text]


def linear(shape: tuple[int, ...], index: list[Index]) -> Index:
    """The index in a row-major array."""
    terms, stride = [], 1
    for size, each in reversed(list(zip(shape, index, strict=True))):
        if each.code != "0" and size != 1:
            terms.append(each.code if stride == 1 else f"{each.code} * {stride}")
        stride *= size
    return Index(" + ".join(reversed(terms)) or "0", max([each.depth for each in index], default=0))


def reshaped(to: tuple[int, ...], shape: tuple[int, ...], index: list[Index]) -> list[Index]:
    """The index in ``shape`` of an element of ``to``, which has the same elements in the same order."""
    kept = [(size, each) for size, each in zip(to, index, strict=True) if size != 1]
    if [size for size, _ in kept] == [size for size in shape if size != 1]:
        rest = iter([each for _, each in kept])
        return [ZERO if size == 1 else next(rest) for size in shape]
    at, stride = linear(to, index), 1
    found = []
    for size in reversed(shape):
        code = f"(({at.code}) / {stride} % {size})" if stride > 1 else f"(({at.code}) % {size})"
        found.append(ZERO if size == 1 else Index(code, at.depth))
        stride *= size
    return found[::-1]
