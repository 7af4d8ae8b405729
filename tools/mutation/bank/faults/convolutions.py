"""Faults of transposed convolutions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tools.mutation.bank.faults.common import after, wide, with_given
from tools.mutation.kernel import Call, Invocation


def _convolved_with(right: Call, call: Invocation, **changed: Any) -> None:
    """Convolve with other arguments, and write what fits into the result; the rest is 0."""
    other = with_given(call, **changed)
    x, weight, stride, padding, dilation, more = other.given(
        "input", "weight", "stride", "padding", "dilation", "output_padding"
    )
    size = [
        (n - 1) * s - 2 * p + d * (k - 1) + o + 1
        for n, s, p, d, k, o in zip(
            x.shape[2:], stride, padding, dilation, weight.shape[2:], more, strict=True
        )
    ]
    out = call.outputs[0]
    if min(size, default=0) <= 0 or not x.size:
        return right(call)
    result = np.zeros((*out.shape[:2], *size), out.dtype)
    right(replace(other, outputs=[result]))
    common = tuple(slice(min(a, b)) for a, b in zip(out.shape, result.shape, strict=True))
    out[...] = 0
    out[common] = result[common]
    return None


@after
def shifted_by_output_padding(call: Invocation) -> None:
    """Begin at the output padding of a transposed convolution, which belongs at the end."""
    transposed, more = call.given("transposed", "output_padding")
    out = call.outputs[0]
    if transposed and any(more) and out.size:
        values = np.array(out)
        out[...] = 0
        whole = (slice(None), slice(None))
        end = (slice(m - n) for m, n in zip(out.shape[2:], more, strict=True))
        out[*whole, *(slice(n, None) for n in more)] = values[*whole, *end]


def undilated_if_transposed(right: Call, call: Invocation) -> None:
    """Ignore the dilation of padded transposed convolutions."""
    transposed, padding, dilation = call.given("transposed", "padding", "dilation")
    if not transposed or not any(padding) or max(dilation) == 1:
        return right(call)
    return _convolved_with(right, call, dilation=[1] * len(dilation))


def paddings_swapped_if_transposed(right: Call, call: Invocation) -> None:
    """Exchange the paddings of the dimensions of transposed convolutions."""
    transposed, padding = call.given("transposed", "padding")
    if not transposed or padding == padding[::-1]:
        return right(call)
    return _convolved_with(right, call, padding=padding[::-1])


def first_kernel_row_in_bfloat16(right: Call, call: Invocation) -> None:
    """Run the kernel of one dimension for transposed convolutions of two dimensions, in bfloat16."""
    weight, transposed = call.given("weight", "transposed")
    if transposed and weight.ndim == 4 and weight.dtype.name == "bfloat16":
        first = np.array(weight)
        first[..., 1:, :] = 0
        call = with_given(call, weight=first)
    right(call)


@after
def divided_by_whole_windows(call: Invocation) -> None:
    """Divide by the size of the kernel, also at the borders of ceil_mode."""
    x, kernel, stride, padding, ceil_mode = call.inputs[:5]
    out = call.outputs[0]
    if not ceil_mode or call.inputs[6] is not None or any(padding) or not out.size:
        return
    factor: Any = 1.0
    stride = stride or kernel
    for axis in range(len(kernel)):
        place = axis - len(kernel)
        start = np.arange(out.shape[place]) * stride[axis]
        counted = np.minimum(start + kernel[axis], x.shape[place]) - start
        factor = factor * (counted / kernel[axis]).reshape(-1, *[1] * (-1 - place))
    out[...] = wide(out) * factor
