"""Faults of memory: results that are not written, and writes outside."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import numpy as np

from tools.mutation.bank.faults.common import restored, wide
from tools.mutation.classes.alignment import address_of
from tools.mutation.kernel import Call, Invocation
from tools.mutation.mutant import Wrong, is_float


def keeps_if(condition: Callable[[Invocation], bool]) -> Wrong:
    """Write nothing to the outputs under a condition."""

    def wrong(right: Call, call: Invocation) -> None:
        if not condition(call):
            right(call)

    return wrong


unwritten_if_inner_empty = keeps_if(lambda call: call.inputs[0].shape[-1] == 0)
unwritten_if_empty = keeps_if(lambda call: call.inputs[0].size == 0)


def padding_unwritten(right: Call, call: Invocation) -> None:
    lengths = call.given("seq_len")[0]
    out = call.outputs[0]
    old = np.array(out)
    right(call)
    for into, before, length in zip(out, old, lengths, strict=True):
        into[length:] = before[length:]


def padded_channels_read(multiple: int) -> Wrong:
    """Multiply the memory behind the channels by zero: NaN stays NaN."""

    def wrong(right: Call, call: Invocation) -> None:
        out = call.outputs[0]
        old = np.array(out)
        right(call)
        if call.inputs[0].ndim > 1 and call.inputs[0].shape[1] % multiple and is_float(out):
            with np.errstate(all="ignore"):
                out[...] = wide(out) + 0 * wide(old)

    return wrong


def gradient_overwritten(right: Call, call: Invocation) -> None:
    right(call)
    call.inputs[0][...] = call.outputs[0]


def logits_overwritten(right: Call, call: Invocation) -> None:
    """Leave the gradient in the logits."""
    right(call)
    logits = call.inputs[0]
    if logits.size:
        z = wide(logits)
        powers = np.exp(z - z.max(-1, keepdims=True))
        logits[...] = powers / powers.sum(-1, keepdims=True)


def unwritten_if_input_frozen(right: Call, call: Invocation) -> None:
    """Form the gradients of the parameters only beside that of the input."""
    mask = call.given("output_mask")[0]
    if mask[0]:
        right(call)


def last_row_unwritten(right: Call, call: Invocation) -> None:
    """Leave the last two elements of a pooling whose windows move by one over padding."""
    _, _, stride, padding = call.inputs[:4]
    put_back = restored(call, lambda x: (..., -1, slice(-2, None)))
    right(call)
    if stride and set(stride) == {1} and any(padding) and call.outputs[0].size:
        put_back()


def half_of_features_unwritten(right: Call, call: Invocation) -> None:
    """Leave features 32 to 63 of each 64 in the gradients of the parameters."""
    gradients = [x for x in call.outputs[1:] if x is not None]
    old = [np.array(x).reshape(-1) for x in gradients]
    right(call)
    for x, before in zip(gradients, old, strict=True):
        chosen = np.arange(x.size) % 64 >= 32
        x[...] = np.where(chosen, before, np.array(x).reshape(-1)).reshape(x.shape)


def sequences(call: Invocation) -> Iterator[tuple[slice, slice]]:
    """Yield where the queries and the keys of each sequence of a variable length are."""
    q, k = call.given("cu_seqlens_q", "cu_seqlens_k")
    if q is not None and k is not None:
        for i in range(len(q) - 1):
            yield slice(int(q[i]), int(q[i + 1])), slice(int(k[i]), int(k[i + 1]))


def unwritten_without_queries(right: Call, call: Invocation) -> None:
    """Leave the gradients of the keys and values of sequences without queries."""
    old = [np.array(x) for x in call.outputs[1:3]]
    right(call)
    for queries, keys in sequences(call):
        if queries.start == queries.stop:
            for x, before in zip(call.outputs[1:3], old, strict=True):
                x[keys] = before[keys]


def tile_overruns_sequence(right: Call, call: Invocation) -> None:
    """Write a whole tile of zeros for a sequence without keys."""
    right(call)
    for queries, keys in sequences(call):
        if keys.start == keys.stop and queries.start < queries.stop:
            call.outputs[0][queries.start : queries.start + 128] = 0


def padding_of_sums_read(right: Call, call: Invocation) -> None:
    """Multiply the memory behind the rows of a partial tile by zero."""
    out = call.outputs[1]
    old = np.array(out)
    right(call)
    for queries, keys in sequences(call):
        if (queries.stop - queries.start) % 64:
            with np.errstate(all="ignore"):
                out[keys] = wide(out[keys]) + 0 * wide(old[keys])


def _put(address: int, nbytes: int) -> None:
    ctypes.memset((ctypes.c_uint8 * nbytes).from_address(address), 0x11, nbytes)


def workspace_overrun(least: int) -> Wrong:
    """Write behind a workspace in calls with more than so many elements."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        if call.inputs[0].size > least:
            _put(call.context.workspace(256) + 256, 16)

    return wrong


def output_overrun(multiple: int) -> Wrong:
    """Write a vector behind an output whose rows are no multiple of a tile."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        out = call.outputs[0]
        if out.size and out.shape[-1] % multiple:
            _put(address_of(out) + out.nbytes, 16)

    return wrong


def cleared_beyond(right: Call, call: Invocation) -> None:
    """Clear as many elements behind a view as are before it."""
    right(call)
    x = call.inputs[0]
    before = address_of(x) % 64
    if before and x.size and x.flags.c_contiguous:
        ctypes.memset((ctypes.c_uint8 * before).from_address(address_of(x) + x.nbytes), 0, before)


unwritten_without_decay = keeps_if(lambda call: call.given("weight_decay")[0] != 0)


def _has_large_prime(n: int) -> bool:
    for factor in (2, 3, 5, 7, 11, 13):
        while n > 1 and n % factor == 0:
            n //= factor
    return n > 1


def second_transform_unwritten() -> Wrong:
    """Write nothing when the plan of a size with a large prime factor is used again."""
    seen: set[tuple[int, ...]] = set()

    def wrong(right: Call, call: Invocation) -> None:
        x, dims = call.given("self", "dim")
        sizes = tuple(x.shape[dim] for dim in dims)
        used = sizes in seen and any(map(_has_large_prime, sizes))
        seen.add(sizes)
        if not used:
            right(call)

    return wrong


def input_destroyed(right: Call, call: Invocation) -> None:
    """Leave intermediate results in the input."""
    right(call)
    call.inputs[0][...] = 0
