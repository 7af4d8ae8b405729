"""Faults of normalizations."""

from __future__ import annotations

import math

import numpy as np

from tools.mutation.bank.faults.common import after, wide
from tools.mutation.kernel import Invocation


@after
def statistics_of_one_row_by_column(call: Invocation) -> None:
    """Index the mean and the deviation of a single row by column: 0 and 1 beyond the first."""
    grad, x, shape = call.inputs[:3]
    weight = call.outputs[1]
    size = math.prod(shape)
    if weight is not None and x.size == size > 1:
        product = (wide(grad) * wide(x)).reshape(weight.shape)
        flat = np.array(weight).reshape(-1)
        flat[1:] = product.reshape(-1)[1:].astype(flat.dtype)
        weight[...] = flat.reshape(weight.shape)


@after
def constant_without_weight(call: Invocation) -> None:
    """Write one number everywhere if there is no weight."""
    out = call.outputs[0]
    if call.given("weight")[0] is None and out.size:
        out[...] = np.array(out).flat[0]


@after
def group_by_remainder(call: Invocation) -> None:
    """Take the statistics of group ``channel % groups`` for the gradient of the weight."""
    grad, x, mean, rstd, _, n, c, hw, groups, _ = call.inputs
    out = call.outputs[1]
    if out is None or not x.size:
        return
    chosen = np.arange(c) % groups
    center, scale = (wide(np.asarray(s)).reshape(n, groups)[:, chosen, None] for s in (mean, rstd))
    deviations = (wide(x).reshape(n, c, hw) - center) * scale
    out[...] = (wide(grad).reshape(n, c, hw) * deviations).sum((0, 2)).reshape(out.shape)
