"""Faults of launches, tiles and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tools.mutation.bank.faults.common import (
    ALL_DTYPES,
    after,
    argument_of,
    axes_of,
    factors_of,
    only,
    when,
    wide,
)
from tools.mutation.kernel import Array, Call, Invocation, mapped
from tools.mutation.mutant import Wrong, count_in_whole_blocks, leaves_along, written_as


def _nothing(right: Call, call: Invocation) -> None:
    """Write nothing, as a kernel that is not launched."""


# Launch limits and widths of indices


def batches_wrapped(limit: int) -> Wrong:
    """Write batch b as batch ``b % limit``."""

    def change(new: Array, old: Array) -> Array:
        if new.ndim == 0 or len(new) <= limit:
            return new
        for start in range(0, len(new), limit):
            part = new[start : start + limit].copy()
            old[: len(part)] = part
        return old

    return written_as(change)


def batches_lost(limit: int) -> Wrong:
    """Write only so many elements of the first dimension."""

    def change(new: Array, old: Array) -> Array:
        if new.ndim:
            new[limit:] = old[limit:]
        return new

    return written_as(change)


def skipped_beyond(limit: int) -> Wrong:
    """Write nothing if the first argument has more elements in its first dimension."""

    def wrong(right: Call, call: Invocation) -> None:
        if not call.inputs[0].ndim or len(call.inputs[0]) <= limit:
            right(call)

    return wrong


def sorted_in_blocks(block: int) -> Wrong:
    """Sort blocks of a longer row, and do not merge them."""

    def wrong(right: Call, call: Invocation) -> None:
        x, dim = call.inputs[0], call.given("dim")[0]
        if not x.ndim or x.shape[dim] <= block:
            return right(call)
        for start in range(0, x.shape[dim], block):
            part = [slice(None)] * x.ndim
            part[dim] = slice(start, start + block)
            outputs = [out[tuple(part)] for out in call.outputs]
            right(replace(call.with_input(0, x[tuple(part)]), outputs=outputs))
            outputs[1][...] += start
        return None

    return wrong


def tiles_lost_by_16_bits(right: Call, call: Invocation) -> None:
    """Lose tiles of 32 rows whose number of rows left is negative in 16 bits."""

    def change(new: Array, old: Array) -> Array:
        rows = np.arange(len(new))
        left = len(new) - rows // 32 * 32
        lost = (left & 0xFFFF) >= 0x8000
        new[lost] = old[lost]
        return new

    written_as(change)(right, call)


def wide_slices_lost(limit: int) -> Wrong:
    """Add only the first elements of each slice."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        x, dim = call.inputs[:2]
        if x.ndim < 2 or not x.size:
            return
        out = call.outputs[0]
        values = np.array(np.moveaxis(out, dim, 0), order="C")
        before = np.array(np.moveaxis(x, dim, 0), order="C")
        values.reshape(len(values), -1)[:, limit:] = before.reshape(len(before), -1)[:, limit:]
        np.moveaxis(out, dim, 0)[...] = values

    return wrong


def indices_lost_beyond(limit: int) -> Wrong:
    """Accumulate only at the first indices."""

    def wrong(right: Call, call: Invocation) -> None:
        x, indices, values, accumulate = call.inputs
        given = [i for i in indices if i is not None]
        if not accumulate or any(i.ndim != 1 or i.dtype == np.bool_ for i in given):
            return right(call)
        if not given or min(map(len, given)) <= limit or indices[0] is None:
            return right(call)
        index = tuple(slice(None) if i is None else i for i in indices)
        values = np.broadcast_to(values, x[index].shape)[:limit]
        cut = mapped(lambda i: i[:limit], indices)
        return right(call.with_input(1, cut).with_input(2, values))

    return wrong


