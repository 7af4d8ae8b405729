"""Faults of indices and of broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tools.mutation.bank.faults.common import when, wide
from tools.mutation.bank.faults.formulas import ignored_are_counted
from tools.mutation.bank.faults.layouts import flipped
from tools.mutation.kernel import Array, Call, Invocation, mapped
from tools.mutation.mutant import Wrong

# Indices


def _repeats(index: Array) -> bool:
    return bool(np.unique(index).size < index.size)


def index_add_of_last(right: Call, call: Invocation) -> None:
    """Add only the last of the rows of an index."""
    x, dim, index, source, alpha = call.inputs
    if not x.ndim or not _repeats(index):
        return right(call)
    result, index = np.array(x), index.reshape(-1)
    rows, added = np.moveaxis(result, dim, 0), np.moveaxis(source, dim, 0)
    with np.errstate(all="ignore"):
        rows[index] = (rows[index] + np.asarray(alpha) * added).astype(x.dtype)
    call.outputs[0][...] = result
    return None


def scatter_add_of_last(right: Call, call: Invocation) -> None:
    """Add only the last of the elements of an index."""
    x, dim, index, src = call.inputs
    if not x.ndim or not index.size:
        return right(call)
    places = list(np.indices(index.shape))
    places[dim] = index
    at = tuple(places)
    if not _repeats(np.ravel_multi_index(at, x.shape)):
        return right(call)
    result = np.array(x)
    with np.errstate(all="ignore"):
        result[at] = result[at] + src[tuple(map(slice, index.shape))]
    call.outputs[0][...] = result
    return None


def embedding_gradient_of_last(right: Call, call: Invocation) -> None:
    """Keep the gradient of the last of equal indices."""
    grad, indices, _, padding = call.inputs[:4]
    if not _repeats(indices):
        return right(call)
    out = call.outputs[0]
    result = np.zeros(out.shape, out.dtype)
    result[indices.reshape(-1)] = grad.reshape(-1, grad.shape[-1])
    if padding >= 0:
        result[padding] = 0
    out[...] = result
    return None


def negative_index(wraps: bool) -> Wrong:
    """Add the rank, not the size, to negative indices; or read the first element for them."""

    def wrong(right: Call, call: Invocation) -> None:
        x, indices = call.inputs[:2]

        def change(index: Array) -> Array:
            if index.dtype == np.bool_:
                return index
            return np.where(index < 0, np.maximum(index + x.ndim, 0) if wraps else 0, index)

        changed = mapped(change, indices)
        sizes = [x.shape[axis] for axis in range(min(len(changed), x.ndim))]
        limited = [
            i if i is None or i.dtype == np.bool_ else np.minimum(i, n - 1)
            for i, n in zip(changed, sizes, strict=False)
        ]
        right(call.with_input(1, limited))

    return wrong


ignored_are_counted_if_negative = when(lambda call: call.given("ignore_index")[0] < 0, ignored_are_counted)


def block_flattened(right: Call, call: Invocation) -> None:
    """Write a block of columns as one run of elements."""
    x, src, dim, start, _, step = call.inputs
    if x.ndim < 2 or dim not in (-1, x.ndim - 1) or step != 1 or not src.size or src.shape == x.shape:
        return right(call)
    first = 0 if start is None else start + x.shape[-1] if start < 0 else start
    flat = np.array(x).reshape(-1)
    flat[max(first, 0) :][: src.size] = np.array(src).reshape(-1)
    call.outputs[0][...] = flat.reshape(x.shape)
    return None


# Broadcast


def self_as_scalar(right: Call, call: Invocation) -> None:
    """Repeat the first element of rows if both other operands have one element."""
    condition, x, other = call.inputs
    if condition.size == 1 == other.size and x.ndim and x.size > 1:
        call = call.with_input(1, np.broadcast_to(x[..., :1], x.shape))
    right(call)


def source_not_repeated(right: Call, call: Invocation) -> None:
    """Copy only as many elements as a source of the same rank has."""
    x, src = call.inputs[:2]
    if x.ndim != src.ndim or x.shape == src.shape or not src.size:
        return right(call)
    result = np.array(x, order="C")
    result.reshape(-1)[: src.size] = np.array(src).reshape(-1).astype(x.dtype)
    x[...] = result
    return None


def outer_not_broadcast(argument: str) -> Wrong:
    """Read outer dimensions of size 1, or missing ones, beyond the tensor's memory."""

    def wrong(right: Call, call: Invocation) -> None:
        position = [a.name for a in call.schema.inputs].index(argument)
        shape, x = call.inputs[0].shape, call.inputs[position]
        if x is None or not x.size or len(shape) < 3:
            return right(call)
        if x.shape == shape or x.ndim > len(shape) or x.shape[-2:] != shape[-2:]:
            return right(call)
        flat = np.array(x, order="C").reshape(-1)
        known = np.concatenate([flat, flipped(flat[-1:])])
        read = known[np.minimum(np.arange(math.prod(shape)), flat.size)].reshape(shape)
        return right(call.with_input(position, read))

    return wrong


