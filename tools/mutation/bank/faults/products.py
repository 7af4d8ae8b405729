"""Faults of matrix products and convolutions of some sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tools.mutation.bank.faults.common import after, factors_of, when
from tools.mutation.kernel import Array, Call, Invocation
from tools.mutation.mutant import Wrong


def _with_fewer_terms(call: Invocation, kept: int) -> Invocation:
    i, j = factors_of(call)
    a, b = call.inputs[i], call.inputs[j]
    return call.with_input(i, a[..., :kept]).with_input(j, b[..., :kept, :])


def terms_of_one_row_lost(block: int) -> Wrong:
    """Lose the terms after whole blocks where the first factor has one row."""

    def wrong(right: Call, call: Invocation) -> None:
        a = call.inputs[factors_of(call)[0]]
        terms = a.shape[-1]
        one = a.ndim > 1 and a.shape[-2] == 1 and terms > block
        right(_with_fewer_terms(call, terms - terms % block) if one else call)

    return wrong


def terms_of_transposed_lost(block: int) -> Wrong:
    """Lose the terms after whole blocks where the first factor is a transposed float16 matrix."""

    def wrong(right: Call, call: Invocation) -> None:
        a = call.inputs[factors_of(call)[0]]
        terms = a.shape[-1]
        turned = a.dtype == np.float16 and a.ndim > 1 and a.strides[-2] == a.itemsize < a.strides[-1]
        right(_with_fewer_terms(call, terms - terms % block) if turned and terms > block else call)

    return wrong


@after
def odd_column_repeated(call: Invocation) -> None:
    """Write the column before the last to the last one, where the sizes of a float16 product are odd."""
    out = call.outputs[0]
    odd = out.ndim > 1 and out.shape[-1] % 2 and out.shape[-2] % 2
    if out.dtype == np.float16 and odd and out.shape[-1] > 1:
        out[..., -1] = np.array(out[..., -2])


def small_images_unwritten(multiple: int, positions: int) -> Wrong:
    """Write 0 to the last positions of images smaller than a block, for kernels of size 1."""

    def concerned(call: Invocation) -> bool:
        x, weight = call.inputs[:2]
        return (
            math.prod(weight.shape[2:]) == 1
            and weight.shape[0] % multiple == 0
            and weight.shape[1] % multiple == 0
            and x.ndim == 4
            and math.prod(x.shape[2:]) < positions
        )

    @after
    def wrong(call: Invocation) -> None:
        out = call.outputs[0]
        count = math.prod(out.shape[2:])
        values = np.array(out).reshape(*out.shape[:2], count)
        values[..., count - count % multiple :] = 0
        out[...] = values.reshape(out.shape)

    return when(concerned, wrong)


def width_kept() -> Wrong:
    """Read images of an odd width with that of the first call of as many channels."""
    first: dict[Any, int] = {}

    def wrong(right: Call, call: Invocation) -> None:
        x = call.inputs[0]
        if x.ndim != 4 or not x.size:
            return right(call)
        width = first.setdefault((x.shape[1], str(x.dtype)), x.shape[-1])
        if width == x.shape[-1] or x.shape[-1] % 2 == 0:
            return right(call)

        def read(image: Array) -> Array:
            place = np.arange(image.shape[-2])[:, None] * width + np.arange(image.shape[-1])
            flat = np.array(image).reshape(*image.shape[:-2], -1)
            return np.asarray(flat[..., np.minimum(place, flat.shape[-1] - 1)])

        return right(call.with_input(0, read(x)))

    return wrong
