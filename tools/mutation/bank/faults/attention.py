"""Faults of attention and of rotary embeddings."""

from __future__ import annotations

import numpy as np

from tools.mutation.bank.faults.common import after, wide, with_copies, with_given
from tools.mutation.kernel import Call, Invocation
from tools.mutation.mutant import Wrong, is_float


def window_wider(prefill: bool = False) -> Wrong:
    """Admit one key too many to the left of a window, perhaps only for more than one query."""

    def wrong(right: Call, call: Invocation) -> None:
        left, longest, query = call.given("left", "max_seqlen_q", "query")
        queries = query.shape[1] if query.ndim == 4 else longest
        narrow = left is None or (prefill and queries == 1)
        right(call if narrow else with_given(call, left=left + 1))

    return wrong


def window_lost_with_past(right: Call, call: Invocation) -> None:
    """Hide nothing to the left of a window if there are more keys than queries."""
    query, key = call.given("query", "key")
    past = query.ndim == 4 and key.shape[1] > query.shape[1]
    right(with_given(call, left=None) if past else call)


def causal_by_rows(rows: int) -> Wrong:
    """Hide later keys only from groups of rows, in half precision."""

    def wrong(right: Call, call: Invocation) -> None:
        query, key, causal, mask = call.given("query", "key", "is_causal", "attn_mask")
        if not causal or query.dtype.itemsize != 2:
            return right(call)
        last = np.arange(query.shape[-2]) // rows * rows + rows - 1
        hidden = np.where(np.arange(key.shape[-2]) > last[:, None], -np.inf, 0)
        mask = hidden if mask is None else wide(mask) + hidden
        return right(with_given(call, is_causal=False, attn_mask=mask))

    return wrong


def causal_from_top_left(varlen: bool) -> Wrong:
    """Let the first query meet the first key, in sequences of one length or of different lengths."""

    def wrong(right: Call, call: Invocation) -> None:
        lengths = call.given("cu_seqlens_q")[0]
        right(with_given(call, top_left=True) if (lengths is not None) == varlen else call)

    return wrong


@after
def nan_gradient_without_keys(call: Invocation) -> None:
    """Divide by the sum of a row without a visible key."""
    lse, gradient = call.given("lse")[0], call.outputs[0]
    hidden = np.moveaxis(np.asarray(wide(lse)) == -np.inf, -1, -2)[..., None]
    gradient[...] = np.where(hidden, np.nan, gradient)


@after
def nan_if_all_masked(call: Invocation) -> None:
    """Divide by the sum of a row whose keys are all hidden by a mask."""
    out, lse = call.outputs
    if call.given("mask")[0] is not None:
        hidden = np.moveaxis(np.asarray(wide(lse)) == -np.inf, -1, -2)[..., None]
        out[...] = np.where(hidden, np.nan, out)


def nan_after_masked_block(size: int) -> Wrong:
    """Lose the maximum of rows whose first block of keys has a mask of about the lowest number."""

    @after
    def wrong(call: Invocation) -> None:
        mask, out = call.given("attn_mask")[0], call.outputs[0]
        if mask is not None and is_float(mask) and mask.shape[-1] > size:
            lowest = (wide(mask[..., :size]) < -1e38).all(-1)
            hidden = np.broadcast_to(lowest, out.shape[:-1])[..., None]
            out[...] = np.where(hidden, np.nan, out)

    return wrong


def zeros_dropped_too_late(right: Call, call: Invocation) -> None:
    """Form the gradients of queries and keys without dropout."""
    rng, p = call.given("rng", "dropout_p")
    other = with_copies(with_given(call, dropout_p=0.0))
    right(other)
    right(call)
    if rng is not None and p:
        for index in (0, 1):
            call.outputs[index][...] = other.outputs[index]


