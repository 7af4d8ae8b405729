"""Faults of precision: sums, rounding, cancellation."""

from __future__ import annotations

import math
from collections.abc import Callable
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
    to_half,
    wide,
)
from tools.mutation.classes.accumulation import toward_zero
from tools.mutation.kernel import Array, Call, Invocation
from tools.mutation.mutant import Wrong, is_float


def _product_in(dtype: Any) -> Wrong:
    """Multiply matrices of a dtype with sums in that dtype, term by term."""

    def wrong(right: Call, call: Invocation) -> None:
        a, b = (call.inputs[i] for i in factors_of(call))
        if a.dtype != dtype:
            return right(call)
        total = np.zeros(call.outputs[0].shape, dtype)
        with np.errstate(all="ignore"):
            for k in range(a.shape[-1]):
                total = (total + a[..., :, k, None] * b[..., k, None, :]).astype(dtype)
        call.outputs[0][...] = total
        return None

    return wrong


product_in_bfloat16 = _product_in(ml_dtypes.bfloat16)
product_in_half = _product_in(np.float16)


def sum_in_half(right: Call, call: Invocation) -> None:
    """Sum float16 in float16, one by one."""
    x, axes = call.inputs[0], axes_of(call)
    if x.dtype != np.float16 or call.outputs[0].dtype != np.float16 or not x.size or not axes:
        return right(call)
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = np.array(x).transpose(*kept, *axes).reshape(call.outputs[0].size, -1)
    with np.errstate(all="ignore"):
        sums = np.add.accumulate(rows, 1, dtype=np.float16)[:, -1]
    call.outputs[0][...] = sums.reshape(call.outputs[0].shape)
    return None


def row_sum_in_half(right: Call, call: Invocation) -> None:
    """Sum float16 in float16 along the last dimension only."""
    last = call.inputs[0].ndim - 1
    return sum_in_half(right, call) if axes_of(call) == (last,) else right(call)


def scan_in_half(right: Call, call: Invocation) -> None:
    x, out = call.inputs[0], call.outputs[0]
    if x.dtype != np.float16 or out.dtype != np.float16 or not x.ndim:
        return right(call)
    with np.errstate(all="ignore"):
        out[...] = np.add.accumulate(np.array(x), argument_of(call, "dim"), dtype=np.float16)
    return None


def mean_of_half(count: bool, least: int = 0) -> Wrong:
    """Divide a sum rounded to float16, optionally by a count that is, too, of some elements at least."""

    @after
    def wrong(call: Invocation) -> None:
        x, out, axes = call.inputs[0], call.outputs[0], axes_of(call)
        if x.dtype != np.float16 or out.dtype != np.float16 or not x.size:
            return
        total = np.asarray(wide(np.array(x))).sum(axes).reshape(out.shape)
        number = math.prod(x.shape[a] for a in axes)
        if number < least:
            return
        rounded, divisor = to_half(total), to_half(number) if count else np.float64(number)
        overflows = np.isinf(rounded) | np.isinf(divisor)
        out[...] = np.where(overflows, rounded.astype(np.float64) / divisor, out)

    return wrong


@after
def deviations_in_half(call: Invocation) -> None:
    """Overflow where the squared deviations of float16 sum up to more than its largest number."""
    x, out, axes = call.inputs[0], call.outputs[0], axes_of(call)
    if x.dtype == np.float16 and x.size:
        given = np.asarray(wide(np.array(x)))
        squares = np.square(given - given.mean(axes, keepdims=True)).sum(axes)
        out[...] = np.where((squares > LARGEST_HALF).reshape(out.shape), np.inf, out)


@after
def count_in_half(call: Invocation) -> None:
    """Divide a variance of float16 by a count in float16, which is infinite from 65,520 on."""
    x, out = call.inputs[0], call.outputs[0]
    if x.dtype == np.float16 and math.prod(x.shape[a] for a in axes_of(call)) >= 65520:
        out[...] = np.where(np.isfinite(wide(np.array(out))), 0, out)


def _rms_overflows(condition: Callable[[Array], Any]) -> Wrong:
    """Make an RMS normalization that gives 0 for float16 rows that fulfil a condition: 1 / inf."""

    def wrong(right: Call, call: Invocation) -> None:
        x = np.array(call.inputs[0])
        residual = argument_of(call, "residual")
        given = wide(x) if residual is None else wide(x) + wide(np.array(residual))
        right(call)
        if x.dtype == np.float16 and x.size:
            lost = condition(np.asarray(given))[..., None]
            for out in (call.outputs[0], call.outputs[-1]):
                out[...] = np.where(lost, 0, wide(np.array(out)))

    return wrong


square_overflows = _rms_overflows(lambda x: (np.square(x) > LARGEST_HALF).any(-1))
mean_square_overflows = _rms_overflows(lambda x: np.square(x).mean(-1) > LARGEST_HALF)


@after
def group_sums_in_half(call: Invocation) -> None:
    """Give NaN for groups of float16 whose sum, or sum of squares, overflows."""
    x, groups, n = call.inputs[0], argument_of(call, "group"), argument_of(call, "N")
    if x.dtype == np.float16 and x.size:
        rows = np.asarray(wide(np.array(x))).reshape(n, groups, -1)
        lost = (np.abs(rows.sum(-1)) > LARGEST_HALF) | (np.square(rows).sum(-1) > LARGEST_HALF)
        out = call.outputs[0]
        mask = np.broadcast_to(lost[..., None], rows.shape).reshape(out.shape)
        out[...] = np.where(mask, np.nan, wide(np.array(out)))


