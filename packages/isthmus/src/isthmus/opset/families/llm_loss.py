"""Cross entropy of large language models: of logits, and fused with a linear layer."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset.families._common import size_of
from isthmus.opset.operator import ONLY_NAN, Operator, accumulated, extension
from isthmus.opset.sampling import Array, Case, Maker

_LOSS = accumulated(64, "exponentials within 20 units in the last place and their sum by blocks")
_GRADIENT = accumulated(64, "an exponential within 20 units in the last place, of the rounded lse")

_HALVES = "logits and their gradients are rounded to the dtype, as between a linear layer and its loss"
_LINEAR = {
    "": accumulated(64, "products in blocks, exponentials within 20 units in the last place"),
    "bfloat16": accumulated(4 * 2**16, _HALVES),
    "float16": accumulated(4 * 2**13, _HALVES),
}

_IGNORED = -100
# ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale
_PLAIN = (_IGNORED, 0.0, 1.0, 0.0, 0.0)
_FULL = (2, 0.1, 0.7, 5.0, 1e-2)


def _target(m: Maker, shape: tuple[int, ...], classes: int, ignored: int) -> Array:
    labels = m.integers(*shape, high=classes).view.copy()
    labels.reshape(-1)[1::4] = ignored
    return m.values(labels, "int64")


def _rows(m: Maker) -> Iterator[tuple[str, Array, Array, tuple[Any, ...]]]:
    for kind, shape, layout, terms in (
        ("contiguous", (19, 67), "contiguous", _PLAIN),
        ("contiguous", (3, 5, 33), "contiguous", _FULL),
        ("contiguous", (7, 5), "contiguous", (_IGNORED, 0.3, 1.0, 0.0, 0.0)),
        ("contiguous", (13,), "contiguous", _PLAIN),
        ("contiguous", (4, 1), "contiguous", (_IGNORED, 0.0, 2.0, 0.0, 0.1)),
        ("strided", (9, 37), "transposed", _FULL),
        ("strided", (3, 19, 35), "heads", _PLAIN),
        ("large", (3, 4111), "contiguous", _PLAIN),
        ("zero-size", (0, 7), "contiguous", _PLAIN),
        # A negative scale; an ignored class that exists; all of the target smoothed away.
        ("contiguous", (8, 11), "contiguous", (0, 0.45, -1.3, 2.0, 0.2)),
        ("contiguous", (9, 7), "contiguous", (6, 1.0, 1.0, 1.5, 0.0)),
        ("contiguous", (5, 6), "contiguous", (-1, 0.0, 1.7, 3.0, 0.0)),
    ):
        yield kind, m.tensor(*shape, layout=layout), _target(m, shape[:-1], shape[-1], terms[0]), terms
    # Exponentials that overflow; a row whose targets are all ignored; ends of the row as targets.
    high = m.values([[900.0, 1.0, -900.0], [-900.0, -901.0, -902.5], [0.0, 700.0, 700.0]])
    yield "special", high, m.values([0, 2, 1], "int64"), _PLAIN
    yield "special", high, m.values([0, 0, 2], "int64"), (_IGNORED, 0.2, 0.5, 400.0, 1e-4)
    yield "special", m.tensor(3, 37, low=-30_000, high=-29_990), m.values([0, 36, 5], "int64"), _PLAIN
    yield "contiguous", m.tensor(1, 3), m.values([1], "int64"), _FULL
    yield "contiguous", m.tensor(1, 1, 2), m.values([[1]], "int64"), _PLAIN
    yield "contiguous", m.tensor(2, 9), m.values([_IGNORED, _IGNORED], "int64"), _PLAIN
    if m.dtype == "float32":
        yield (
            "large",
            m.tensor(2, 65_601),
            m.values([65_600, 40_001], "int64"),
            (_IGNORED, 0.1, 0.9, 0.0, 1e-3),
        )
        logits = m.tensor(2, 65_601).view.copy()
        logits[0, -1] = 1000.0  # a maximum that only the last block has
        yield "large", m.values(logits), m.values([3, 65_600], "int64"), _PLAIN
        yield "large", m.tensor(65_601, 1, 3), m.integers(65_601, 1, high=3), (1, 0.3, 1.1, 4.0, 0.02)


def _losses(m: Maker) -> Iterator[Case]:
    for kind, logits, target, terms in _rows(m):
        yield m.case(kind, logits, target, *terms)


def _lse(m: Maker, logits: Array, terms: tuple[Any, ...]) -> Array:
    z = logits.view.astype(np.float64) * terms[2]
    z = terms[3] * np.tanh(z / terms[3]) if terms[3] else z
    return m.values(np.logaddexp.reduce(z, -1), m.compute_dtype)


def _row_gradients(m: Maker, logits: Array, terms: tuple[Any, ...]) -> tuple[Array, Array | None, Array]:
    """Gradients of the losses and optionally of the log-sum-exp; and the log-sum-exp."""
    shape = logits.shape[:-1]
    grad_lse = m.tensor(*shape, dtype=m.compute_dtype) if terms[1] in (0.1, 0.45, 1.0) else None
    return m.tensor(*shape, dtype=m.compute_dtype), grad_lse, _lse(m, logits, terms)


def _gradients(m: Maker) -> Iterator[Case]:
    for kind, logits, target, terms in _rows(m):
        grad, grad_lse, lse = _row_gradients(m, logits, terms)
        yield m.case(kind, grad, grad_lse, logits, target, lse, *terms)


def _written_gradients(m: Maker) -> Iterator[Case]:
    for kind, logits, target, terms in _rows(m):
        grad, grad_lse, lse = _row_gradients(m, logits, terms)
        yield m.case(kind, logits, grad, grad_lse, target, lse, *terms)


def _linears(m: Maker) -> Iterator[Case]:
    for kind, rows, features, classes, layout, chunk, terms, wanted in (
        ("contiguous", 7, 11, 33, "contiguous", 3, _PLAIN, [True, True, True]),
        ("contiguous", 8, 5, 19, "contiguous", 3, _FULL, [True, True, True]),
        ("contiguous", 5, 3, 17, "contiguous", 2, _FULL, [True, False, False]),
        ("contiguous", 5, 3, 17, "contiguous", 64, _PLAIN, [False, False, False]),
        ("strided", 6, 9, 13, "transposed", 4, _FULL, [True, True, False]),
        ("zero-size", 0, 4, 9, "contiguous", 2, _PLAIN, [True, True, True]),
    ):
        hidden = m.tensor(rows, features, layout=layout, low=-0.9, high=1.1)
        weight = m.tensor(classes, features, layout=layout, low=-0.9, high=1.1)
        bias = m.tensor(classes) if wanted[2] else None
        grad = m.tensor(rows, dtype=m.compute_dtype) if terms == _FULL else None
        target = _target(m, (rows,), classes, terms[0])
        yield m.case(kind, hidden, weight, bias, target, grad, *terms, chunk, wanted)
    # A gradient without other terms, other terms without a gradient, and a bias whose gradient is not wanted.
    for terms, chunk, scale, wanted in (
        (_PLAIN, 4, 1.0, [False, True, True]),
        ((3, 0.25, -1.6, 6.0, 0.05), 1, None, [False, False, True]),
        ((0, 0.0, 1.0, 3.0, 0.0), 5, -0.7, [False, True, False]),
        ((_IGNORED, 0.6, 0.4, 0.0, 0.3), 6, 1.0, [True, True, False]),
    ):
        hidden, weight = (m.tensor(n, 7, low=-0.9, high=1.1) for n in (11, 10))
        grad = m.tensor(11, low=-2 * scale, high=scale, dtype=m.compute_dtype) if scale else None
        yield m.case("contiguous", hidden, weight, m.tensor(10), _target(m, (11,), 10, terms[0]), grad, *terms, chunk,
                     wanted)  # fmt: skip
    if m.dtype == "float32":
        for rows, features in ((4133, 3), (3, 4133)):
            hidden, weight = (m.tensor(n, features, low=-0.1, high=0.12) for n in (rows, 5))
            yield m.case("large", hidden, weight, m.tensor(5), _target(m, (rows,), 5, 2), None, *_FULL, rows,
                         [True, True, True])  # fmt: skip
        hidden, weight = m.tensor(3, 2), m.tensor(65_601, 2)  # smoothing adds all logits of a row
        target = m.values([65_600, 2, 40_000], "int64")
        yield m.case("large", hidden, weight, None, target, None, *_FULL, 3, [True, True, False])
        hidden, weight = m.tensor(130, 68, low=-0.3, high=0.3), m.tensor(257, 68, low=-0.3, high=0.3)
        yield m.case("large", hidden, weight, m.tensor(257), _target(m, (130,), 257, _IGNORED), None, *_PLAIN, 64,
                     [True, True, True])  # fmt: skip


def _capped(logits: Any, scale: float, softcap: float) -> Any:
    return softcap * (scale * logits / softcap).tanh() if softcap else scale * logits


def _loss(logits: Any, target: Any, ignore_index: int, label_smoothing: float, logit_scale: float, softcap: float,
          lse_square_scale: float, magnitude: bool = False) -> Any:  # fmt: skip
    z, ignored = _capped(logits, logit_scale, softcap), target == ignore_index
    lse = z.logsumexp(-1)
    right = z.gather(-1, target.masked_fill(ignored, 0).unsqueeze(-1)).squeeze(-1)
    parts = [lse, -(1 - label_smoothing) * right, -label_smoothing * z.mean(-1), lse_square_scale * lse**2]
    if magnitude:
        parts = [1 + lse.abs() + z.abs().amax(-1), *(part.abs() for part in parts[1:])]
        lse = parts[0]
    return sum(parts).masked_fill(ignored, 0), lse


def _gradient(grad: Any, grad_lse: Any, logits: Any, target: Any, lse: Any, ignore_index: int,
              label_smoothing: float, logit_scale: float, softcap: float, lse_square_scale: float,
              magnitude: bool = False) -> Any:  # fmt: skip
    import torch

    z, ignored = _capped(logits, logit_scale, softcap), (target == ignore_index).unsqueeze(-1)
    right = torch.nn.functional.one_hot(target.masked_fill(target == ignore_index, 0), logits.shape[-1])
    grad, lse = grad.unsqueeze(-1).masked_fill(ignored, 0), lse.unsqueeze(-1)
    weight = grad * (1 + 2 * lse_square_scale * lse)
    weight = weight if grad_lse is None else weight + grad_lse.unsqueeze(-1)
    terms = [weight * (z - lse).exp(), -grad * (1 - label_smoothing) * right,
             -grad * label_smoothing / logits.shape[-1]]  # fmt: skip
    if magnitude:
        terms = [abs(term) for term in terms]
        terms[0] = terms[0] * (1 + z.abs() + lse.abs())
    slope = logit_scale * (1 - (z / softcap) ** 2) if softcap else logit_scale
    out = sum(terms) * slope
    return out.masked_fill(ignored, 0) if grad_lse is None else out


def _gradient_over(logits: Any, grad: Any, grad_lse: Any, *others: Any, **named: Any) -> None:
    logits.copy_(_gradient(grad, grad_lse, logits, *others, **named))


def _linear(hidden: Any, weight: Any, bias: Any, target: Any, grad: Any, ignore_index: int, label_smoothing: float,
            logit_scale: float, softcap: float, lse_square_scale: float, chunk_size: int, wanted: list[bool],
            magnitude: bool = False) -> Any:  # fmt: skip
    import torch

    terms = (ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale)
    logits = torch.nn.functional.linear(hidden, weight, bias)
    loss, lse = _loss(logits, target, *terms)
    grad = torch.ones_like(loss) if grad is None else grad
    slope = _gradient(grad, None, logits, target, lse, *terms, magnitude=magnitude)
    if magnitude:  # the logits are rounded to the dtype, and so are their gradients
        hidden, weight = hidden.abs(), weight.abs()
        size = torch.nn.functional.linear(hidden, weight, None if bias is None else bias.abs())
        slope = slope * (1 + size + size.amax(-1, keepdim=True))
        lse = 1 + lse.abs() + size.amax(-1)
        loss = loss.abs() + lse * (2 + lse_square_scale * lse)
    made = (slope @ weight, slope.t() @ hidden, slope.sum(0))
    return loss, lse, *(each if asked else None for each, asked in zip(made, wanted, strict=True))


_TERMS = "int ignore_index, float label_smoothing, float logit_scale, float softcap, float lse_square_scale"

OPERATORS: list[Operator] = [
    extension(f"cross_entropy(Tensor logits, Tensor target, {_TERMS}) -> (Tensor loss, Tensor lse)",
              "(target.shape, target.shape)", "(accumulator(logits), accumulator(logits))", _losses, _LOSS,
              differentiable="logits", reference=_loss, magnitude=size_of(_loss), resizable=True, special=ONLY_NAN),
    extension("cross_entropy_backward(Tensor grad, Tensor? grad_lse, Tensor logits, Tensor target, Tensor lse, "
              f"{_TERMS}) -> Tensor",
              "logits.shape", "logits.dtype", _gradients, _GRADIENT, reference=_gradient,
              magnitude=size_of(_gradient), resizable=True, special=ONLY_NAN,
              denormal=False),
    extension("cross_entropy_backward_(Tensor(a!) logits, Tensor grad, Tensor? grad_lse, Tensor target, Tensor lse, "
              f"{_TERMS}) -> ()",
              "None", "None", _written_gradients, _GRADIENT, reference=_gradient_over,
              magnitude=size_of(_gradient), resizable=True, special=ONLY_NAN,
              denormal=False),
    extension("linear_cross_entropy(Tensor hidden, Tensor weight, Tensor? bias, Tensor target, Tensor? grad, "
              f"{_TERMS}, int chunk_size, bool[3] wanted) -> "
              "(Tensor loss, Tensor lse, Tensor? grad_hidden, Tensor? grad_weight, Tensor? grad_bias)",
              "(target.shape, target.shape, hidden.shape if wanted[0] else None, "
              "weight.shape if wanted[1] else None, weight.shape[:1] if wanted[2] else None)",
              "(accumulator(hidden), accumulator(hidden), hidden.dtype if wanted[0] else None, "
              "weight.dtype if wanted[1] else None, accumulator(hidden) if wanted[2] else None)",
              _linears, _LINEAR, reference=_linear, magnitude=size_of(_linear), special=ONLY_NAN, denormal=False,
              resizable=True),
]  # fmt: skip
