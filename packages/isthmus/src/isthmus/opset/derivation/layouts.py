"""Layouts of one tensor in memory: orders of its dimensions, gaps, offsets and strides of dimensions of size 1."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from isthmus.opset.sampling import Array, Values, contiguous_strides

_ODD = 7919  # an arbitrary stride of dimensions of size 1, which no access uses


class Layout(NamedTuple):
    """A layout.

    Attributes:
        order: order of the dimensions in memory, outermost first, for a rank.
        step: distance of neighbours in the innermost dimension, in elements.
        gap: unused elements after each row of the innermost dimension.
        cut: unused rows after each matrix of the two innermost dimensions.
        offset: elements before the first.
        odd: stride of dimensions of size 1, which no access uses; None for that of the order.
    """

    order: Callable[[int], Sequence[int]]
    step: int = 1
    gap: int = 0
    cut: int = 0
    offset: int = 0
    odd: int | None = None

    def place(self, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...], int]:
        """Return size of the storage, strides and offset of a tensor of a shape, in elements."""
        order = tuple(self.order(len(shape)))
        memory = tuple(shape[i] for i in order)
        wide = (*memory[:-1], memory[-1] * self.step + self.gap) if memory else ()
        wide = (*wide[:-2], wide[-2] + self.cut, wide[-1]) if len(wide) > 1 else wide
        packed = contiguous_strides(wide)
        steps = (*packed[:-1], self.step) if memory else ()
        strides = [steps[order.index(i)] for i in range(len(shape))]
        if self.odd is not None:
            strides = [self.odd if n == 1 else step for n, step in zip(shape, strides, strict=True)]
        return self.offset + math.prod(wide), tuple(strides), self.offset


def _kept(rank: int) -> Sequence[int]:
    return range(rank)


def _reversed(rank: int) -> Sequence[int]:
    return range(rank)[::-1]


def _rotated(rank: int) -> Sequence[int]:
    """Outermost dimension innermost, as in sequence-first inputs."""
    return (*range(1, rank), 0) if rank else ()


def _channels_last(rank: int) -> Sequence[int]:
    return (0, *range(2, rank), 1) if rank > 2 else _reversed(rank)


def _heads(rank: int) -> Sequence[int]:
    """Swap the two dimensions before the last."""
    return (*range(rank - 3), rank - 2, rank - 3, rank - 1) if rank > 2 else _reversed(rank)


def _swapped(rank: int) -> Sequence[int]:
    return (*range(rank - 2), rank - 1, rank - 2) if rank > 1 else _kept(rank)


# Contiguous for a kernel that takes no strides: offsets of 1 and 3 elements break every vector alignment.
PACKED = {
    "unaligned": Layout(_kept, offset=1),
    "contiguous": Layout(_kept),
    "odd": Layout(_kept, offset=3, odd=_ODD),
}
STRIDED = {
    "reversed": Layout(_reversed, odd=1),
    "step": Layout(_kept, step=2, gap=1, offset=3, odd=1),
    "rotated": Layout(_rotated, offset=1, odd=0),
    "rows": Layout(_kept, gap=3, offset=1, odd=_ODD),
    "swapped": Layout(_swapped, gap=3, offset=2, odd=1),
    "channels_last": Layout(_channels_last, odd=_ODD),
    "heads": Layout(_heads, offset=5),
    "channels_sliced": Layout(_channels_last, gap=3),
    "cut": Layout(_kept, cut=2),
    "channels_unaligned": Layout(_channels_last, offset=3),
}
ALL = {**PACKED, **STRIDED}


def laid(values: Values, name: str) -> Array:
    """Place values in memory in a layout of :data:`ALL`. Gaps hold 77 (True for bool)."""
    extent, strides, offset = ALL[name].place(values.shape)
    filler = True if values.dtype == np.bool_ else 77
    placed = Array(np.full(extent, filler, values.dtype), values.shape, strides, offset)
    placed.view[...] = values
    return placed


def expanded(values: Values, axis: int) -> Array:
    """Repeat the first slice along an axis, with stride 0."""
    row = values.take([0], axis)
    strides = list(contiguous_strides(row.shape))
    strides[axis] = 0
    return Array(row.reshape(-1).copy(), values.shape, tuple(strides))
