"""Losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.opset import dtypes as dt
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


def _forward(m: Maker) -> Iterator[Case]:
    for kind, logs, target, weight, reduction, model in _likelihoods(m):
        yield m.case(kind, logs, target, weight, reduction, -100, model=model)
    labels = m.integers(11, high=5)
    yield m.case("contiguous", m.tensor(11, 5, low=-9, high=0), labels, m.tensor(5, low=0.2), MEAN, 2)


def _backward(m: Maker) -> Iterator[Case]:
    for kind, logs, target, weight, reduction, model in _likelihoods(m):
        labels = target.view.reshape(-1)
        kept = labels[labels != -100]
        total = weight.view.astype(np.float64)[kept].sum() if weight else float(len(kept))
        shape = (len(labels),) if reduction == NONE and len(logs.shape) == 2 else ()
        yield m.case(
            kind, m.tensor(*shape), logs, target, weight, reduction, -100, m.values(total), model=model
        )


def _likelihood_size(self: torch.Tensor, **others: Any) -> Any:
    import torch

    loss, total = torch.ops.aten.nll_loss_forward(-self.abs(), **others)
    return loss, total


def _pairs(m: Maker) -> Iterator[Case]:
    for reduction in (MEAN, SUM, NONE):
        yield m.case("contiguous", m.tensor(7, 13), m.tensor(7, 13), reduction)
        yield m.case("strided", m.tensor(5, 9, layout="transposed"), m.tensor(5, 9), reduction)
    yield m.case("0-dim", m.tensor(), m.tensor(), MEAN)


def _pair_gradients(m: Maker) -> Iterator[Case]:
    for reduction in (MEAN, SUM, NONE):
        grad = m.tensor(7, 13) if reduction == NONE else m.tensor()
        yield m.case("contiguous", grad, m.tensor(7, 13), m.tensor(7, 13), reduction)
    yield m.case("strided", m.tensor(), m.tensor(5, 9, layout="transposed"), m.tensor(5, 9), MEAN)


def _square_size(self: torch.Tensor, target: torch.Tensor, reduction: int) -> Any:
    import torch

    return torch.ops.aten.mse_loss(self.abs(), -target.abs(), reduction)


_OUT = "() if reduction or len(self.shape) == 1 else (self.shape[0],)"

OPERATORS: list[Operator] = [
    op("nll_loss_forward", dt.FLOATS, f"(({_OUT}), ())", "(self.dtype, self.dtype)", _forward, _ACCUMULATED,
       magnitude=_likelihood_size, resizable=True),
    op("nll_loss_backward", dt.FLOATS, "like(self)", "self.dtype", _backward,
       Tolerance(0.51, 2, "a product and a quotient"), magnitude=absolutely("aten::nll_loss_backward")),
    op("mse_loss", dt.FLOATS, "() if reduction else like(self)", "self.dtype", _pairs, _ACCUMULATED,
       magnitude=_square_size),
    op("mse_loss_backward", dt.FLOATS, "like(self)", "self.dtype", _pair_gradients,
       Tolerance(0.51, 3, "a difference, two products"),
       magnitude=lambda grad_output, self, target, reduction:
           2 * grad_output.abs() * (self.abs() + target.abs()) / (self.numel() if reduction == MEAN else 1)),
]  # fmt: skip
