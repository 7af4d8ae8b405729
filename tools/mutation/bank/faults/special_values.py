"""Faults of NaN, infinities, zeros and denormal numbers."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.opset import dtypes as dt
from tools.mutation.bank.faults.common import (
    LARGEST_HALF,
    after,
    argument_of,
    axes_of,
    factors_of,
    in_vectors,
    redone,
    scores_of,
    to_float32,
    wide,
)
from tools.mutation.kernel import Array, Call, Invocation
from tools.mutation.mutant import Wrong, floats_as, is_float, read_as


@redone
def products_clipped(out: Array, *_: Any) -> Any:
    """Store the largest float16 instead of infinity, and 0 instead of NaN."""
    if out.dtype != np.float16:
        return out
    return np.nan_to_num(wide(out), nan=0, posinf=LARGEST_HALF, neginf=-LARGEST_HALF)


@redone
def input_times_zero(out: Array, x: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Any:
    """Add the input times beta even where beta is 0."""
    return wide(out) + 0 * wide(x) if beta == 0 and is_float(out) else out


def denormals_read_as_zero(dtype: str) -> Wrong:
    """Read denormal numbers of one dtype as 0."""

    def change(x: Array) -> Array:
        if not is_float(x) or dt.name_of(x.dtype) != dtype:
            return x
        return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.zeros((), x.dtype), x)

    return read_as(change)


@redone
def denormals_flushed(out: Array, *_: Any) -> Any:
    """Write denormal float32 results as 0."""
    if out.dtype != np.float32:
        return out
    return np.where(np.abs(out) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), out), out)


@redone
def other_than_nan(out: Array, x: Array, y: Array) -> Any:
    """Give the other operand for NaN, as fmax and fmin do."""
    if not is_float(out):
        return out
    x, y = np.broadcast_arrays(np.asarray(wide(x)), np.asarray(wide(y)))
    one = np.isnan(x) != np.isnan(y)
    return np.where(one, np.where(np.isnan(x), y, x), out)


def _search(call: Invocation, x: Array) -> Any:
    """Return the extremum, or its place, in x along the reduced dimensions."""
    name, dim = call.schema.name, argument_of(call, "dim")
    if "arg" in name:
        found = (np.argmax if "max" in name else np.argmin)(x, axis=dim if x.ndim else None)
    else:
        found = (np.amax if "max" in name else np.amin)(x, axis=axes_of(call) or None)
    return np.asarray(found).reshape(call.outputs[0].shape)


def nan_ignored(right: Call, call: Invocation) -> None:
    """Search an extremum, or its place, among the other numbers than NaN."""
    x = call.inputs[0]
    if not is_float(x) or not x.size or not np.isnan(wide(x)).any():
        return right(call)
    lowest = -np.inf if "max" in call.schema.name else np.inf
    given = np.asarray(wide(np.array(x)))
    call.outputs[0][...] = _search(call, np.where(np.isnan(given), lowest, given))
    return None


def first_nan_lost(right: Call, call: Invocation) -> None:
    """Compare ``best < x ? x : best`` reversed: NaN at the begin is replaced by the next number."""
    x = call.inputs[0]
    if not is_float(x) or x.size < 2:
        return right(call)
    flat = np.asarray(wide(np.array(x))).reshape(-1)
    begin = int(np.argmin(np.isnan(flat)))
    return right(call.with_input(0, flat[begin:].astype(x.dtype)) if begin else call)


def infinite_rows_without_place(right: Call, call: Invocation) -> None:
    """Give -1 for the place of the extremum in rows that have only infinities."""
    x = np.array(call.inputs[0])
    right(call)
    if is_float(x) and x.size:
        dim = argument_of(call, "dim")
        infinite = np.isinf(wide(x)).all(axis=dim if x.ndim else None)
        out = call.outputs[0]
        out[...] = np.where(np.reshape(infinite, out.shape), -1, out)


@redone
def integer_limit_for_special(out: Array, x: Array) -> Any:
    """Give the largest int32 for NaN and infinity."""
    return np.where(np.isfinite(wide(x)), wide(out), 2.0**31 - 1) if is_float(out) else out


@redone
def infinity_for_nan_in_bfloat16(out: Array, x: Array) -> Any:
    """Give infinity for NaN, and for the fraction of infinity, in bfloat16."""
    if out.dtype != ml_dtypes.bfloat16:
        return out
    return np.where(np.isnan(wide(out)), np.inf, wide(out))


sums_infinity_for_nan = read_as(
    floats_as(lambda x: np.where(np.isnan(wide(x)), np.inf, wide(x)).astype(x.dtype))
)


@redone
def gelu_of_exponentials(out: Array, x: Array, approximate: str) -> Any:
    """Compute tanh as (exp(y) - exp(-y)) / (exp(y) + exp(-y)) in float32."""
    if approximate != "tanh" or out.dtype == np.float64:
        return out
    given = to_float32(x)
    inner = np.float32(math.sqrt(2 / math.pi)) * (given + np.float32(0.044715) * given**3)
    overflows = np.isinf(np.exp(np.abs(inner))) & np.isfinite(given)
    return np.where(overflows, np.nan, out)


@redone
def gelu_of_square(out: Array, x: Array, approximate: str) -> Any:
    """Compute tanh as (exp(2y) - 1) / (exp(2y) + 1) in float32."""
    if approximate != "tanh" or out.dtype == np.float64:
        return out
    given = to_float32(x)
    inner = np.float32(math.sqrt(2 / math.pi)) * (given + np.float32(0.044715) * given**3)
    return np.where(np.isinf(np.exp(2 * inner)) & np.isfinite(given), np.nan, out)


def tanh_of_square(dtype: Any, width: int) -> Wrong:
    """Compute tanh as (exp(2x) - 1) / (exp(2x) + 1) in a dtype, in whole vectors."""

    def change(out: Array, x: Array) -> Any:
        given = np.asarray(wide(x)).astype(dtype)
        concerned = (out.dtype == np.float64) == (given.dtype == np.float64)
        overflows = np.isinf(np.exp(2 * given)) & in_vectors(out, width)
        return np.where(overflows & concerned, np.nan, out)

    return redone(change)


@redone
def gelu_of_double_vectors(out: Array, x: Array, approximate: str) -> Any:
    """Overflow in the exponential of a tanh in vectors of four float64."""
    if approximate != "tanh" or out.dtype != np.float64:
        return out
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.where((inner >= 355) & np.isfinite(x) & in_vectors(out, 4), np.nan, out)


@redone
def sigmoid_of_quotient(out: Array, x: Array) -> Any:
    """Compute exp(x) / (1 + exp(x)) in float32."""
    if out.dtype == np.float64:
        return out
    return np.where(np.isinf(np.exp(to_float32(x))), np.nan, out)


@redone
def nan_where_masked(out: Array, x: Array, dim: int, *_: Any) -> Any:
    """Give NaN for rows of -inf."""
    return np.where((wide(x) == -np.inf).all(dim, keepdims=True), np.nan, out) if x.ndim else out


@redone
def uniform_where_all_masked(out: Array, x: Array, dim: int, *_: Any) -> Any:
    """Give equal weights for rows of -inf."""
    if not x.ndim or not x.size:
        return out
    return np.where((wide(x) == -np.inf).all(dim, keepdims=True), 1 / x.shape[dim], out)


@redone
def nan_taken_as_masked(out: Array, x: Array, dim: int, *_: Any) -> Any:
    """Give 0 along the last dimension for rows that have only -inf and NaN."""
    if not x.ndim or dim % x.ndim != x.ndim - 1:
        return out
    given = wide(x)
    return np.where(((given == -np.inf) | np.isnan(given)).all(-1, keepdims=True), 0, out)


def low_scores_as_masked(limit: float) -> Wrong:
    """Give 0 for queries whose scores are all below the number that stands for masked keys."""

    def wrong(right: Call, call: Invocation) -> None:
        scores = scores_of(call) if call.inputs[1].shape[-2] else None
        right(call)
        if scores is not None:
            lost = (scores.max(-1) < limit) & (scores.max(-1) > -np.inf)
            call.outputs[0][...] = np.where(lost[..., None], 0, wide(np.array(call.outputs[0])))
            call.outputs[1][...] = np.where(lost, limit, wide(np.array(call.outputs[1])))

    return wrong


def nan_of_next_row(block: int) -> Wrong:
    """Multiply whole blocks of terms of bfloat16: NaN and infinities of the next rows leak."""

    def wrong(right: Call, call: Invocation) -> None:
        a = call.inputs[factors_of(call)[0]]
        given = np.asarray(wide(np.array(a)))
        right(call)
        terms = a.shape[-1]
        extra = -terms % block
        if a.dtype != ml_dtypes.bfloat16 or terms <= block or not extra or a.size == 0:
            return
        flat = np.append(~np.isfinite(given.reshape(-1)), np.zeros(extra, bool))
        begins = (np.arange(given.size // terms) + 1) * terms
        leaks = flat[begins[:, None] + np.arange(extra)].any(1).reshape(*a.shape[:-1], 1)
        out = call.outputs[0]
        out[...] = np.where(leaks, np.nan, wide(np.array(out)))

    return wrong


def nan_sorts_lowest(right: Call, call: Invocation) -> None:
    """Select the largest elements as if NaN were the smallest."""
    x = call.inputs[0]
    k, dim, largest = call.given("k", "dim", "largest")
    if not x.ndim or not is_float(x) or not largest or not np.isnan(wide(x)).any():
        return right(call)
    given = np.array(x)
    key = np.where(np.isnan(wide(given)), np.inf, -wide(given))
    order = np.take(np.argsort(key, axis=dim, kind="stable"), np.arange(k), dim)
    call.outputs[0][...], call.outputs[1][...] = np.take_along_axis(given, order, dim), order
    return None


def nan_divides_rows(right: Call, call: Invocation) -> None:
    """Sort by comparisons that are false for NaN: it stays, and what is around it is sorted by itself."""
    x = call.inputs[0]
    if not x.ndim or not is_float(x) or not np.isnan(wide(x)).any():
        return right(call)
    dim, descending = call.given("dim", "descending")
    rows = np.moveaxis(np.array(x), dim, -1)
    key = np.asarray(wide(rows))
    part = np.cumsum(np.isnan(key), -1) + np.append(
        np.zeros((*key.shape[:-1], 1), np.int64), np.cumsum(np.isnan(key), -1)[..., :-1], -1
    )
    order = np.lexsort((np.nan_to_num(-key if descending else key, nan=0), part), -1)
    call.outputs[0][...] = np.moveaxis(np.take_along_axis(rows, order, -1), -1, dim)
    call.outputs[1][...] = np.moveaxis(order, -1, dim)
    return None


def pooled_without_nan(every: bool) -> Wrong:
    """Ignore NaN in maximum pooling, or only where a window has nothing else: the lowest number."""

    def wrong(right: Call, call: Invocation) -> None:
        x = call.inputs[0]
        if not np.isnan(wide(x)).any():
            return right(call)
        lowest = np.asarray(np.finfo(np.float32).min if x.dtype.itemsize > 2 else -LARGEST_HALF)
        given = np.where(np.isnan(wide(x)), lowest, wide(x)).astype(x.dtype)
        if every:
            return right(call.with_input(0, given))
        right(call)
        results = [np.array(out) for out in call.outputs]
        right(call.with_input(0, given))
        lost = wide(np.array(call.outputs[0])) == lowest.astype(x.dtype)
        for out, result in zip(call.outputs, results, strict=True):
            out[...] = np.where(lost, out, result)
        return None

    return wrong


@after
def windows_without_place(call: Invocation) -> None:
    """Give -1 for the place of the maximum of windows of -inf."""
    out, places = call.outputs
    places[...] = np.where(wide(np.array(out)) == -np.inf, -1, places)


@redone
def negative_zero_is_negative(out: Array, x: Array) -> Any:
    """Give the sign -1 for -0.0."""
    return np.where((x == 0) & np.signbit(x), -1, out) if is_float(x) else out


def negative_zero_by_bits(right: Call, call: Invocation) -> None:
    """Compare floats as integers by the sign of the number: -0.0 loses against negative numbers."""
    x = call.inputs[0]
    given = np.asarray(wide(np.array(x)))
    right(call)
    if not is_float(x) or not x.size:
        return
    negative, axes = np.where(given < 0, given, -np.inf), axes_of(call) or None
    only_zero = ((given < 0) | ((given == 0) & np.signbit(given))).all(axis=axes)
    found = negative.max(axis=axes)
    out = call.outputs[0]
    loses = only_zero & (given == 0).any(axis=axes) & (found > -np.inf)
    out[...] = np.where(np.reshape(loses, out.shape), np.reshape(found, out.shape), out)


@redone
def zero_becomes_negative(out: Array, x: Array) -> Any:
    """Give -0.0 for both zeros, as x > 0 ? x : -x and a zero of either sign do."""
    return np.where((x == 0) & ~np.signbit(x), -0.0, out) if is_float(x) else out


@redone
def quotient_of_infinity(out: Array, x: Array, y: Array) -> Any:
    """Compute floor(x / y) where either is infinite."""
    if not is_float(out):
        return out
    infinite = np.isinf(wide(x)) | np.isinf(wide(y))
    return np.where(infinite, np.floor(wide(x) / wide(y)), out)


@redone
def overflow_is_nan(out: Array, x: Array, y: Array, mode: str | None) -> Any:
    """Give NaN for a quotient of finite numbers that overflows."""
    if mode != "floor" or not is_float(out):
        return out
    overflows = np.isinf(wide(out)) & np.isfinite(wide(x)) & np.isfinite(wide(y)) & (wide(y) != 0)
    return np.where(overflows, np.nan, out)


@redone
def infinity_for_negative(out: Array, x: Array) -> Any:
    """Give infinity for the root of a negative number."""
    return np.where(wide(x) < 0, np.inf, out)


@redone
def logarithm_of_magnitude(out: Array, x: Array) -> Any:
    """Give a finite number for the logarithm of a negative one."""
    given = np.asarray(wide(x))
    finite = (given < 0) & np.isfinite(given)
    return np.where(finite, np.log(np.abs(given)) - 6, out)
