"""Faults of offsets and of unaligned addresses."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tools.mutation.bank.faults.layouts import ALLOCATION, fits, has_columns, is_strided, reading
from tools.mutation.classes.alignment import address_of, moved
from tools.mutation.kernel import Array, Call, Invocation, mapped
from tools.mutation.mutant import Wrong, written_as


def address_rounded(
    width: int = ALLOCATION, argument: str = "", layout: str = "any", rank: int = -1, itemsize: int = 0
) -> Wrong:
    """Read from addresses rounded down; by default to the start of the tensor's memory."""
    return reading(lambda x: moved(x, -(address_of(x) % width)), argument, layout, rank, itemsize)


def result_address_rounded(width: int = ALLOCATION, itemsize: int = 0) -> Wrong:
    """Write to addresses rounded down; by default to the start of the result's memory."""

    def rounded(x: Array) -> Array:
        return moved(x, -(address_of(x) % width)) if fits(x, "any", -1, itemsize) else x

    def wrong(right: Call, call: Invocation) -> None:
        pairs = zip(call.schema.inputs, call.inputs, strict=True)
        inputs = [mapped(rounded, x) if a.is_tensor and a.written else x for a, x in pairs]
        right(replace(call, inputs=inputs, outputs=mapped(rounded, call.outputs)))

    return wrong


def rows_rounded(width: int, argument: str, itemsize: int = 0, least: int = 2) -> Wrong:
    """Read each row of some length from its address rounded down."""

    def change(x: Array) -> Array:
        if x.ndim < 2 or x.shape[-1] < least or has_columns(x):
            return x
        start = address_of(x)
        low = start - start % width
        span = sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) + x.itemsize
        raw = np.frombuffer((ctypes.c_char * (start - low + span)).from_address(low), np.uint8)
        rows = np.zeros(x.shape[:-1], np.int64)
        for axis, (n, step) in enumerate(zip(x.shape[:-1], x.strides[:-1], strict=True)):
            rows += (np.arange(n) * step).reshape(-1, *(1,) * (x.ndim - axis - 2))
        first = (start + rows) // width * width - low
        index = first[..., None] + np.arange(x.shape[-1] * x.itemsize)
        return raw[index].view(x.dtype).reshape(x.shape)

    return reading(change, argument, itemsize=itemsize)


def _rows_stored_rounded(width: int, row: Callable[[Array], int]) -> Wrong:
    def change(new: Array, old: Array) -> Array:
        lanes, size = max(1, width // new.itemsize), row(new)
        if size % lanes == 0 or new.size == size:
            return new
        values = old.reshape(-1).copy()
        for start in range(0, new.size, size):
            values[start // lanes * lanes :][:size] = new.reshape(-1)[start:][:size]
        return values

    return written_as(change)


def rows_written_rounded(width: int) -> Wrong:
    """Write each row from the last aligned element before it."""
    return _rows_stored_rounded(width, lambda x: x.shape[-1] if x.ndim else x.size)


def planes_written_rounded(width: int) -> Wrong:
    """Write the plane of each channel from the last aligned element before it."""
    return _rows_stored_rounded(width, lambda x: math.prod(x.shape[2:]) if x.ndim > 2 else x.size)


def row_ends_unnormalized(right: Call, call: Invocation) -> None:
    """Leave the last elements of long rows as read, as many as the row's start is beyond an aligned one."""
    right(call)
    x, dim, out = call.inputs[0], call.inputs[1], call.outputs[0]
    if not x.size or x.ndim < 2 or dim not in (-1, x.ndim - 1) or x.shape[-1] <= 1024:
        return
    lanes, n = 16 // x.itemsize, x.shape[-1]
    values, read = np.array(out).reshape(-1, n), np.array(x).reshape(-1, n)
    for row in range(len(values)):
        start = n - row * n % lanes
        values[row, start:] = read[row, start:]
    out[...] = values.reshape(out.shape)


def _last_cleared(x: Array) -> Array:
    if x.itemsize >= 4 or address_of(x) % 4 == 0 or is_strided(x):
        return x
    copy = np.array(x)
    copy.reshape(-1)[-1] = 0
    return copy


def last_cleared_if_unaligned(argument: str = "") -> Wrong:
    """Read the last element as 0 if it shares a word with memory behind the tensor."""
    return reading(_last_cleared, argument)


def added_at_start_of_word(right: Call, call: Invocation) -> None:
    """Add to elements of one byte at the start of the 4 bytes that contain them."""
    right(call)
    x, out = call.inputs[0], call.outputs[0]
    if x.itemsize > 1 or not x.size or is_strided(out):
        return
    before = np.array(x).reshape(-1).view(np.uint8)
    added = np.array(out).reshape(-1).view(np.uint8) - before
    out[...] = x
    for index in np.flatnonzero(added):
        address = address_of(out) + int(index)
        word = ctypes.c_uint8.from_address(address - address % 4)
        word.value = (word.value + int(added[index])) & 0xFF