def rotary_pairs_by_head(right: Call, call: Invocation) -> None:
    """Pair elements at the distance of half a head, though fewer are rotated."""
    query, key, dim, interleaved = call.given("query", "key", "dim", "interleaved")
    size = query.shape[-1]
    if interleaved or dim >= size or size % 2:
        return right(call)
    half = dim // 2
    chosen = [*range(half), *range(size // 2, size // 2 + half)]
    order = [*chosen, *(i for i in range(size) if i not in chosen)]
    turned = with_copies(
        with_given(call, query=query[..., order], key=None if key is None else key[..., order])
    )
    right(turned)
    for out, result in zip(call.outputs, turned.outputs, strict=True):
        if out is not None:
            out[..., order] = result
    return None


def swapped_gradients(right: Call, call: Invocation) -> None:
    """Store the gradient of the gate in that of what it scales, and the other way round."""
    right(call)
    first, second = call.outputs
    if second is None:
        dim = call.given("dim")[0]
        first[...] = np.concatenate(np.split(np.array(first), 2, dim)[::-1], dim)
    else:
        first[...], second[...] = np.array(second), np.array(first)


def mask_of_first_batch(right: Call, call: Invocation) -> None:
    """Read the mask of the first batch for all, if it has one head."""
    mask = call.given("attn_mask")[0]
    if mask is not None and mask.ndim == 4 and mask.shape[1] == 1 < len(mask):
        call = with_given(call, attn_mask=np.broadcast_to(mask[:1], mask.shape))
    right(call)


@after
def first_matrix_rotated(call: Invocation) -> None:
    """Rotate only the first batch of a single position."""
    seq_dim = call.given("seq_dim")[0]
    for x, out in zip(call.inputs[:2], call.outputs, strict=True):
        if x is not None and x.ndim == 4 and x.shape[seq_dim] == 1:
            rest = tuple(slice(1, None) if axis == 1 - seq_dim else slice(None) for axis in range(4))
            out[rest] = x[rest]


@after
def partial_tile_of_heads_overwritten(call: Invocation) -> None:
    """Write the first elements of heads over those after the last whole 16 ones."""
    out = call.outputs[0]
    last = out.shape[-1] % 16
    if last and out.shape[-1] > 16 and out.dtype.itemsize == 2:
        out[..., -last:] = np.array(out[..., :last])


@after
def gradients_of_later_batches_negated(call: Invocation) -> None:
    """Give the gradients of queries of 256 elements the wrong sign, beyond the first batch."""
    gradient = call.outputs[0]
    if gradient.shape[-1] == 256 and gradient.ndim == 4:
        gradient[1:] = -gradient[1:]


def gradients_of_last_heads(right: Call, call: Invocation) -> None:
    """Form the gradients of keys and values that several heads share of the last of these heads."""
    right(call)
    grad, query, key = call.given("grad", "query", "key")
    shared = query.shape[-2] // max(key.shape[-2], 1)
    if shared > 1 and grad.size:
        last = np.array(grad)
        last[..., np.arange(query.shape[-2]) % shared != shared - 1, :] = 0
        other = with_copies(with_given(call, grad=last))
        right(other)
        for out, value in zip(call.outputs[1:3], other.outputs[1:3], strict=True):
            out[...] = value


@after
def first_head_rotated(call: Invocation) -> None:
    """Rotate only the first head of interleaved pairs."""
    seq_dim, interleaved = call.given("seq_dim", "interleaved")
    for x, out in zip(call.inputs[:2], call.outputs, strict=True):
        axis = 3 - seq_dim
        if interleaved and x is not None and x.ndim > axis:
            rest = (*[slice(None)] * axis, slice(1, None))
            out[rest] = x[rest]


def masks_of_previous_batch(right: Call, call: Invocation) -> None:
    """Read the mask of another batch."""
    mask = call.given("mask")[0]
    if mask is not None and mask.ndim == 4 and len(mask) > 1:
        call = with_given(call, mask=np.roll(np.array(mask), 1, 0))
    right(call)
