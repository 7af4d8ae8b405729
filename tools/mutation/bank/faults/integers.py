"""Faults of integers: their range, conversions, division, rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from tools.mutation.bank.faults.common import ALL_DTYPES, axes_of, in_vectors, only, redone, to_float32, wide
from tools.mutation.kernel import Array, Call, Invocation
from tools.mutation.mutant import Wrong, is_float, read_as


def _integers(change: Callable[[Array], Array], dtypes: str = "int32 int64") -> Wrong:
    """Make a kernel that reads integers of some dtypes as ``change(array)``."""
    return read_as(lambda x: change(x) if dt.name_of(x.dtype) in dtypes.split() else x)


integers_in_float32 = _integers(lambda x: x.astype(np.float32).astype(x.dtype))
integers_in_float64 = _integers(lambda x: x.astype(np.float64).astype(x.dtype), "int64")
integers_in_32_bits = _integers(lambda x: x.astype(np.int32).astype(x.dtype), "int64")


def number_in_float32(right: Call, call: Invocation) -> None:
    """Compute integers, and the number, in float32."""
    if call.outputs[0].dtype.kind not in "iu":
        return right(call)
    return integers_in_float32(right, call.with_input(1, int(np.float32(call.inputs[1]))))


@redone
def quotient_by_reciprocal(out: Array, x: Array, y: Array) -> Any:
    """Divide int32 by way of a float32 reciprocal, and round down."""
    if out.dtype != np.int32:
        return out
    return np.where(y == 0, out, np.floor(to_float32(x) * (np.float32(1) / to_float32(y))).astype(np.int64))


@redone
def truncated_quotient(out: Array, x: Array, y: Array) -> Any:
    """Divide negative integers by C's rules."""
    if out.dtype.kind != "i":
        return out
    return np.where(
        (y != 0) & (np.remainder(x, np.where(y == 0, 1, y)) != 0) & ((x < 0) != (y < 0)), out + 1, out
    )


@redone
def remainder_of_c(out: Array, x: Array, y: Array) -> Any:
    """Give the remainder of integers the sign of the dividend."""
    if out.dtype.kind != "i":
        return out
    return np.where(y == 0, out, np.fmod(x, np.where(y == 0, 1, y)))


@redone
def bits_as_float(out: Array, x: Array, y: Array) -> Any:
    """Read the bits of an integer divisor as float32, where the dividend is floating-point."""
    if not is_float(x) or y.dtype.kind not in "iu":
        return out
    return np.floor_divide(wide(x), y.astype(np.int32).view(np.float32).astype(np.float64))


def saturating_conversion(source: str, target: str) -> Wrong:
    """Clip numbers beyond the target's range, from dtypes of a kind (as of NumPy) to some dtypes."""

    def wrong(right: Call, call: Invocation) -> None:
        out, given = call.inputs[:2]
        if given.dtype.kind not in source or dt.name_of(out.dtype) not in target.split():
            return right(call)
        limits, exact = np.iinfo(out.dtype), np.asarray(wide(given))
        outside = (exact < limits.min) | (exact > limits.max)
        clipped = np.where(exact < 0, limits.min, limits.max).astype(out.dtype)
        right(call)
        out[...] = np.where(outside, clipped, out)
        return None

    return wrong


def negative_as_zero(vector: int) -> Wrong:
    """Convert negative floating-point numbers to 0 of uint8, in whole vectors."""

    def wrong(right: Call, call: Invocation) -> None:
        out, given = call.inputs[:2]
        if out.dtype != np.uint8 or not is_float(given):
            return right(call)
        negative = np.broadcast_to(wide(given) <= -1, out.shape)
        right(call)
        out[...] = np.where(negative & in_vectors(out, vector), 0, out)
        return None

    return wrong


def sum_wraps(right: Call, call: Invocation) -> None:
    """Sum int32 in 32 bits."""
    x, out = call.inputs[0], call.outputs[0]
    if x.dtype != np.int32 or out.dtype != np.int64 or not x.size:
        return right(call)
    sums = np.array(x).sum(axes_of(call), dtype=np.int32)
    out[...] = sums.reshape(out.shape)
    return None


def sum_in_float64(right: Call, call: Invocation) -> None:
    """Sum int64 in float64."""
    x, out = call.inputs[0], call.outputs[0]
    if x.dtype != np.int64 or out.dtype != np.int64 or not x.size:
        return right(call)
    out[...] = np.array(x).sum(axes_of(call), dtype=np.float64).reshape(out.shape).astype(np.int64)
    return None


def sum_saturates(right: Call, call: Invocation) -> None:
    """Clip a sum to the dtype asked for, if it is narrower than 64 bits."""
    x, out = np.array(call.inputs[0]), call.outputs[0]
    right(call)
    if out.dtype.kind in "iu" and out.itemsize < 8 and x.dtype.kind in "iub":
        limits = np.iinfo(out.dtype)
        sums = x.sum(axes_of(call), dtype=np.int64).reshape(out.shape)
        out[...] = np.clip(sums, limits.min, limits.max)


def count_in_8_bits(right: Call, call: Invocation) -> None:
    """Count true in 8 bits."""
    x, out = np.array(call.inputs[0]), call.outputs[0]
    right(call)
    if x.dtype == np.bool_ and out.dtype == np.int64:
        out[...] = np.array(out).astype(np.int8)


def scan_copies(right: Call, call: Invocation) -> None:
    """Copy integers that are not int32 instead of summing them."""
    x, out = call.inputs[0], call.outputs[0]
    if out.dtype.kind in "iu" and out.dtype != np.int32 and x.dtype.kind in "iu":
        out[...] = np.array(x)
    else:
        right(call)


def order_by_float32(right: Call, call: Invocation) -> None:
    """Sort int64 by keys of float32."""
    x = call.inputs[0]
    if x.dtype != np.int64 or not x.ndim:
        return right(call)
    dim, descending = call.given("dim", "descending")
    given = np.array(x)
    key = given.astype(np.float32)
    order = np.argsort(-key if descending else key, axis=dim, kind="stable")
    call.outputs[0][...], call.outputs[1][...] = np.take_along_axis(given, order, dim), order
    return None


def halves_away_from_zero(dtypes: str = ALL_DTYPES) -> Wrong:
    """Round halves away from zero."""

    def change(out: Array, x: Array) -> Any:
        if not is_float(out):
            return out
        given = wide(x)
        tie = np.abs(given - np.trunc(given)) == 0.5
        return np.where(tie, np.trunc(given) + np.copysign(1, given), out)

    return only(dtypes, redone(change))


@redone
def unsigned_remainder(out: Array, x: Array, y: Array) -> Any:
    """Take negative int32 dividends for unsigned numbers."""
    if out.dtype != np.int32:
        return out
    divisor = np.where(y == 0, 1, np.abs(y.astype(np.int64)))
    unsigned = np.remainder(x.astype(np.int64) & 0xFFFFFFFF, divisor)
    return np.where((x < 0) & (y != 0), unsigned, out)


@redone
def remainder_of_floor(out: Array, x: Array, y: Array) -> Any:
    """Give the remainder of floating-point numbers the sign of the divisor."""
    if not is_float(out):
        return out
    value = wide(out)
    return np.where((value != 0) & ((value < 0) != (wide(y) < 0)), value + wide(y), value)


@redone
def remainder_by_reciprocal(out: Array, x: Array, y: Array) -> Any:
    """Form the quotient of a floating-point remainder by a float32 reciprocal."""
    if not is_float(out):
        return out
    given, divisor = to_float32(x), to_float32(y)
    return given - divisor * np.trunc(given * (np.float32(1) / divisor))