def statistics_of_first_rows(limit: int) -> Wrong:
    """Compute the gradients of weight and bias from the first rows of (N, C, 1, 1)."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        grad, x = call.inputs[:2]
        if not x.size or x.size != x.shape[0] * x.shape[1] or x.shape[0] <= limit or x.shape[1] < 2:
            return
        part = [None if out is None else np.array(out) for out in call.outputs]
        part[0] = None if part[0] is None else part[0][:limit]
        cut = call.with_input(0, grad[:limit]).with_input(1, x[:limit])
        right(replace(cut, outputs=part))
        for out, value in zip(call.outputs[1:], part[1:], strict=True):
            if out is not None:
                out[...] = value

    return wrong


def kernel_rows_beyond_width(right: Call, call: Invocation) -> None:
    """Walk over the rows of a kernel as far as it is wide."""
    weight = call.inputs[1]
    if weight.ndim == 4 and weight.shape[-2] > weight.shape[-1]:
        copy = np.array(weight)
        copy[..., weight.shape[-1] :, :] = 0
        call = call.with_input(1, copy)
    right(call)


def heads_of_64(right: Call, call: Invocation) -> None:
    """Compute scores from the first 64 elements of heads."""
    query, key = call.inputs[:2]
    if query.shape[-1] > 64:
        query, key = np.array(query), np.array(key)
        query[..., 64:] = key[..., 64:] = 0
        call = call.with_input(0, query).with_input(1, key)
    right(call)


@after
def second_half_unrotated(call: Invocation) -> None:
    """Keep the second half of heads if there is no key."""
    query, key = call.inputs[:2]
    if key is None and query.size and not call.given("interleaved")[0]:
        half = query.shape[-1] // 2
        call.outputs[0][..., half:] = query[..., half:]


# Sizes, launches, tiles


def not_launched(limit: int, rows: bool = False) -> Wrong:
    """Write nothing where the first dimension, or the number of rows, exceeds the grid."""

    def exceeds(call: Invocation) -> bool:
        shape = call.read()[0].shape
        return bool(shape) and (math.prod(shape[:-1]) if rows else shape[0]) > limit

    return when(exceeds, _nothing)


def last_terms_not_clipped(limit: int, least: int, tile: int) -> Wrong:
    """Sum a whole last tile of terms where there are many: what follows the operands is summed in."""

    def wrong(right: Call, call: Invocation) -> None:
        a, b = (np.asarray(wide(call.inputs[i])) for i in factors_of(call))
        terms = a.shape[-1]
        extra = -terms % tile
        right(call)
        if terms > limit and extra and a.shape[-2] >= least and b.shape[-1] >= least:
            out = call.outputs[0]
            out[...] = wide(np.array(out)) + np.matmul(a[..., :extra], b[..., :extra, :])

    return wrong


def _multiplied(change: Callable[[Array, Array], tuple[Array, Array]]) -> Wrong:
    """Make a kernel that multiplies other factors."""

    def wrong(right: Call, call: Invocation) -> None:
        i, j = factors_of(call)
        a, b = change(call.inputs[i], call.inputs[j])
        right(call.with_input(i, a).with_input(j, b))

    return wrong


def terms_lost(block: int, beyond: int = 0, dtypes: str = ALL_DTYPES) -> Wrong:
    """Lose the terms of a product after whole blocks, where there are more terms than a limit."""

    def change(a: Array, b: Array) -> tuple[Array, Array]:
        terms = a.shape[-1]
        if terms <= beyond or not terms % block:
            return a, b
        kept = terms - terms % block
        return a[..., :kept], b[..., :kept, :]

    return only(dtypes, _multiplied(change))


def terms_of_next_row(block: int) -> Wrong:
    """Multiply whole blocks of terms in a batch: the next row times the rows of the next matrix."""

    def wrong(right: Call, call: Invocation) -> None:
        a, b = (np.asarray(wide(call.inputs[i])) for i in factors_of(call))
        right(call)
        terms = a.shape[-1]
        extra = min(-terms % block, terms)
        if extra and a.ndim == 3 and len(a) > 1 and a.shape[-2]:
            following = np.roll(a.reshape(-1, terms), -1, 0).reshape(a.shape)
            out = call.outputs[0]
            more = np.matmul(following[:-1, :, :extra], b[1:, :extra])
            out[:-1] = wide(np.array(out[:-1])) + more

    return wrong


def columns_lost(tile: int, rows: int = 0, terms: int = 0, dtypes: str = ALL_DTYPES) -> Wrong:
    """Lose the columns of a partial tile: of products of at most some rows, and at least some terms."""

    def concerned(call: Invocation) -> bool:
        a = call.inputs[factors_of(call)[0]]
        return bool((not rows or (a.ndim > 1 and a.shape[-2] <= rows)) and a.shape[-1] >= terms)

    return only(dtypes, when(concerned, leaves_along(-1, lambda n: n - n % tile)))


def columns_lost_at(size: int, start: int) -> Wrong:
    """Lose columns of results that have exactly one width."""
    return leaves_along(-1, lambda n: start if n == size else n)


def filled_up_to(limit: int) -> Wrong:
    """Fill only the first results along the dimension; the others are 0."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        for x in call.outputs:
            if x.ndim and x.size:
                at: list[Any] = [slice(None)] * x.ndim
                at[argument_of(call, "dim")] = slice(limit, None)
                x[tuple(at)] = 0

    return wrong


