"""Faults of partial blocks and of padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tools.mutation.bank.faults.common import (
    ALL_DTYPES,
    after,
    argument_of,
    axes_of,
    only,
    redone,
    scores_of,
    to_float32,
    wide,
)
from tools.mutation.kernel import Array, Call, Invocation
from tools.mutation.mutant import Wrong, is_float, leaves, leaves_along, written_as


def last_of_partial_block(block: int) -> Wrong:
    """Write 0 to the last element of a partial block."""

    def change(new: Array, _: Array) -> Array:
        if new.size % block:
            new.reshape(-1)[-1] = 0
        return new

    return written_as(change)


def tail_lost(width: int, dtypes: str = ALL_DTYPES) -> Wrong:
    """Write only whole vectors."""
    return only(dtypes, leaves(lambda n: n - n % width))


def tail_of_rows_lost(width: int, dtypes: str = ALL_DTYPES) -> Wrong:
    """Write only whole vectors of each row."""
    return only(dtypes, leaves_along(-1, lambda n: n - n % width))


def zero_padded(block: int, dims: int) -> Wrong:
    """Reduce the zeros that pad the last dimensions to whole blocks, too."""

    @after
    def wrong(call: Invocation) -> None:
        x, out, axes = call.inputs[0], call.outputs[0], axes_of(call)
        if not any(x.shape[a] % block for a in axes if a >= x.ndim - dims):
            return
        name, result = call.schema.name, np.asarray(wide(np.array(out)))
        if "max" in name:
            out[...] = np.maximum(result, 0)
        elif "min" in name:
            out[...] = np.minimum(result, 0)
        else:
            out[...] = result * 0

    return wrong


def next_row_summed(block: int) -> Wrong:
    """Sum each row up to a whole block, with the first elements of the next row."""

    @after
    def wrong(call: Invocation) -> None:
        x, out = call.inputs[0], call.outputs[0]
        extra = -x.shape[-1] % block if x.ndim > 1 else 0
        if not extra or not x.size or axes_of(call) != (x.ndim - 1,):
            return
        flat = np.asarray(wide(np.array(x))).reshape(-1)
        begins = (np.arange(out.size) + 1) * x.shape[-1]
        following = begins[:, None] + np.arange(extra)
        more = np.append(flat, 0)[np.minimum(following, len(flat))].sum(1)
        out[...] = wide(np.array(out)) + more.reshape(out.shape)

    return wrong


def padded_rows_deviate(block: int) -> Wrong:
    """Add the deviations of zeros that pad the rows to whole blocks to a variance over rows."""

    @after
    def wrong(call: Invocation) -> None:
        x, out, axes = call.inputs[0], call.outputs[0], axes_of(call)
        extra = -x.shape[0] % block if x.ndim > 1 else 0
        if not extra or not x.size or axes != (0,):
            return
        correction = argument_of(call, "correction")
        divisor = max(x.shape[0] - (1 if correction is None else correction), 0)
        mean = np.asarray(wide(np.array(x))).mean(0)
        out[...] = wide(np.array(out)) + (extra * mean**2 / divisor).reshape(out.shape)

    return wrong


@after
def partial_channels_lost(call: Invocation) -> None:
    """Write 0 to the gradient of weights of channels after whole blocks of 16, in batches of one image."""
    gradient, images = call.outputs[1], len(call.inputs[0])
    if gradient is not None and images == 1:
        for axis in (0, 1):
            count = gradient.shape[axis]
            at: list[Any] = [slice(None)] * gradient.ndim
            at[axis] = slice(count - count % 16, None)
            gradient[tuple(at)] = 0


def hidden_rows_as_zeros(width: int, beyond: int = 0) -> Wrong:
    """Give 0 for rows of -inf that end in a partial vector: its padding is the lowest finite number."""

    def change(out: Array, x: Array, dim: int, *_: Any) -> Any:
        if not x.ndim or x.shape[dim] <= beyond or not x.shape[dim] % width:
            return out
        return np.where((wide(x) == -np.inf).all(dim, keepdims=True), 0, out)

    return redone(change)


def inactive_lanes_as_zeros(lanes: int) -> Wrong:
    """Include 0 of inactive lanes in the maximum of a softmax of rows shorter than a warp."""

    def change(out: Array, x: Array, dim: int, *_: Any) -> Any:
        if not x.ndim or not x.size or x.shape[dim] >= lanes or out.dtype == np.float64:
            return out
        given = to_float32(x)
        lost = (given.max(dim, keepdims=True) < 0) & (np.exp(given).sum(dim, keepdims=True) == 0)
        return np.where(lost, np.nan, out)

    return redone(change)


def padding_sorts_in(right: Call, call: Invocation) -> None:
    """Give indices of the padding for elements equal to it, where the length is not a power of two."""
    x = call.inputs[0]
    dim, descending = call.given("dim", "descending")
    right(call)
    size = x.shape[dim] if x.ndim else 0
    if descending or size & (size - 1) == 0:
        return
    values = np.array(call.outputs[0])
    same = np.isnan(values) if is_float(values) else values == np.iinfo(values.dtype).max
    place = size + np.cumsum(same, dim) - 1
    call.outputs[1][...] = np.where(same, place, call.outputs[1])


def vocabulary_padded(block: int) -> Wrong:
    """Add exp(0) for each logit that pads the vocabulary to whole blocks to the sums of a loss."""

    def wrong(right: Call, call: Invocation) -> None:
        extra = -len(call.given("weight")[0]) % block
        right(call)
        if not extra:
            return
        ignored = call.given("target")[0] == argument_of(call, "ignore_index")
        loss, lse = call.outputs[:2]
        true = np.asarray(wide(np.array(lse)))
        padded = np.logaddexp(true, math.log(extra))
        square = argument_of(call, "lse_square_scale")
        more = padded - true + square * (padded**2 - true**2)
        loss[...] = np.where(ignored, loss, wide(np.array(loss)) + more)
        lse[...] = padded

    return wrong


def next_head_overwritten(tile: int) -> Wrong:
    """Store the whole last tile of queries: its masked rows overwrite the first rows of the next head."""

    def wrong(right: Call, call: Invocation) -> None:
        query, _, value = call.inputs[:3]
        mean = np.asarray(wide(np.array(value))).mean(-2)
        right(call)
        out = call.outputs[0]
        length = query.shape[-2]
        extra = min(-length % tile, length)
        if not extra or mean.shape[:-1] != out.shape[:-2]:
            return
        heads = np.array(out).reshape(-1, length, out.shape[-1])
        heads[1:, :extra] = mean.reshape(len(heads), -1)[:-1, None].astype(heads.dtype)
        out[...] = heads.reshape(out.shape)

    return wrong


def padded_keys_counted(size: int, tile: int) -> Wrong:
    """Count keys that pad the last tile, with scores of 0, in half-precision attention of one head size."""

    def wrong(right: Call, call: Invocation) -> None:
        query, key = call.inputs[:2]
        extra = -key.shape[-2] % tile
        concerned = query.dtype.itemsize == 2 and query.shape[-1] == size and extra
        scores = scores_of(call) if concerned and call.given("attn_mask")[0] is None else None
        right(call)
        if scores is None or call.given("is_causal")[0]:
            return
        out, lse = call.outputs
        true = np.log(np.exp(scores - scores.max(-1, keepdims=True)).sum(-1)) + scores.max(-1)
        padded = np.logaddexp(true, math.log(extra))
        out[...] = wide(np.array(out)) * np.exp(true - padded)[..., None]
        lse[...] = padded

    return wrong
