"""Softmax of scaled and masked attention scores."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, double, operator
from isthmus.drivers.numpy.kernels.reductions import total


def later(scores: Array, causal: bool) -> Any:
    """Return the mask of keys after each query if causal, else of none; the last query meets the last key."""
    queries, keys = scores.shape[-2:]
    return np.triu(np.ones((queries, keys), bool), keys - queries + 1) & causal


def softmax(scores: Array) -> Any:
    """Softmax over the last dimension; rows of -inf alone give NaN."""
    powers = np.exp(scores - np.max(scores, -1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(-1, keepdims=True)


@operator("isthmus::scaled_masked_softmax")
def scaled_masked_softmax(x: Array, mask: Maybe, scale: float, causal: bool) -> Any:
    triangle = later(x, causal)
    hidden = np.broadcast_to(triangle if mask is None else triangle | mask, x.shape)
    out = softmax(np.where(hidden, -np.inf, double(x) * scale))
    return np.where(hidden.all(-1, keepdims=True) | triangle, 0, out)


@operator("isthmus::scaled_masked_softmax_backward")
def scaled_masked_softmax_backward(grad: Array, out: Array, scale: float, causal: bool) -> Any:
    triangle = later(out, causal)
    grad, out = (np.where(triangle, 0, double(each)) for each in (grad, out))
    return scale * out * (grad - total(grad * out, -1, True))
