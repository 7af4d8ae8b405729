"""The formula is wrong. Most of these mistakes are planted in source text (:mod:`tools.mutation.source`)."""

from __future__ import annotations

import numpy as np

from isthmus.opset import dtypes as dt
from tools.mutation.kernel import Array, Call, Invocation
from tools.mutation.mutant import Mutation, floats_as, mutate_simply, written_as


def _one_bit_off(x: Array) -> Array:
    bits = np.array(x).view(f"u{x.itemsize}")
    usual = np.isfinite(x) & (x != 0)
    return (bits ^ (np.arange(bits.size).reshape(bits.shape) == 0) * usual.astype(bits.dtype)).view(x.dtype)


def _unevenly(right: Call, call: Invocation) -> None:
    """Draw only half of the random numbers and use them twice."""
    right(call)
    for x in call.results():
        if x.ndim and x.shape[0] > 1:
            half = x.shape[0] // 2
            x[:half] = 0 if dt.name_of(x.dtype) == "bool" else x[half : 2 * half] * x.dtype.type(0.5)


def _last_drawn_twice(right: Call, call: Invocation) -> None:
    """Draw the last of an odd number, which has no pair, again with the number before it."""
    right(call)
    for x in call.results():
        if x.size % 2 and x.size > 1 and dt.name_of(x.dtype) in dt.FLOATS:
            x.flat[x.size - 1] = x.flat[x.size - 2]


MUTATIONS = (
    Mutation(
        "one bit off",
        mutate_simply(
            written_as(lambda new, _: floats_as(_one_bit_off)(new)),
            lambda target: target.reads and target.float_results and target.moves,
        ),
    ),
    Mutation("uneven distribution", mutate_simply(_unevenly, lambda target: target.random)),
    Mutation(
        "last of an odd number drawn twice",
        mutate_simply(_last_drawn_twice, lambda target: target.name in ("aten::normal_", "aten::uniform_")),
    ),
)
