"""Faults of sorts, extremes and bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.mutation.bank.faults.common import after, computed, wide
from tools.mutation.kernel import Array, Call, Invocation
from tools.mutation.mutant import Wrong


def places_in_blocks(block: int) -> Wrong:
    """Number the elements of a longer row anew in each block."""

    @after
    def wrong(call: Invocation) -> None:
        x, dim = call.inputs[0], call.given("dim")[0]
        if x.ndim and x.shape[dim] > block:
            places = call.outputs[1]
            places[...] = np.array(places) % block

    return wrong


def short_rows_cleared(size: int) -> Wrong:
    """Give zeros for rows of a few elements."""

    @after
    def wrong(call: Invocation) -> None:
        x, dim = call.inputs[0], call.given("dim")[0]
        if x.ndim and 1 < x.shape[dim] < size:
            call.outputs[0][...] = 0

    return wrong


@after
def unsorted_values_reordered(call: Invocation) -> None:
    """Give the values in another order than the places where no order is asked for."""
    if not call.given("sorted")[0]:
        values, dim = call.outputs[0], call.given("dim")[0]
        if values.ndim and values.shape[dim] > 1:
            values[...] = np.flip(np.array(values), dim)


@computed
def clamp_without_low(x: Array, low: Any, high: Any) -> Any:
    """Give the larger of a number and the upper bound if there are two bounds."""
    if low is None or high is None:
        return np.maximum(wide(x), low) if high is None else np.minimum(wide(x), high)
    return np.maximum(wide(x), high)


@after
def first_for_middle(call: Invocation) -> None:
    """Give the first place if the extreme is in the middle of a row."""
    x, dim = call.inputs[:2]
    out = call.outputs[0]
    size = x.size if dim is None or not x.ndim else x.shape[dim]
    places = np.array(out)
    out[...] = np.where(2 * places == size, 0, places)


def rounded_to_integers(right: Call, call: Invocation) -> None:
    """Round results if the number is 1.0."""
    right(call)
    out = call.outputs[0]
    if call.inputs[1] == 1 and out.dtype.kind not in "iub" and out.size:
        out[...] = np.rint(wide(np.array(out)))


def exponents_of_first_tile(size: int) -> Wrong:
    """Read the exponents of the first tile of larger matrices for all tiles."""

    def wrong(right: Call, call: Invocation) -> None:
        exponent = call.inputs[1]
        if exponent.ndim > 1 and max(exponent.shape[-2:]) > size:
            rows, columns = (np.arange(n) % size for n in exponent.shape[-2:])
            call = call.with_input(1, np.array(exponent)[..., rows[:, None], columns])
        right(call)

    return wrong


@after
def nan_for_infinite_divisor(call: Invocation) -> None:
    """Give NaN for float32 numbers divided by infinity."""
    x, other, out = call.inputs[0], call.inputs[1], call.outputs[0]
    if out.dtype == np.float32 and out.size:
        infinite = np.broadcast_to(np.isinf(wide(np.asarray(other))), out.shape)
        finite = np.broadcast_to(np.isfinite(wide(np.asarray(x))), out.shape)
        out[...] = np.where(infinite & finite, np.nan, out)


def input_overwritten(right: Call, call: Invocation) -> None:
    """Leave the result in the input, if both have one dtype."""
    right(call)
    x, out = call.inputs[0], call.outputs[0]
    if x.dtype == out.dtype and x.shape == out.shape:
        x[...] = out


def second_of_four_cleared(right: Call, call: Invocation) -> None:
    """Write 0 to the second of four halves that become bytes."""
    right(call)
    out, given = call.inputs[:2]
    if out.size == 4 and out.dtype.itemsize == 1 and given.dtype == np.float16:
        values = np.array(out)
        values.reshape(-1)[1] = 0
        out[...] = values


def correction_of_all_ignored(right: Call, call: Invocation) -> None:
    """Ignore the correction if no dimensions are given."""
    names = [a.name for a in call.schema.inputs]
    right(call.with_input(names.index("correction"), 1) if call.given("dim")[0] is None else call)


def short_rows_lost(limit: int, width: int) -> Wrong:
    """Leave the elements of a short row after its whole vectors."""

    @after
    def wrong(call: Invocation) -> None:
        out = call.outputs[0]
        size = out.shape[-1] if out.ndim else 0
        if width < size < limit and size % width:
            out[..., size - size % width :] = 0

    return wrong
