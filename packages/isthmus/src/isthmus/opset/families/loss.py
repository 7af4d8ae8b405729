"""Losses."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import denormals
from isthmus.opset.operator import Operator, Tolerance, accumulated, op
from isthmus.opset.reference import absolutely
from isthmus.opset.sampling import Array, Case, Maker

if TYPE_CHECKING:
    import torch

NONE, MEAN, SUM = 0, 1, 2
_ACCUMULATED = accumulated(32, "a blocked sum over the batch")


def _targets(m: Maker, rows: int, classes: int) -> Array:
    labels = m.integers(rows, high=classes).view.copy()
    labels[rows // 2 : rows // 2 + 2] = -100
    return m.values(labels, "int64")


def _likelihoods(m: Maker) -> Iterator[tuple[str, Array, Array, Any, int, str]]:
    """(kind, log-probabilities, targets, class weights, reduction, model)."""
    for reduction in (MEAN, SUM, NONE):
        yield "contiguous", m.tensor(19, 67, low=-9, high=0), _targets(m, 19, 67), None, reduction, "llama"
    # A 16-bit sum overflows, the mean does not.
    yield "contiguous", m.tensor(9, 5, low=-6e4, high=-2e4), _targets(m, 9, 5), None, MEAN, ""
    yield "contiguous", m.tensor(7, 5, low=-9, high=0), _targets(m, 7, 5), m.tensor(5, low=0.2), MEAN, "bert"
    yield (
        "strided",
        m.tensor(9, 13, low=-9, high=0, layout="transposed"),
        _targets(m, 9, 13),
        None,
        MEAN,
        "bert",
    )
    yield "contiguous", m.tensor(5, low=-9, high=0), m.values(3, "int64"), None, MEAN, "resnet"
    if m.dtype in ("float32", "bfloat16"):
        yield "large", m.tensor(67, 131, low=-9, high=0), _targets(m, 67, 131), None, MEAN, "llama"


def _weighted(m: Maker) -> Iterator[tuple[Array, Array, Any, int, int]]:
    """(log-probabilities, targets, class weights, reduction, ignored class), for every combination."""
    for reduction, weighted, ignored in product((NONE, MEAN, SUM), (False, True), (2, 0, -1)):
        labels = m.integers(11, high=5).view.copy()
        labels[:5] = 2, 4, 0, max(ignored, 0), 2
        labels[labels == 0] = min(ignored, 0)
        weight = m.values([0.25, 3.0, 1.75, 0.0, 0.5]) if weighted else None
        yield m.tensor(11, 5, low=-9, high=0), m.values(labels, "int64"), weight, reduction, ignored
    infinite = m.values([[np.inf, -1.0], [-np.inf, -2.0], [-3.0, -4.0]])  # ignored
    yield infinite, m.values([-100, -100, 1], "int64"), None, MEAN, -100
    for reduction, label in product((NONE, SUM), (1, 2)):  # one sample, which is ignored or not
        yield m.tensor(5, low=-9, high=0), m.values(label, "int64"), m.tensor(5, low=0.2), reduction, 2
    yield m.tensor(1, 5, low=-9, high=0), m.values([3], "int64"), None, NONE, 2
    for reduction in (NONE, SUM, MEAN):
        yield m.tensor(3, 5, low=-9, high=0), m.values([2, 2, 2], "int64"), None, reduction, 2


def _large(m: Maker) -> Iterator[tuple[Array, Array]]:
    """More than 2^16 classes; more than 2^16 rows."""
    if m.dtype == "float32":
        yield m.tensor(3, 65_601, low=-9, high=0), m.values([65_600, 64, 32_768], "int64")
        yield m.tensor(65_601, 2, low=-9, high=0), m.integers(65_601, high=2)


def _forward(m: Maker) -> Iterator[Case]:
    for kind, logs, target, weight, reduction, model in _likelihoods(m):
        yield m.case(kind, logs, target, weight, reduction, -100, model=model)
    labels = m.integers(11, high=5)
    yield m.case("contiguous", m.tensor(11, 5, low=-9, high=0), labels, m.tensor(5, low=0.2), MEAN, 2)
    for arguments in _weighted(m):
        yield m.case("contiguous", *arguments)
    for logs, target in _large(m):
        for reduction in (NONE, MEAN, SUM):
            yield m.case("large", logs, target, None, reduction, -100)


def _backward(m: Maker) -> Iterator[Case]:
    for kind, logs, target, weight, reduction, model in _likelihoods(m):
        yield m.case(kind, *_gradient(m, logs, target, weight, reduction, -100), model=model)
    for others in _weighted(m):
        yield m.case("contiguous", *_gradient(m, *others))
    for logs, target in _large(m):
        yield m.case("large", *_gradient(m, logs, target, None, NONE, -100))
    logs, target = m.tensor(9, 5, low=-9, high=0), m.values([0, 4, 2, 1, 3, 0, 4, 2, 1], "int64")
    rest = (logs, target, None, NONE, -100, m.values(9))
    far = 1.0 if m.dtype == "float16" else 1e5
    for grad in (denormals(m, 9), m.values([np.nan, np.inf, -np.inf, far, *range(5)])):
        yield m.case("special", grad, *rest)
    for layout in ("sliced", "expanded"):
        yield m.case("strided", m.tensor(9, layout=layout), *rest)


def _gradient(m: Maker, logs: Array, target: Array, weight: Any, reduction: int, ignored: int) -> list[Any]:
    """Arguments of the gradient: with that of the result, and the sum of the weights of the targets."""
    labels = target.view.reshape(-1)
    kept = labels[labels != ignored]
    total = weight.view.astype(np.float64)[kept].sum() if weight else float(len(kept))
    shape = (len(labels),) if reduction == NONE and len(logs.shape) == 2 else ()
    return [m.tensor(*shape), logs, target, weight, reduction, ignored, m.values(total)]


def _likelihood_size(self: torch.Tensor, **others: Any) -> Any:
    import torch

    loss, total = torch.ops.aten.nll_loss_forward(-self.abs(), **others)
    return loss, total


def _pairs(m: Maker) -> Iterator[Case]:
    for reduction in (MEAN, SUM, NONE):
        yield m.case("contiguous", m.tensor(7, 13), m.tensor(7, 13), reduction)
        yield m.case("strided", m.tensor(5, 9, layout="transposed"), m.tensor(5, 9), reduction)
    yield m.case("0-dim", m.tensor(), m.tensor(), MEAN)
    yield m.case("contiguous", m.tensor(2, 3, 5), m.tensor(2, 3, 5), MEAN)
    # A 16-bit sum overflows, the mean does not.
    yield m.case("contiguous", m.tensor(9, 5, low=-90, high=-20), m.tensor(9, 5, low=20, high=110), MEAN)
    apart = m.tensor(9, 5).view.copy()
    apart[::4, 2] = 300  # its square alone overflows
    yield m.case("special", m.values(apart), m.tensor(9, 5), MEAN)
    if m.dtype == "float32":
        for reduction in (NONE, MEAN, SUM):
            yield m.case("large", m.tensor(65_601), m.tensor(65_601), reduction)
        yield m.case("large", m.tensor(65_601, 2), m.tensor(65_601, 2), NONE)


def _pair_gradients(m: Maker) -> Iterator[Case]:
    for reduction in (MEAN, SUM, NONE):
        grad = m.tensor(7, 13) if reduction == NONE else m.tensor()
        yield m.case("contiguous", grad, m.tensor(7, 13), m.tensor(7, 13), reduction)
    yield m.case("strided", m.tensor(), m.tensor(5, 9, layout="transposed"), m.tensor(5, 9), MEAN)
    yield m.case("0-dim", m.tensor(), m.tensor(), m.tensor(), MEAN)
    yield m.case("contiguous", m.tensor(), m.tensor(2, 3, 5), m.tensor(2, 3, 5), MEAN)
    if m.dtype == "float32":
        for reduction in (NONE, MEAN):
            grad = m.tensor(65_601) if reduction == NONE else m.tensor()
            yield m.case("large", grad, m.tensor(65_601), m.tensor(65_601), reduction)


def _square_size(self: torch.Tensor, target: torch.Tensor, reduction: int) -> Any:
    import torch

    return torch.ops.aten.mse_loss(self.abs(), -target.abs(), reduction)


_OUT = "() if reduction or len(self.shape) == 1 else (self.shape[0],)"

OPERATORS: list[Operator] = [
    op("nll_loss_forward", dt.FLOATS, f"(({_OUT}), ())", "(self.dtype, self.dtype)", _forward, _ACCUMULATED,
       magnitude=_likelihood_size, resizable=True),
    op("nll_loss_backward", dt.FLOATS, "like(self)", "self.dtype", _backward,
       Tolerance(0.51, 2, "a product and a quotient"), magnitude=absolutely("aten::nll_loss_backward"),
       denormal=False, resizable=True),
    op("mse_loss", dt.FLOATS, "() if reduction else like(self)", "self.dtype", _pairs, _ACCUMULATED,
       magnitude=_square_size),
    op("mse_loss_backward", dt.FLOATS, "like(self)", "self.dtype", _pair_gradients,
       Tolerance(0.51, 3, "a difference, two products"),
       magnitude=lambda grad_output, self, target, reduction:
           2 * grad_output.abs() * (self.abs() + target.abs()) / (self.numel() if reduction == MEAN else 1),
       resizable=True, leading=True),
]  # fmt: skip
