"""Faults of arguments: read as another value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tools.mutation.bank.faults.common import wide, with_copies, with_given
from tools.mutation.kernel import Array, Call, Invocation
from tools.mutation.mutant import Wrong, is_float


def fixed(name: str, value: Any) -> Wrong:
    """Read an argument as a constant."""
    return lambda right, call: right(with_given(call, **{name: value}))


def read_value(name: str, given: Any, value: Any) -> Wrong:
    """Read one value of an argument as another."""

    def wrong(right: Call, call: Invocation) -> None:
        right(with_given(call, **{name: value}) if call.given(name)[0] == given else call)

    return wrong


def absent(*names: str) -> Wrong:
    """Ignore optional arguments."""
    return lambda right, call: right(with_given(call, **dict.fromkeys(names)))


def absent_as(name: str, value: Any) -> Wrong:
    """Give an absent argument a value."""

    def wrong(right: Call, call: Invocation) -> None:
        right(with_given(call, **{name: value}) if call.given(name)[0] is None else call)

    return wrong


def ones_for(name: str) -> Wrong:
    """Read a tensor as ones."""
    return lambda right, call: right(with_given(call, **{name: np.ones_like(call.given(name)[0])}))


def correction_as_flag(right: Call, call: Invocation) -> None:
    correction = call.given("correction")[0]
    right(with_given(call, correction=correction if correction is None else int(bool(correction))))


def _resized(call: Invocation, result: Any) -> None:
    """Write a result of another shape as it lies in memory."""
    out = call.outputs[0]
    out[...] = np.resize(result, out.shape)


def negative_dims_missed(right: Call, call: Invocation) -> None:
    """Reduce the last dimension for each negative one."""
    x, dims, correction, _ = call.inputs
    if not x.ndim or not dims or not x.size or all(dim >= -1 for dim in dims):
        return right(call)
    axes = tuple({dim % x.ndim if dim >= 0 else x.ndim - 1 for dim in dims})
    with np.errstate(all="ignore"):
        return _resized(call, np.var(wide(x), axes, ddof=1 if correction is None else correction))


def sgd_arguments_swapped(right: Call, call: Invocation) -> None:
    """Take the momentum for the weight decay, the dampening for the momentum, the decay for the dampening."""
    decay, momentum, dampening = call.given("weight_decay", "momentum", "dampening")
    right(with_given(call, weight_decay=momentum, momentum=dampening, dampening=decay))


def window_ignored(right: Call, call: Invocation) -> None:
    left = call.given("left")[0]
    right(call if left is None else with_given(call, left=None, right=None))


def causal_ignored_if_unaligned(multiple: int) -> Wrong:
    """Ignore the causal mask for numbers of queries that the fused kernel does not take."""

    def wrong(right: Call, call: Invocation) -> None:
        ragged = call.given("input")[0].shape[-2] % multiple
        right(with_given(call, causal=False) if ragged else call)

    return wrong


def one_dilation(right: Call, call: Invocation) -> None:
    """Take the dilation of the width for both dimensions."""
    x, weight, _, stride, padding, dilation, transposed = call.inputs[:7]
    if transposed or len(dilation) != 2 or dilation[0] == dilation[1]:
        return right(call)
    out, wrong = call.outputs[0], [dilation[1]] * 2
    size = [
        max((n + 2 * p - d * (k - 1) - 1) // s + 1, 0)
        for n, p, d, k, s in zip(x.shape[2:], padding, wrong, weight.shape[2:], stride, strict=True)
    ]
    result = np.zeros((*out.shape[:2], *size), out.dtype)
    if result.size:
        right(replace(with_given(call, dilation=wrong), outputs=[result]))
    h, w = (min(a, b) for a, b in zip(size, out.shape[2:], strict=True))
    out[...] = 0
    out[..., :h, :w] = result[..., :h, :w]
    return None


def whole_head_rotated(right: Call, call: Invocation) -> None:
    """Rotate all elements of a head, with angles read beyond the end of their rows."""
    query, cos, sin, dim = call.given("query", "cos", "sin", "dim")
    size = query.shape[-1]
    if dim >= size or not cos.size or size % 2:
        return right(call)
    width = cos.shape[-1]
    wanted = size if width == dim else size // 2

    def beyond(table: Array) -> Any:
        flat = np.array(table).reshape(-1)
        places = np.arange(flat.size // width)[:, None] * width + np.arange(wanted)
        return flat[np.minimum(places, flat.size - 1)].reshape(*table.shape[:-1], wanted)

    return right(with_given(call, dim=size, cos=beyond(cos), sin=beyond(sin)))


def euclidean_below_two(right: Call, call: Invocation) -> None:
    """Form Euclidean distances for p between 0 and 2, but not for 1."""
    p = call.given("p")[0]
    right(with_given(call, p=2.0) if 0 < p < 2 and p != 1 else call)


def mask_inverted(right: Call, call: Invocation) -> None:
    mask = call.given("mask")[0]
    right(call if mask is None else with_given(call, mask=np.logical_not(mask)))


def ignored_rows_smoothed(right: Call, call: Invocation) -> None:
    """Add the uniform part of a smoothed loss for ignored rows, too."""
    target, ignore, smoothing = call.given("target", "ignore_index", "label_smoothing")
    right(call)
    ignored = target == ignore
    if smoothing and ignored.any():
        uniform = with_copies(with_given(call, target=np.where(ignored, 0, target).astype(target.dtype)))
        right(with_given(uniform, ignore_index=-(1 << 20), label_smoothing=1.0))
        loss = call.outputs[0]
        loss[...] = np.where(ignored, smoothing * wide(uniform.outputs[0]), loss)


def first_gradient_for_all(right: Call, call: Invocation) -> None:
    """Scale the gradients of all rows by that of the first loss."""
    grad = call.given("grad")[0]
    if grad is None or not grad.size:
        return right(call)
    return right(with_given(call, grad=np.full_like(grad, grad.reshape(-1)[0])))


def asymmetric_resize(right: Call, call: Invocation) -> None:
    """Interpolate without the shift by half a pixel."""
    x, size, align = call.inputs[:3]
    if align or not x.size:
        return right(call)
    result = np.asarray(wide(x))
    for axis, count in zip((-2, -1), size, strict=True):
        n = result.shape[axis]
        place = np.arange(count) * (n / count)
        low = np.minimum(np.floor(place).astype(int), n - 1)
        high, t = np.minimum(low + 1, n - 1), place - low
        t = t[:, None] if axis == -2 else t
        result = np.take(result, low, axis) * (1 - t) + np.take(result, high, axis) * t
    call.outputs[0][...] = result if is_float(call.outputs[0]) else np.rint(result)
    return None
