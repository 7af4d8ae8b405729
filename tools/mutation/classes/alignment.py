"""Addresses are assumed to be divisible by the width of a vector."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import partial

import numpy as np

from tools.mutation.kernel import Array, Call, Invocation, Target, mapped
from tools.mutation.mutant import Mutation, Wrong, each, has_rows, per_tensor, read_as, reads_rows, written_as

_WIDTHS = (16, 64)


def address_of(x: Array) -> int:
    """Return the address of an array's first element."""
    return int(x.__array_interface__["data"][0])


def moved(x: Array, nbytes: int) -> Array:
    """Return the array with its address moved by nbytes."""
    span = (1 + sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) // x.itemsize) * x.itemsize
    memory = (ctypes.c_char * span).from_address(address_of(x) + nbytes)
    return np.ndarray(x.shape, x.dtype, memory, strides=x.strides)


def _aligned(x: Array, width: int) -> Array:
    """Return the array that a load reads which drops the low bits of an address."""
    return moved(x, -(address_of(x) % width)) if x.size else x


def _has_vectors(target: Target) -> bool:
    """Whether a tensor of the kernel can have more elements than one."""
    return max(target.rank_read, target.rank_written) > 0


def _result_rounded(width: int) -> Wrong:
    """Write results at addresses rounded down."""
    rounded = partial(_aligned, width=width)
    return lambda right, call: right(replace(call, outputs=mapped(rounded, call.outputs)))


def _head_lost(width: int) -> Wrong:
    """Leave the elements before the first aligned address."""

    def wrong(right: Call, call: Invocation) -> None:
        results = list(call.results())
        before = [np.array(x, order="C") for x in results]
        right(call)
        for x, old in zip(results, before, strict=True):
            count = min(-address_of(x) % width // x.itemsize, x.size)
            values = np.array(x, order="C")
            values.reshape(-1)[:count] = old.reshape(-1)[:count]
            x[...] = values

    return wrong


def _rows_rounded(width: int) -> Wrong:
    """Read each row from the last aligned element before it: rows are assumed to begin aligned."""

    def change(x: Array) -> Array:
        lanes = max(1, width // x.itemsize)
        if x.ndim < 2 or x.shape[-1] % lanes == 0:
            return x
        flat = np.array(x).reshape(-1)
        starts = np.arange(0, flat.size, x.shape[-1]) // lanes * lanes
        return flat[(starts[:, None] + np.arange(x.shape[-1])).reshape(-1)].reshape(x.shape)

    return read_as(change)


def _written_rows_rounded(width: int) -> Wrong:
    """Write each row from the last aligned element before it."""

    def change(new: Array, old: Array) -> Array:
        lanes = max(1, width // new.itemsize)
        if new.ndim < 2 or new.shape[-1] % lanes == 0:
            return new
        values = old.reshape(-1).copy()
        for row in range(new.size // new.shape[-1]):
            start = row * new.shape[-1]
            values[start // lanes * lanes :][: new.shape[-1]] = new.reshape(-1)[start:][: new.shape[-1]]
        return values

    return written_as(change)


def _vector_path_alone(width: int) -> Wrong:
    """Compute nothing where an address is not aligned: the scalar path is missing."""

    def wrong(right: Call, call: Invocation) -> None:
        if not any(address_of(x) % width for x in [*call.read(), *call.results()] if x.size):
            right(call)

    return wrong


MUTATIONS = (
    *(
        Mutation(f"read from an address rounded to {n}", per_tensor(partial(_aligned, width=n), least=1))
        for n in _WIDTHS
    ),
    Mutation(
        "written to a rounded address",
        each(_WIDTHS, _result_rounded, lambda target: bool(target.schema.outputs)),
    ),
    Mutation("head not written", each(_WIDTHS, _head_lost, _has_vectors)),
    Mutation("rows read as aligned", each(_WIDTHS, _rows_rounded, reads_rows)),
    Mutation("rows written as aligned", each(_WIDTHS, _written_rows_rounded, has_rows)),
    Mutation("no scalar path", each(_WIDTHS, _vector_path_alone, _has_vectors)),
)