def last_not_broadcast(right: Call, call: Invocation) -> None:
    """Read the last dimension of size 1 of the other operand as a longer one."""
    x, other = call.inputs[:2]
    if not other.ndim or not x.ndim or not other.size or other.shape[-1] != 1 or x.shape[-1] == 1:
        return right(call)
    shape = np.broadcast_shapes(x.shape, other.shape)
    flat = np.array(other, order="C").reshape(-1)
    index = np.broadcast_to(np.arange(flat.size).reshape(other.shape), shape) + np.arange(shape[-1])
    known = np.concatenate([flat, flipped(flat[-1:])])
    return right(call.with_input(1, known[np.minimum(index, flat.size)]))


def _both(change: Callable[[Array, Array], Array]) -> Wrong:
    """Make a kernel that reads each of two operands as ``change(operand, the other)``."""

    def wrong(right: Call, call: Invocation) -> None:
        x, other = call.inputs[:2]
        if x.size and other.size:
            call = call.with_input(0, change(x, other)).with_input(1, change(other, x))
        right(call)

    return wrong


def _by_sticks(x: Array, other: Array) -> Array:
    if x.ndim < 2 or x.shape[-1] != 1 or not other.ndim or other.shape[-1] <= 64:
        return x
    rows = np.arange(x.shape[-2])[:, None] + np.arange(other.shape[-1]) // 64
    return x[..., 0][..., rows % x.shape[-2]]


column_of_other_rows = _both(_by_sticks)


def _first_channel(x: Array, other: Array) -> Array:
    if x.ndim < 3 or x.shape[-2:] != (1, 1) or other.ndim < 2 or 1 in other.shape[-2:]:
        return x
    return np.broadcast_to(x.reshape(-1)[0], x.shape)


channel_of_first = _both(_first_channel)


def channels_as_columns(right: Call, call: Invocation) -> None:
    """Read an operand of one element for each channel as a row."""
    x, other = call.inputs[:2]
    if 1 < other.size < x.size and x.size % other.size == 0 and other.shape[-1] != x.shape[-1]:
        call = call.with_input(1, np.resize(np.array(other).reshape(-1), x.shape))
    right(call)


def aligned_left(right: Call, call: Invocation) -> None:
    """Align the dimensions of an operand of a lower rank at the left."""
    x, other = call.inputs[:2]
    shape = (*other.shape, *(1,) * (x.ndim - other.ndim))
    if 0 < other.ndim < x.ndim and all(n in (1, m) for n, m in zip(shape, x.shape, strict=True)):
        call = call.with_input(1, other.reshape(shape))
    right(call)


def negative_dim_of_rank_4(right: Call, call: Invocation) -> None:
    """Count negative dimensions of a tensor of rank 5 from the fourth."""
    x, dims, _ = call.inputs
    if x.ndim != 5 or not dims or min(dims) >= 0:
        return right(call)
    axes = tuple(sorted({d if d >= 0 else (d + 4) % 5 for d in dims}))
    out: Any = call.outputs[0]
    out[...] = np.resize(wide(x).sum(axes), out.shape)
    return None