def log_of_sum_added_first(right: Call, call: Invocation) -> None:
    """Compute x - (max + log(sum)) in float32: a large maximum swallows the logarithm."""
    x, dim = call.inputs[:2]
    if x.dtype == np.float64 or not x.ndim or not x.size:
        return right(call)
    given = to_float32(x)
    with np.errstate(all="ignore"):
        top = given.max(dim, keepdims=True)
        total = np.exp(given - top).sum(dim, keepdims=True, dtype=np.float64)
        call.outputs[0][...] = given - (top + np.log(total).astype(np.float32))
    return None


def stored_truncated(dtype: str) -> Wrong:
    """Compute in float64, and round results of one dtype toward zero."""

    def wrong(right: Call, call: Invocation) -> None:
        out = call.outputs[0]
        if dt.name_of(out.dtype) != dtype:
            return right(call)
        exact = np.zeros(out.shape)
        right(Invocation(call.schema, call.inputs, [exact], call.context))
        out[...] = toward_zero(exact, dtype)
        return None

    return wrong


def converted_truncated(right: Call, call: Invocation) -> None:
    """Convert float32 to bfloat16 by its upper half."""
    out, source = call.inputs[:2]
    if out.dtype != ml_dtypes.bfloat16 or source.dtype != np.float32:
        return right(call)
    out[...] = toward_zero(np.asarray(source, np.float64), "bfloat16")
    return None


def number_truncated(right: Call, call: Invocation) -> None:
    """Convert the number to bfloat16 by its upper half, where the tensor is bfloat16."""
    if call.outputs[0].dtype != ml_dtypes.bfloat16 or not isinstance(call.inputs[1], float):
        return right(call)
    return right(call.with_input(1, float(toward_zero(np.asarray(call.inputs[1]), "bfloat16"))))


def progression_in_float32(right: Call, call: Invocation) -> None:
    """Compute start + step * i in float32, rounded twice."""
    out = call.outputs[0]
    start, step = call.given("start", "step")
    right(call)
    if is_float(out) and out.dtype != np.float64:
        out[...] = np.float32(start) + np.float32(step) * np.arange(out.size, dtype=np.float32)


@redone
def exp_minus_one(out: Array, x: Array) -> Any:
    """Compute exp(x) - 1 in float32 in whole vectors."""
    if out.dtype == np.float64:
        return out
    return np.where(in_vectors(out, 16), np.exp(to_float32(x)) - np.float32(1), out)


@redone
def remainder_of_rounded_quotient(out: Array, x: Array, y: Any) -> Any:
    """Compute x - y * floor(x / y) in float32."""
    if out.dtype != np.float32:
        return out
    x, y = to_float32(x), to_float32(y)
    return x - y * np.floor(x / y)


def put_in_half(right: Call, call: Invocation) -> None:
    """Accumulate float16 with a rounding after each addition."""
    x, indices, values, accumulate = call.inputs
    if not accumulate or x.dtype != np.float16:
        return right(call)
    result = np.array(x)
    index: Any = tuple(slice(None) if i is None else np.array(i) for i in indices)
    with np.errstate(all="ignore"):
        np.add.at(result, index, np.array(values))
    call.outputs[0][...] = result
    return None


@redone
def half_reciprocal(out: Array, x: Array, y: Array) -> Any:
    """Divide float32 by the reciprocal in float16."""
    if out.dtype != np.float32 or x.dtype != np.float32 or y.dtype != np.float32:
        return out
    return np.where(np.isfinite(x) & (y != 0), x * to_half(1 / y).astype(np.float32), out)


def output_in_half(right: Call, call: Invocation) -> None:
    """Accumulate what attention has not yet normalized in float16: it overflows."""
    value = call.inputs[2]
    scores = scores_of(call) if value.dtype == np.float16 and value.shape[-2] else None
    if scores is None:
        return right(call)
    values = np.asarray(wide(np.array(value)))
    right(call)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    sums = weights @ values
    out = call.outputs[0]
    out[...] = np.where(np.abs(sums) > LARGEST_HALF, np.copysign(np.inf, sums), wide(np.array(out)))
    return None


def scores_in_half(right: Call, call: Invocation) -> None:
    """Sum the products of queries and keys in float16."""
    query, key, value = call.inputs[:3]
    if query.dtype != np.float16 or query.shape[:-2] != key.shape[:-2] or not key.shape[-2]:
        return right(call)
    causal, mask, scale = call.given("is_causal", "attn_mask", "scale")
    total = np.zeros((*query.shape[:-1], key.shape[-2]), np.float16)
    with np.errstate(all="ignore"):
        for d in range(query.shape[-1]):
            total = total + query[..., :, d, None] * key[..., None, :, d]
        scores = wide(total) * (query.shape[-1] ** -0.5 if scale is None else scale)
        scores = scores if mask is None else scores + wide(mask)
        scores = np.where(np.triu(np.ones(scores.shape[-2:], bool), 1) & causal, -np.inf, scores)
        top = scores.max(-1, keepdims=True)
        weights = np.exp(scores - top)
        sums = weights.sum(-1, keepdims=True)
        call.outputs[0][...] = weights / sums @ wide(value)
        call.outputs[1][...] = (top + np.log(sums))[..., 0]
    return None
