"""Softmax of scaled and masked attention scores."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset.operator import ONLY_NAN, Operator, accumulated, extension
from isthmus.opset.sampling import Array, Case, Maker

_FORWARD = accumulated(48, "exponentials within 20 units in the last place, over their blocked sum")
_BACKWARD = accumulated(32, "a blocked sum of products over the row")


def _scores(m: Maker) -> Iterator[tuple[str, Array, Array | None, float, bool]]:
    """(kind, scores, mask, scale, causal): rectangles, masks of every broadcast shape, rows masked out."""
    yield "contiguous", m.tensor(2, 3, 17, 35), m.mask(2, 1, 17, 35, share=0.3), 0.37, False
    yield "contiguous", m.tensor(2, 19, 19), None, 0.37, True
    yield "contiguous", m.tensor(3, 5, 33), None, 0.37, True
    yield "contiguous", m.tensor(2, 11, 7), None, 0.37, True
    yield "contiguous", m.tensor(9, 13), m.mask(9, 1, share=0.4), 0.37, True
    yield "contiguous", m.tensor(2, 5, 21), m.mask(1, 21, share=0.5), 0.37, False
    yield "contiguous", m.tensor(1, 1), None, 0.37, False
    yield (
        "strided",
        m.tensor(2, 3, 5, 19, layout="heads"),
        m.mask(2, 1, 5, 19, layout="transposed"),
        0.37,
        False,
    )
    yield "strided", m.tensor(7, 19, layout="transposed"), None, 0.37, True
    yield "large", m.tensor(3, 1031), None, 0.37, False
    yield "zero-size", m.tensor(2, 0, 7), None, 0.37, False
    rows = m.mask(2, 1, 7, 9, share=0.4).view.copy()
    rows[0, 0, 2], rows[1, 0, 6] = True, True  # rows without keys
    yield "contiguous", m.tensor(2, 3, 7, 9), m.values(rows, "bool"), -1.4, False
    yield "contiguous", m.tensor(2, 3, 7, 9), m.values(rows, "bool"), 2.5, True
    yield "contiguous", m.tensor(2, 3, 4, 9), m.mask(1, 3, 1, 9, share=0.3), 1.0, True
    yield "contiguous", m.tensor(3, 5, 6), m.mask(6, share=0.4), 0.0, False
    # Scores whose exponentials overflow, above hidden ones and below.
    high = m.values([[900.0, 30_000.0, 901.0, -900.0], [-30_000.0, -900.0, -902.0, 30_000.0]])
    yield (
        "special",
        high,
        m.values([[False, True, False, False], [False, False, False, True]], "bool"),
        1.0,
        False,
    )
    yield "special", high, None, -0.01, False
    low = m.tensor(3, 17, low=-30_100, high=-30_000)  # finite, and below what stands for masked scores
    yield "special", low, m.mask(3, 17, share=0.4), 1.0, False
    if m.dtype == "float32":
        last = m.tensor(2, 65_601).view.copy()
        last[0, -1] = 1000.0  # a maximum that only the last block has
        yield "large", m.values(last), None, 1.0, False
        hidden = np.ones((2, 65_601), bool)
        hidden[0, -1] = False  # one key is seen, the last
        yield "large", m.tensor(2, 65_601), m.values(hidden, "bool"), 0.37, False
        yield "large", m.tensor(2, 130, 520), m.mask(130, 1, share=0.1), 0.7, True


def _forward(m: Maker) -> Iterator[Case]:
    for kind, scores, mask, scale, causal in _scores(m):
        yield m.case(kind, scores, mask, scale, causal)


def _backward(m: Maker) -> Iterator[Case]:
    for kind, scores, mask, scale, causal in _scores(m):
        values = np.exp(np.minimum(scores.view.astype(np.float64), 9))
        if mask is not None:
            values = np.where(mask.view, 0, values)
        out = m.values(values / np.maximum(values.sum(-1, keepdims=True), 1e-9))
        yield m.case(kind, m.tensor(*scores.shape), out, scale, causal)
    # Gradients whose product with the scale float16 cannot hold.
    yield m.case(
        "special", m.tensor(5, 19, low=-3e4, high=3e4), m.tensor(5, 19, low=0, high=0.03), 4.0, False
    )


def _upper(scores: Any) -> Any:
    import torch

    queries, keys = scores.shape[-2:]
    return torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)


def _softmax(input: Any, mask: Any, scale: float, causal: bool) -> Any:
    import torch

    hidden = torch.zeros(input.shape, dtype=torch.bool)
    hidden = hidden if mask is None else hidden | mask
    triangle = _upper(input) if causal else torch.zeros_like(hidden)
    out = (input * scale).masked_fill(hidden | triangle, float("-inf")).softmax(-1)
    return out.masked_fill((hidden | triangle).all(-1, keepdim=True) | triangle, 0)


def _gradient(grad: Any, out: Any, scale: float, causal: bool, magnitude: bool = False) -> Any:
    if causal:  # the upper triangle is zero and not read
        grad, out = grad.masked_fill(_upper(out), 0), out.masked_fill(_upper(out), 0)
    if not magnitude:
        return scale * out * (grad - (grad * out).sum(-1, keepdim=True))
    return abs(scale * out) * (grad.abs() + (grad * out).abs().sum(-1, keepdim=True))


OPERATORS: list[Operator] = [
    extension("scaled_masked_softmax(Tensor input, Tensor? mask, float scale, bool causal) -> Tensor",
              "input.shape", "input.dtype", _forward, _FORWARD, differentiable="input", reference=_softmax,
              magnitude=_softmax, resizable=True, special=ONLY_NAN),
    extension("scaled_masked_softmax_backward(Tensor grad, Tensor out, float scale, bool causal) -> Tensor",
              "out.shape", "out.dtype", _backward, _BACKWARD, reference=_gradient,
              magnitude=lambda **arguments: _gradient(**arguments, magnitude=True), resizable=True, special=ONLY_NAN),
]  # fmt: skip
