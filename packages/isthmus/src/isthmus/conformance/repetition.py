"""Comparison of the results of two calls, which poison the outputs differently."""

from typing import Any

import numpy as np

from isthmus.conformance.arrays import Array
from isthmus.conformance.judge import differing, filled_elements
from isthmus.conformance.memory import POISONS, Slot


def count_different(left: Array, right: Any) -> int:
    """Return the number of elements whose bits differ."""
    return int(differing(left, right).sum())


def describe_unwritten(slot: Slot, first: Array, second: Array) -> str:
    """Report the elements of an output that still held the poison after both calls."""
    if slot.storage is not None or 0 in slot.shape:
        return ""
    left = filled_elements(slot.view(first), POISONS[0]) & filled_elements(slot.view(second), POISONS[1])
    count = int(left.sum())
    if not count:
        return ""
    index = ", ".join(str(i) for i in np.unravel_index(int(np.argmax(left)), slot.shape))
    return f"{count} of {left.size} elements were not written, first at [{index}]"


def describe_differences(slot: Slot, first: Array, second: Array) -> str:
    """Report the elements of an output that differ between both calls."""
    count = count_different(slot.view(first), slot.view(second))
    if not count:
        return ""
    return f"{slot.label}: the same call on another stream gave different bits in {count} elements"


def changed_later(slot: Slot, read: Array, last: Array) -> str:
    """Report the elements of an output that changed after the stream had read them, up to the end of all work."""
    count = count_different(slot.view(read), slot.view(last))
    if not count:
        return ""
    return (
        f"{slot.label}: {count} elements changed after the stream had read them: it still works when later work "
        "of its stream runs"
    )
