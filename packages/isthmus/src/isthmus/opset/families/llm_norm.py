"""RMSNorm of large language models, with and without residual addition."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset.families._common import size_of
from isthmus.opset.operator import ONLY_NAN, Operator, accumulated, extension
from isthmus.opset.sampling import Array, Case, Maker

_FORWARD = accumulated(32, "a mean of squares by blocked sums")
_BACKWARD = accumulated(64, "two blocked sums over the row or the batch")
_EPS = 1e-6


def _rows(m: Maker) -> Iterator[tuple[str, Array, bool]]:
    for kind, shape, layout, weighted in (
        ("contiguous", (2, 17, 35), "contiguous", True),
        ("contiguous", (3, 64), "contiguous", False),
        ("contiguous", (5, 1), "contiguous", True),
        ("strided", (5, 19), "transposed", True),
        ("large", (3, 1031), "contiguous", True),
        ("zero-size", (0, 7), "contiguous", True),
    ):
        yield kind, m.tensor(*shape, layout=layout, low=-1.7), weighted


def _extremes(m: Maker) -> Iterator[tuple[Array, float]]:
    """Rows (and an epsilon): small ones, which expose a misplaced epsilon, zeros, and squares beyond a half."""
    yield m.tensor(3, 13, low=-2e-3, high=3e-3), 1e-3
    yield m.values([[0.0] * 13, [-0.0] * 13, [1e-4] * 13]), 1e-5
    yield m.tensor(2, 13, low=-2e4, high=3e4), 1e-6
    yield m.tensor(3, 13), 0.7
    yield m.tensor(3, 13, low=0.1), 0.0
    if m.dtype != "float16":
        yield m.tensor(2, 13, low=-3e8, high=5e8), 1e-6


def _weight(m: Maker, tensor: Array, weighted: bool) -> Array | None:
    return m.tensor(tensor.shape[-1]) if weighted else None


def _norms(m: Maker) -> Iterator[Case]:
    for kind, tensor, weighted in _rows(m):
        yield m.case(kind, tensor, _weight(m, tensor, weighted), _EPS)
    for tensor, eps in _extremes(m):
        yield m.case("special", tensor, m.tensor(13), eps)


def _sums(m: Maker) -> Iterator[Case]:
    for kind, tensor, weighted in _rows(m):
        yield m.case(kind, tensor, m.tensor(*tensor.shape), _weight(m, tensor, weighted), _EPS)
    for i, (tensor, eps) in enumerate(_extremes(m)):
        same = np.flip(tensor.view, 0) * (0.5 + np.arange(13) / 13)
        yield m.case("special", tensor, m.values(same), m.tensor(13) if i % 2 else None, eps)


def _gradients(m: Maker) -> Iterator[Case]:
    for kind, tensor, weighted in _rows(m):
        wide = tensor.view.astype(np.float64)
        rstd = m.values(1 / np.sqrt((wide**2).mean(-1, keepdims=True) + _EPS), m.compute_dtype)
        added = m.tensor(*tensor.shape) if weighted else None
        yield m.case(kind, m.tensor(*tensor.shape), added, tensor, _weight(m, tensor, weighted), rstd)
    # Rows of large and of small norms, in more than two dimensions, with one optional argument each.
    for low, high in ((-2e4, 3e4), (-2e-3, 3e-3)):
        tensor, grad, added = (
            m.tensor(2, 3, 13, low=low, high=high),
            *(m.tensor(2, 3, 13) for _ in range(2)),
        )
        rstd = m.tensor(2, 3, 1, low=0.5 / high, high=2 / high, dtype=m.compute_dtype)
        yield m.case("special", grad, None, tensor, m.tensor(13), rstd)
        yield m.case("special", grad, added, tensor, None, rstd)


def _norm(input: Any, weight: Any, eps: float, magnitude: bool = False) -> Any:
    rstd = (input.square().mean(-1, keepdim=True) + eps).rsqrt()
    out = input * rstd * (1 if weight is None else weight)
    return (out.abs(), rstd) if magnitude else (out, rstd)


def _sum(input: Any, residual: Any, weight: Any, eps: float, magnitude: bool = False) -> Any:
    total = input + residual
    out, rstd = _norm(total, weight, eps)
    if not magnitude:
        return out, total, rstd
    # The sum may cancel; its terms do not.
    terms = input.abs() + residual.abs()
    spread = 1 + rstd.square() * (total.abs() * terms).mean(-1, keepdim=True)
    return terms * rstd * spread * (1 if weight is None else weight.abs()), terms, rstd * spread


def _gradient(grad: Any, grad_sum: Any, input: Any, weight: Any, rstd: Any, magnitude: bool = False) -> Any:
    hat = input * rstd
    slope = grad if weight is None else grad * weight
    if magnitude:
        grad, hat, slope = grad.abs(), hat.abs(), slope.abs()
        grad_sum = None if grad_sum is None else grad_sum.abs()
    mean = (slope * hat).mean(-1, keepdim=True)
    dx = rstd * (slope + hat * mean if magnitude else slope - hat * mean)
    dx = dx if grad_sum is None else dx + grad_sum
    return dx, None if weight is None else (grad * hat).reshape(-1, input.shape[-1]).sum(0)


_STATISTIC = "(*input.shape[:-1], 1)"

OPERATORS: list[Operator] = [
    extension("rms_norm(Tensor input, Tensor? weight, float eps) -> (Tensor out, Tensor rstd)",
              f"(input.shape, {_STATISTIC})", "(input.dtype, accumulator(input))", _norms, _FORWARD,
              differentiable="input weight", reference=_norm, magnitude=size_of(_norm),
              leading=True, empty=False, resizable=True, special=ONLY_NAN),
    extension("add_rms_norm(Tensor input, Tensor residual, Tensor? weight, float eps) "
              "-> (Tensor out, Tensor sum, Tensor rstd)",
              f"(input.shape, input.shape, {_STATISTIC})", "(input.dtype, input.dtype, accumulator(input))",
              _sums, _FORWARD, differentiable="input residual weight", reference=_sum, magnitude=size_of(_sum),
              leading=True, empty=False, resizable=True, special=ONLY_NAN),
    extension("rms_norm_backward(Tensor grad, Tensor? grad_sum, Tensor input, Tensor? weight, Tensor rstd) "
              "-> (Tensor grad_input, Tensor? grad_weight)",
              "(input.shape, None if weight is None else weight.shape)",
              "(input.dtype, None if weight is None else accumulator(input))", _gradients, _BACKWARD,
              reference=_gradient, magnitude=size_of(_gradient),
              leading=True, empty=False, resizable=True, special=ONLY_NAN),
]  # fmt: skip
