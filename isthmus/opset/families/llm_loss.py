"""Cross entropy of large language models: of logits, and of a linear layer whose logits are never whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset.operator import ONLY_NAN, Operator, accumulated, extension
from isthmus.opset.sampling import Array, Case, Maker

_LOSS = accumulated(64, "exponentials within 20 units in the last place and their sum by blocks")
_GRADIENT = accumulated(64, "an exponential within 20 units in the last place, of the rounded lse")

_IGNORED = -100
_PLAIN = (
    _IGNORED,
    0.0,
    1.0,
    0.0,
    0.0,
)  # ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale
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
        ("strided", (3, 4, 35), "heads", _PLAIN),
        ("large", (3, 4111), "contiguous", _PLAIN),
        ("zero-size", (0, 7), "contiguous", _PLAIN),
    ):
        yield kind, m.tensor(*shape, layout=layout), _target(m, shape[:-1], shape[-1], terms[0]), terms


def _wide(m: Maker) -> str:
    return "float64" if m.dtype == "float64" else "float32"


def _losses(m: Maker) -> Iterator[Case]:
    for kind, logits, target, terms in _rows(m):
        yield m.case(kind, logits, target, *terms)


def _lse(m: Maker, logits: Array, terms: tuple[Any, ...]) -> Array:
    z = logits.view.astype(np.float64) * terms[2]
    z = terms[3] * np.tanh(z / terms[3]) if terms[3] else z
    return m.values(np.log(np.exp(z).sum(-1)), _wide(m))


def _row_gradients(m: Maker, logits: Array, terms: tuple[Any, ...]) -> tuple[Array, Array | None, Array]:
    """Gradients of the losses and, for some, of the lse; and the lse."""
    shape = logits.shape[:-1]
    grad_lse = m.tensor(*shape, dtype=_wide(m)) if terms == _FULL else None
    return m.tensor(*shape, dtype=_wide(m)), grad_lse, _lse(m, logits, terms)


def _gradients(m: Maker) -> Iterator[Case]:
    for kind, logits, target, terms in _rows(m):
        grad, grad_lse, lse = _row_gradients(m, logits, terms)
        yield m.case(kind, grad, grad_lse, logits, target, lse, *terms)


def _written_gradients(m: Maker) -> Iterator[Case]:
    for kind, logits, target, terms in _rows(m):
        grad, grad_lse, lse = _row_gradients(m, logits, terms)
        yield m.case(kind, logits, grad, grad_lse, target, lse, *terms)


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


def _size_of(reference: Any) -> Any:
    return lambda **arguments: reference(**arguments, magnitude=True)


_TERMS = "int ignore_index, float label_smoothing, float logit_scale, float softcap, float lse_square_scale"

OPERATORS: list[Operator] = [
    extension(f"cross_entropy(Tensor logits, Tensor target, {_TERMS}) -> (Tensor loss, Tensor lse)",
              "(target.shape, target.shape)", "(accumulator(logits), accumulator(logits))", _losses, _LOSS,
              differentiable="logits", reference=_loss, magnitude=_size_of(_loss), special=ONLY_NAN),
    extension("cross_entropy_backward(Tensor grad, Tensor? grad_lse, Tensor logits, Tensor target, Tensor lse, "
              f"{_TERMS}) -> Tensor",
              "logits.shape", "logits.dtype", _gradients, _GRADIENT, reference=_gradient,
              magnitude=_size_of(_gradient), special=ONLY_NAN),
    extension("cross_entropy_backward_(Tensor(a!) logits, Tensor grad, Tensor? grad_lse, Tensor target, Tensor lse, "
              f"{_TERMS}) -> ()",
              "None", "None", _written_gradients, _GRADIENT, reference=_gradient_over,
              magnitude=_size_of(_gradient), special=ONLY_NAN),
]  # fmt: skip
