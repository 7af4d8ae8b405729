"""Loop nests of C: the elements of one or more tensors of the same shape, computed together."""

from __future__ import annotations

import re
from typing import NamedTuple

from isthmus_triton.ttir import Value

PANEL = 32  # columns of a panel of a product's second factor
STRIP = 64  # elements of a strip: all have the same masks, and a running result each


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
        edges: C variables: the numbers of leading elements of the innermost loop for which a mask is set.
        is_in_strips: the innermost loop goes strip by strip; q is the index in the strip.
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
        self.edges: set[str] = set()
        self.is_in_strips = False

    @property
    def innermost(self) -> int:
        """The dimension of the innermost loop; -1 without a loop."""
        return next((each for each in reversed(self.order) if self.shape[each] > 1), -1)

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
            if self.shape[dimension] == 1:
                text += within
            elif dimension == self.innermost:
                text += self._innermost_loops(dimension, within)
            else:
                text += [
                    f"for (int i{dimension} = 0; i{dimension} < {self.shape[dimension]}; i{dimension}++) {{"
                ]
                text += [*within, "}"]
        return text + self.after[depth]

    def _innermost_loops(self, dimension: int, within: list[str]) -> list[str]:
        size, i, j = self.shape[dimension], f"i{dimension}", f"j{dimension}"

        def strips(start: str, end: str, is_set: str, step: int = STRIP) -> list[str]:
            return [
                f"for (int {j} = {start}; {j} < {end}; {j} += {step})",
                "INDEPENDENT",
                f"for (int q = 0; q < {step}; q++) {{",
                f"int const {i} = {j} + q;",
                *_masked(within, is_set),
                "}",
            ]

        if dimension in self.panels:
            return strips("0", str(size), "", PANEL)
        if not self.edges or not self.is_parallel or size < 2 * STRIP:
            if self.is_in_strips:
                return strips("0", str(size), "")
            independent = ["INDEPENDENT"] if self.is_parallel else []
            return [*independent, f"for (int {i} = 0; {i} < {size}; {i}++) {{", *_masked(within, ""), "}"]
        edge, full = f"edge{dimension}", f"full{dimension}"
        text = [f"int64_t {edge} = {size};"]
        text += [f"{edge} = {each} < {edge} ? {each} : {edge};" for each in sorted(self.edges)]
        text += [f"{edge} = {edge} > 0 ? {edge} : 0;", f"int const {full} = (int){edge} & -{STRIP};"]
        text += strips("0", full, "1")
        if len(self.edges) > 1:
            return ["{", *text, *strips(full, str(size), ""), "}"]
        rest = f"rest{dimension}"
        text += [f"int const {rest} = {full} < {edge} ? {full} + {STRIP} : {full};"]
        return ["{", *text, *strips(full, rest, ""), *strips(rest, str(size), "0"), "}"]


def masked(condition: str) -> str:
    """A condition that is set for the leading elements of an innermost loop and for no others."""
    return f"@@{condition}@@"


def _masked(text: list[str], is_set: str) -> list[str]:
    return [re.sub(r"@@(.*?)@@", is_set or r"\1", line) for line in text]


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
