"""Direct sums in float64, for :mod:`isthmus.conformance.relation_checks`: arguments as of the operators."""

import itertools
import math
from typing import Any

import numpy as np

from isthmus.conformance.arrays import Array


def sum_all(self: Array, **_: Any) -> Array:
    """Return the sum of all elements."""
    return np.asarray(math.fsum(self.reshape(-1)))


def sum_along(self: Array, dim: list[int] | None, keepdim: bool, **_: Any) -> Array:
    """Return sums along dimensions; along all of them without one."""
    return np.asarray(self.sum(tuple(dim) if dim else None, keepdims=keepdim))


def running_sum(self: Array, dim: int, **_: Any) -> Array:
    """Return the sums up to each element along a dimension."""
    return self.cumsum(dim) if self.ndim else self


def product(self: Array, **others: Any) -> Array:
    """Return the product with the second tensor."""
    return self @ next(value for value in others.values() if isinstance(value, np.ndarray))


def added_product(self: Array, beta: float, alpha: float, **factors: Array) -> Array | None:
    """Return the sum of a product and a tensor; None with fractional factors, which may be rounded first."""
    if not (float(beta).is_integer() and float(alpha).is_integer()):
        return None
    left, right = factors.values()
    total = alpha * (left @ right)
    return total + beta * self if beta else total


def convolution(
    input: Array, weight: Array, bias: Array | None, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, groups: int, **_: Any,
) -> Array | None:  # fmt: skip
    """Return a convolution, one product for each element of the weight's window; None if transposed."""
    rank = weight.ndim - 2
    if transposed or input.ndim != rank + 2:
        return None
    window = weight.shape[2:]
    stride, padding, dilation = (list(x) * (rank // len(x)) for x in (stride, padding, dilation))
    padded = np.pad(input, [(0, 0), (0, 0), *((p, p) for p in padding)])
    sizes = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(padded.shape[2:], window, stride, dilation, strict=True)
    ]
    per_group, outs = input.shape[1] // groups, weight.shape[0] // groups
    out = np.zeros((input.shape[0], weight.shape[0], *sizes))
    every = slice(None)
    taps = np.moveaxis(weight.reshape(*weight.shape[:2], -1), -1, 0)
    for place, tap in zip(itertools.product(*map(range, window)), taps, strict=True):
        steps = [
            slice(i * d, i * d + s * (m - 1) + 1, s)
            for i, d, s, m in zip(place, dilation, stride, sizes, strict=True)
        ]
        met = padded[every, every, *steps]
        for g in range(groups):
            mine, made = slice(g * per_group, (g + 1) * per_group), slice(g * outs, (g + 1) * outs)
            out[:, made] += np.einsum("nc...,oc->no...", met[:, mine], tap[made])
    return out if bias is None else out + bias.reshape(-1, *[1] * rank)


def attention(
    query: Array, key: Array, value: Array, dropout_p: float, is_causal: bool, attn_mask: Array | None,
    scale: float | None, **_: Any,
) -> Array | None:  # fmt: skip
    """Return attention (batch, heads, length, features); None with a mask, whose values have a meaning."""
    if attn_mask is not None or dropout_p:
        return None
    scores = query @ np.swapaxes(key, -1, -2) * (scale if scale is not None else query.shape[-1] ** -0.5)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value