def _statistics_of_part(start: Callable[[int], int]) -> Wrong:
    """Make a layer normalization whose statistics are of the first ``start(size)`` elements of each row."""

    def wrong(right: Call, call: Invocation) -> None:
        x, shape, weight, bias, eps = call.inputs
        size = math.prod(shape)
        part = start(size)
        if part == size or not x.size:
            return right(call)
        rows = np.asarray(wide(x)).reshape(-1, size)
        center, rstd = rows[:, :part].mean(1), 1 / np.sqrt(rows[:, :part].var(1) + eps)
        y = ((rows - center[:, None]) * rstd[:, None]).reshape(x.shape)
        y = y if weight is None else y * wide(weight)
        results = (y if bias is None else y + wide(bias), center, rstd)
        for out, result in zip(call.outputs, results, strict=True):
            out[...] = result.reshape(out.shape)
        return None

    return wrong


def half_of_a_size(size: int) -> Wrong:
    """Normalize rows of one size by the statistics of their first half."""
    return _statistics_of_part(lambda n: n // 2 if n == size else n)


def partial_block_of_large_rows(limit: int, block: int) -> Wrong:
    """Normalize rows beyond a size by the statistics of their whole blocks."""
    return _statistics_of_part(lambda n: count_in_whole_blocks(n, block) if n > limit else n)


@after
def half_of_odd_rows(call: Invocation) -> None:
    """Lose the second half of every other long row of a float32 mean along the last dimension."""
    x, out = call.inputs[0], call.outputs[0]
    if x.dtype == np.float32 and x.ndim > 1 and axes_of(call) == (x.ndim - 1,) and x.shape[-1] > 64:
        if not argument_of(call, "keepdim"):
            return
        size = x.shape[-1]
        lost = wide(np.array(x))[..., size // 2 :].sum(-1, keepdims=True) / size
        odd = np.arange(out.size).reshape(out.shape) % 2 == 1
        out[...] = np.where(odd, wide(np.array(out)) - lost, out)


def outer_block_only(block: int) -> Wrong:
    """Reduce only the first block of the outer of two or more dimensions; a mean divides by all of them."""

    def wrong(right: Call, call: Invocation) -> None:
        x, axes = call.inputs[0], axes_of(call)
        if len(axes) < 2 or x.shape[axes[0]] <= block:
            return right(call)
        shorter = np.array(x)
        at: list[Any] = [slice(None)] * x.ndim
        at[axes[0]] = slice(block, None)
        shorter[tuple(at)] = 0
        return right(call.with_input(0, shorter))

    return wrong


@after
def first_plane_only(call: Invocation) -> None:
    """Write 0 to all but the first plane of the gradient of the input of a kernel of size 1."""
    weight, gradient = call.given("weight")[0], call.outputs[0]
    if gradient is not None and math.prod(weight.shape[2:]) == 1:
        gradient[:, 1:] = 0


def heads_overlap(size: int, least: int, tile: int) -> Wrong:
    """Write the first tile of heads to the others, where the heads have one size and are at least so many."""

    def wrong(right: Call, call: Invocation) -> None:
        x, dim = call.given("query", "dim")
        axis = 3 - argument_of(call, "seq_dim")
        right(call)
        out = call.outputs[0]
        if dim == size and x.shape[-1] == size and x.ndim > axis and x.shape[axis] >= least:
            out[...] = np.take(np.array(out), np.arange(x.shape[axis]) % tile, axis)

    return wrong


def last_channels_ignored(outputs: int, inputs: int) -> Wrong:
    """Ignore the last input channel of groups with some numbers of channels."""

    def wrong(right: Call, call: Invocation) -> None:
        x, weight = call.inputs[:2]
        groups, transposed = call.given("groups", "transposed")
        concerned = not transposed and groups > 1 and weight.shape[1] == inputs
        if not concerned or (len(weight) // groups) % outputs:
            return right(call)
        fewer = np.array(x)
        fewer[:, inputs - 1 :: inputs] = 0
        return right(call.with_input(0, fewer))

    return wrong


# Scans, and reductions in several launches


def scan_restarted(block: int) -> Wrong:
    """Begin anew after each block of a running sum."""

    def wrong(right: Call, call: Invocation) -> None:
        x, dim = call.inputs[:2]
        if not x.ndim or x.shape[dim] <= block:
            return right(call)
        for start in range(0, x.shape[dim], block):
            part = [slice(None)] * x.ndim
            part[dim] = slice(start, start + block)
            right(replace(call.with_input(0, x[tuple(part)]), outputs=[call.outputs[0][tuple(part)]]))
        return None

    return wrong


def without_carry(call: Invocation, rows: slice, block: int) -> None:
    """Remove the sum of the first block from what follows it, in some rows of a running sum."""
    out, dim = call.outputs[0], call.inputs[1]
    moved = np.moveaxis(out, dim, -1)
    values = np.array(moved)
    flat = values.reshape(-1, values.shape[-1])
    flat[rows, block:] = wide(flat[rows, block:]) - wide(flat[rows, block - 1 : block])
    moved[...] = flat.reshape(values.shape)


def carries_lost_in_later_rows(block: int) -> Wrong:
    """Lose the carries of the second half of the rows, where rows are no multiple of a block."""

    @after
    def wrong(call: Invocation) -> None:
        out, dim = call.outputs[0], call.inputs[1]
        n = out.shape[dim] if out.ndim else 0
        if n > block and n % block and out.size > n:
            without_carry(call, slice(out.size // n // 2, None), block)

    return wrong


def outer_slices_repeated(right: Call, call: Invocation) -> None:
    """Read the first slice of outer reduced dimensions for all others, if a kept one is between them and others."""
    x, axes = call.inputs[0], axes_of(call)
    inner = [axis for axis in range(x.ndim) if axis not in axes]
    outer = [axis for axis in axes if inner and axis < inner[0]]
    if len(outer) < 2 or len(axes) - len(outer) < 2 or not x.size:
        return right(call)
    first = x[tuple(slice(0, 1) if axis in outer else slice(None) for axis in range(x.ndim))]
    return right(call.with_input(0, np.broadcast_to(first, x.shape)))


def sum_of_ones_lost(least: int) -> Wrong:
    """Write only the first of many sums over dimensions of size 1; the others are 0."""

    @after
    def wrong(call: Invocation) -> None:
        x, out = call.inputs[0], call.outputs[0]
        if x.size >= least and axes_of(call) and x.size == out.size:
            values = np.array(out)
            values.reshape(-1)[1:] = 0
            out[...] = values

    return wrong


def norms_shifted_by_empty(limit: int) -> Wrong:
    """Write the norms after the first launch, of so many tensors, farther on by the number of empty ones."""

    @after
    def wrong(call: Invocation) -> None:
        tensors, outputs = call.inputs[0], call.outputs[0]
        full = [i for i, x in enumerate(tensors) if x.size]
        slots = np.zeros(len(tensors) + 1)
        for number, i in enumerate(full):
            start = number // limit * limit
            empty = full[start] - start if start else 0
            slots[number + empty] = wide(np.array(outputs[i]))
        for number, i in enumerate(full):
            outputs[i][...] = slots[number]

    return wrong


def terms_of_extra_stage(block: int) -> Wrong:
    """Multiply an even number of blocks of terms: what follows the operands is summed in."""

    @after
    def wrong(call: Invocation) -> None:
        a, b = (np.asarray(wide(call.inputs[i])) for i in factors_of(call))
        if a.shape[-1] % (2 * block) == block and a.size and b.size:
            out = call.outputs[0]
            following = np.roll(a.reshape(-1, a.shape[-1]), -1, 0).reshape(a.shape)
            more = np.matmul(following[..., :block], b[..., :block, :])
            out[...] = wide(np.array(out)) + more

    return wrong


def rows_zero_from(limit: int) -> Wrong:
    """Write 0 to the rows of a product beyond a number."""

    @after
    def wrong(call: Invocation) -> None:
        call.outputs[0][..., limit:, :] = 0

    return wrong


def half_of_columns(tile: int) -> Wrong:
    """Write as many tiles of columns as there are pairs of them."""
    return leaves_along(-1, lambda n: min(n, tile * -(-n // (2 * tile))))


def sum_of_first(size: int, dtype: str) -> Wrong:
    """Form the sum of a softmax, in one dtype, of the first exponentials of a row."""

    @after
    def wrong(call: Invocation) -> None:
        x, dim = call.inputs[:2]
        if x.dtype.name != dtype or not x.ndim or x.shape[dim] <= size or not x.size:
            return
        out, given = call.outputs[0], wide(np.moveaxis(np.array(x), dim, -1))
        largest = given.max(-1, keepdims=True)
        terms = np.exp(given - largest)
        lost = terms[..., :size].sum(-1, keepdims=True)
        result = given - largest - np.log(lost) if "log" in call.schema.name else terms / lost
        out[...] = np.moveaxis(result, -1, dim)

    return wrong


@after
def unwritten_if_window_is_image(call: Invocation) -> None:
    """Give zeros for the gradient of a pooling whose window is the whole image."""
    x, kernel = call.given("self", "kernel_size")
    if x.size and x.ndim > 2 and tuple(kernel) == x.shape[-2:]:
        call.outputs[0][...] = 0


def vector_of_first_rows(limit: int) -> Wrong:
    """Read a vector beside a matrix anew in each run of so many results."""

    def wrong(right: Call, call: Invocation) -> None:
        x, other = call.inputs[:2]
        right(call)
        out = call.outputs[0]
        for index, vector in enumerate((x, other)):
            matrix = call.inputs[1 - index]
            if vector.ndim == 1 and matrix.ndim == 2 and out.size > limit and vector.size > 1:
                flat = np.arange(out.size) % limit % vector.size
                read = vector[flat].reshape(out.shape)
                right(call.with_input(index, read))

    return wrong


def large_rows_nan(size: int, multiple: int) -> Wrong:
    """Normalize rows of whole blocks, but of another number than one, by the squares of all blocks but the last."""

    @after
    def wrong(call: Invocation) -> None:
        x, out = call.inputs[0], call.outputs[0]
        n = x.shape[-1]
        if n % multiple or n == size or n < 2 * multiple or not x.size:
            return
        given = np.asarray(wide(np.array(x)))
        whole = np.square(given).mean(-1, keepdims=True)
        part = np.square(given[..., :-multiple]).sum(-1, keepdims=True) / n
        out[...] = wide(np.array(out)) * np.sqrt(whole / part)

    return wrong


def windows_end_early(right: Call, call: Invocation) -> None:
    """End the windows of an adaptive pooling at the floor of their end."""
    x, size = call.inputs[:2]
    right(call)
    out = call.outputs[0]
    if not out.size or all(n % m == 0 for n, m in zip(x.shape[-2:], size, strict=True)):
        return
    result = np.asarray(wide(np.array(x)))
    for axis, m in zip((-2, -1), size, strict=True):
        n = result.shape[axis]
        rows = np.moveaxis(result, axis, 0)
        parts = [rows[i * n // m : max((i + 1) * n // m, i * n // m + 1)].mean(0) for i in range(m)]
        result = np.moveaxis(np.stack(parts), 0, axis)
    out[...] = result
