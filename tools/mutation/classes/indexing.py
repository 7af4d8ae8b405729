"""Elements are looked for in the wrong place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from isthmus.conformance.long import is_called_long
from isthmus.opset.schema import Argument
from tools.mutation.kernel import Array, Call, Invocation, Target
from tools.mutation.mutant import (
    Made,
    Mutation,
    Wrong,
    each,
    has_many,
    has_rows,
    per_input,
    per_tensor,
    read_as,
    reads,
    reads_many,
    written_as,
)

# Elements of a result that are equal, or fewer than those that are read.
_EQUAL_RESULTS = frozenset(("aten::fill_.Scalar", "aten::zero_"))


def _cut(bits: int) -> Wrong:
    """Read element ``i & mask`` in place of element i."""

    def change(x: Array) -> Array:
        flat = np.array(x).reshape(-1)
        return flat[np.arange(flat.size) & ((1 << bits) - 1)].reshape(x.shape)

    return read_as(change)


def _rounded_places(x: Array) -> Array:
    """Return the elements at places that were kept in float32: beyond 2^24 every second one is missed."""
    flat = x.reshape(-1)
    places = np.arange(flat.size)
    places[1 << 24 :] = places[1 << 24 :].astype(np.float32)
    return flat[np.minimum(places, flat.size - 1)].reshape(x.shape)


def _read_by_float32(x: Array) -> Array:
    return _rounded_places(np.array(x)) if x.size > 1 << 24 else x


def _written_by_float32(right: Call, call: Invocation) -> None:
    right(call)
    for x in call.results():
        if x.size > 1 << 24:
            x[...] = _rounded_places(np.array(x))


def _reads_long(target: Target) -> bool:
    return is_called_long(target.name) and reads_many(target)


def _writes_long(target: Target) -> bool:
    return is_called_long(target.name) and has_many(target) and target.name not in _EQUAL_RESULTS


def _sign_of_16_bits(right: Call, call: Invocation) -> None:
    """Drop the results whose index is negative as a signed 16-bit number."""

    def change(new: Array, old: Array) -> Array:
        lost = (np.arange(new.size) & 0x8000) != 0
        return np.where(lost, old.reshape(-1), new.reshape(-1))

    written_as(change)(right, call)


def _rows_limited(limit: int) -> Wrong:
    """Launch at most ``limit`` blocks, one for each row."""

    def change(new: Array, old: Array) -> Array:
        width = new.shape[-1] if new.ndim else 1
        rows, before = new.reshape(-1, width), old.reshape(-1, width)
        rows[limit:] = before[limit:]
        return rows

    return written_as(change)


def _pitch_of_rows(x: Array) -> Array:
    """Compute the address of a row from the number of rows, not of columns."""
    if x.ndim < 2:
        return x
    flat = np.array(x).reshape(-1)
    rows, columns = x.shape[-2:]
    within = (np.arange(rows)[:, None] * rows + np.arange(columns)) % (rows * columns)
    start = np.arange(0, flat.size, rows * columns)
    return flat[(start[:, None] + within.reshape(-1)).reshape(-1)].reshape(x.shape)


def _last_lost(x: Array) -> Array:
    """Read the last element of each row as the one before it."""
    if x.ndim == 0 or x.shape[-1] < 2:
        return x
    copy = np.array(x)
    copy[..., -1] = copy[..., -2]
    return copy


def _shifted(axis: int) -> Wrong:
    return written_as(lambda new, _: np.roll(new, 1, axis) if new.ndim >= -axis else new)


def _broadcast_wrong(target: Target) -> Made:
    def repeating(index: int) -> Wrong:
        def wrong(right: Call, call: Invocation) -> None:
            x = call.inputs[index]
            shape = np.broadcast_shapes(*(other.shape for other in call.read()))
            differs = x is not None and x.shape != shape and x.size
            right(call.with_input(index, np.resize(x, shape)) if differs else call)

        return wrong

    if target.operator.broadcasts and len(target.tensors()) > 1:
        for index in target.tensors():
            yield target.schema.inputs[index].name, partial(repeating, index)


def _operands_swapped(target: Target) -> Made:
    def swapping(left: int, other: int) -> Wrong:
        def wrong(right: Call, call: Invocation) -> None:
            a, b = call.inputs[left], call.inputs[other]
            alike = a is not None and b is not None and (a.shape, a.dtype) == (b.shape, b.dtype)
            right(call.with_input(left, b).with_input(other, a) if alike else call)

        return wrong

    names = [a.name for a in target.schema.inputs]
    if target.operator.broadcasts:
        for left, other in pairwise(target.tensors()):
            yield f"{names[left]}, {names[other]}", partial(swapping, left, other)


def _outputs_swapped(target: Target) -> Made:
    def swapping(left: int, other: int) -> Wrong:
        def wrong(right: Call, call: Invocation) -> None:
            a, b = call.outputs[left], call.outputs[other]
            if a is not None and b is not None:
                outputs = list(call.outputs)
                outputs[left], outputs[other] = b, a
                call = replace(call, outputs=outputs)
            right(call)

        return wrong

    names = [output.name for output in target.schema.outputs]
    for left, other in target.equal_outputs():
        yield f"{names[left]}, {names[other]}", partial(swapping, left, other)


def _tensor_of_list(choose: Callable[[list[Any]], list[Any]]) -> Callable[[Target], Made]:
    """Read a list of tensors as another list, with tensors of the right shapes."""

    def changed(_: Argument, values: list[Any]) -> list[Any]:
        if len(values) < 2 or any(item is None for item in values):
            return values
        pairs = zip(values, choose(values), strict=True)
        return [
            np.resize(other, item.shape).astype(item.dtype) if other.size else item for item, other in pairs
        ]

    return per_input(lambda _, a: a.is_list and a.is_tensor and not a.written, changed)


MUTATIONS = (
    Mutation("element index cut", each((12, 16), _cut, reads_many)),
    Mutation("sign of a 16-bit index", each(("",), lambda _: _sign_of_16_bits, has_many)),
    Mutation("index read in float32", each(("",), lambda _: read_as(_read_by_float32), _reads_long)),
    Mutation("index written in float32", each(("",), lambda _: _written_by_float32, _writes_long)),
    Mutation("grid limited", each((1024, 65535), _rows_limited, has_rows)),
    Mutation("pitch of rows", per_tensor(_pitch_of_rows, reads, 2)),
    Mutation("last element of a row lost", per_tensor(_last_lost, reads, 1)),
    Mutation("results shifted", each((-1, -2), _shifted, has_rows)),
    Mutation("wrong broadcast", _broadcast_wrong),
    Mutation("swapped operands", _operands_swapped),
    Mutation("outputs swapped", _outputs_swapped),
    Mutation("wrong tensor of a list", _tensor_of_list(lambda values: [*values[:-1], values[-2]])),
    Mutation("first tensor of a list", _tensor_of_list(lambda values: [values[0]] * len(values))),
)
