"""Mixture of experts: gather rows, scatter-add rows, and grouped matrix products."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset.families._common import size_of
from isthmus.opset.operator import ONLY_NAN, ROUNDED, Operator, Tolerance, accumulated, extension
from isthmus.opset.sampling import Case, Maker

_SUM = accumulated(16, "a sum over the experts of a token")
_PRODUCT = accumulated(32, "a blocked sum over the row")
# 16-bit products may be summed in blocks that are rounded to 16 bits.
_MATMUL = {"": accumulated(64, "a blocked sum"), "bfloat16": Tolerance(1.01, 64, "a blocked sum, rounded"),
           "float16": Tolerance(1.01, 64, "a blocked sum, rounded")}  # fmt: skip
_SCALED = {"": ROUNDED, "bfloat16": Tolerance(0.51, 0, "one product, rounded"),
           "float16": Tolerance(0.51, 0, "one product, rounded")}  # fmt: skip


# kind, tokens, hidden, rows, layout
_SHAPES = (("contiguous", 7, 35, 14, "contiguous"), ("contiguous", 5, 1, 3, "contiguous"),
           ("strided", 6, 19, 12, "transposed"), ("large", 33, 131, 70, "contiguous"),
           ("zero-size", 4, 9, 0, "contiguous"))  # fmt: skip


_FACTORS = [-1.5, 0.0, 1.0, 2.25, -0.0, 0.3]
_FAR = [65_600, 32_768, 0, 65_600, 40_001, 32_767]  # repeated, unordered, beyond 16 bits, the last row


def _gathers(m: Maker) -> Iterator[Case]:
    places, factors = m.values([3, 0, 3, 4, 4, 1], "int64"), m.values(_FACTORS, m.compute_dtype)
    yield m.case("contiguous", m.tensor(5, 3), places, factors)
    if m.dtype == "float32":
        yield m.case("large", m.tensor(65_601, 2), m.values(_FAR, "int64"), factors)
        yield m.case("large", m.tensor(5, 2), m.integers(65_601, high=5), None)
        yield m.case("large", m.tensor(7, 4133), m.integers(20, high=7), m.tensor(20))
    for kind, tokens, hidden, rows, layout in _SHAPES:
        for scaled in (False, True):
            yield m.case(kind, m.tensor(tokens, hidden, layout=layout), m.integers(rows, high=tokens),
                         m.tensor(rows, low=0.1, high=1.0, dtype=m.compute_dtype) if scaled else None)  # fmt: skip


def _scatters(m: Maker) -> Iterator[Case]:
    places, factors = m.values([3, 0, 3, 4, 4, 3], "int64"), m.values(_FACTORS, m.compute_dtype)
    yield m.case("contiguous", m.tensor(6, 3), places, factors, 9)
    if m.dtype == "float32":
        yield m.case("large", m.tensor(6, 2), m.values(_FAR, "int64"), factors, 65_601)
        yield m.case("large", m.tensor(20, 4133), m.integers(20, high=7), m.tensor(20), 7)
    if m.dtype != "float64":  # many rows of one place, whose sum stops growing in a half
        ones = m.values(np.full((1031, 3), 0.3))
        yield m.case("large", ones, m.values(np.zeros(1031), "int64"), None, 2)
    for kind, tokens, hidden, rows, layout in _SHAPES:
        for scaled in (False, True):
            yield m.case(kind, m.tensor(rows, hidden, layout=layout), m.integers(rows, high=tokens),
                         m.tensor(rows, low=0.1, high=1.0, dtype=m.compute_dtype) if scaled else None,
                         tokens)  # fmt: skip


def _dots(m: Maker) -> Iterator[Case]:
    if m.dtype == "float32":
        yield m.case("large", m.tensor(6, 2), m.tensor(65_601, 2), m.values(_FAR, "int64"))
        yield m.case("large", m.tensor(20, 4133), m.tensor(7, 4133), m.integers(20, high=7))
        yield m.case("large", m.tensor(65_601, 2), m.tensor(5, 2), m.integers(65_601, high=5))  # results
    for last in (0.0, float("nan")):
        yield m.case(
            "special", m.values([[0.0, 1.0], [2.0, 0.0]]), m.values([[3.0, last]]), m.values([0, 0], "int64")
        )
    for kind, tokens, hidden, rows, layout in _SHAPES:
        yield m.case(kind, m.tensor(rows, hidden, layout=layout), m.tensor(tokens, hidden),
                     m.integers(rows, high=tokens))  # fmt: skip


def _groups(m: Maker) -> Iterator[tuple[str, Any, Any, Any, bool]]:
    for kind, sizes, inner, outer, layout in (
        ("contiguous", (3, 0, 5, 1), 7, 13, "contiguous"),
        ("contiguous", (2,), 17, 3, "contiguous"),
        ("contiguous", (1,), 3, 2, "contiguous"),  # one row; less than a vector
        ("contiguous", (0, 1), 1, 2, "contiguous"),
        ("strided", (4, 2), 6, 9, "transposed"),
        ("large", (5, 70, 1, 0, 33, 2, 9, 4), 65, 31, "contiguous"),
        ("zero-size", (0, 0), 5, 4, "contiguous"),
        ("contiguous", (0, 4, 0, 0, 3, 0), 1, 5, "contiguous"),  # empty groups at both ends
        *((("large", (130, 0, 3, 67), 68, 20, "contiguous"), ("large", (1, 2) * 70, 3, 2, "contiguous"),
           ("large", (2, 3), 4133, 5, "contiguous"), ("large", (65_000, 0, 601), 3, 2, "contiguous"),
           ("large", (3, 2), 4, 1031, "contiguous")) if m.dtype == "float32" else ()),
    ):  # fmt: skip
        for trans in (False, True):
            shape = (outer, inner) if trans else (inner, outer)
            yield (kind, m.tensor(sum(sizes), inner, layout=layout), m.tensor(len(sizes), *shape, layout=layout),
                   m.values(sizes, "int64"), trans)  # fmt: skip
    yield (
        "broadcast",
        m.tensor(6, 4),
        m.tensor(2, 4, 3),
        m.values([3, 3], "int64", layout="expanded"),
        False,
    )
    zeros = m.values([[0.0, 1.0], [0.0, -2.0]])
    yield "special", zeros, m.values([[[0.0, 2.0], [0.0, -1.0]]]), m.values([2], "int64"), False


def _products(m: Maker) -> Iterator[Case]:
    for kind, tensor, weight, sizes, trans in _groups(m):
        yield m.case(kind, tensor, weight, sizes, trans)


def _gradients(m: Maker) -> Iterator[Case]:
    for kind, tensor, weight, sizes, trans in _groups(m):
        grad = m.tensor(tensor.shape[0], weight.shape[1 if trans else 2])
        for needed in (
            ((True, True), (False, True), (True, False)) if kind == "contiguous" else ((True, True),)
        ):
            yield m.case(kind, grad, tensor, weight, sizes, trans, *needed)


def _gather(input: Any, rows: Any, scale: Any) -> Any:
    return input[rows] if scale is None else input[rows] * scale[:, None]


def _scatter(input: Any, rows: Any, scale: Any, size: int, magnitude: bool = False) -> Any:
    scaled = input if scale is None else input * scale[:, None]
    out = input.new_zeros((size, input.shape[1]))
    for i, row in enumerate(rows.tolist()):
        out[row] += scaled[i].abs() if magnitude else scaled[i]
    return out


def _dot(input: Any, other: Any, rows: Any, magnitude: bool = False) -> Any:
    products = input * other[rows]
    return (products.abs() if magnitude else products).sum(-1)


def _matmul(input: Any, weight: Any, sizes: Any, trans_b: bool) -> Any:
    import torch

    parts = input.split(sizes.tolist())
    return torch.cat(
        [part @ (each.t() if trans_b else each) for part, each in zip(parts, weight, strict=True)]
    )


def _backward(
    grad: Any, input: Any, weight: Any, sizes: Any, trans_b: bool, for_input: bool, for_weight: bool
) -> Any:
    lengths = sizes.tolist()
    dx = _matmul(grad, weight, sizes, not trans_b) if for_input else None
    pairs = zip(grad.split(lengths), input.split(lengths), strict=True)
    dw = weight.new_zeros(weight.shape)
    for i, (g, x) in enumerate(pairs):
        dw[i] = g.t() @ x if trans_b else x.t() @ g
    return dx, dw if for_weight else None


def _absolutely(reference: Any) -> Any:
    def magnitude(**arguments: Any) -> Any:
        import torch

        return reference(**{
            key: value.abs() if isinstance(value, torch.Tensor) else value for key, value in arguments.items()
        })  # fmt: skip

    return magnitude


_INNER = "weight.shape[1 if trans_b else 2]"

OPERATORS: list[Operator] = [
    extension("gather_rows(Tensor input, Tensor rows, Tensor? scale) -> Tensor",
              "(rows.shape[0], input.shape[1])", "input.dtype", _gathers, _SCALED,
              differentiable="input scale", reference=_gather, resizable=True, special=ONLY_NAN),
    extension("scatter_rows(Tensor input, Tensor rows, Tensor? scale, int size) -> Tensor",
              "(size, input.shape[1])", "input.dtype", _scatters, _SUM, differentiable="input scale",
              reference=_scatter, magnitude=size_of(_scatter), special=ONLY_NAN, resizable=True),
    extension("row_products(Tensor input, Tensor other, Tensor rows) -> Tensor",
              "(rows.shape[0],)", "accumulator(input)", _dots, _PRODUCT,
              reference=_dot, magnitude=lambda **a: _dot(**a, magnitude=True), resizable=True, special=ONLY_NAN),
    extension("grouped_matmul(Tensor input, Tensor weight, Tensor sizes, bool trans_b) -> Tensor",
              f"(input.shape[0], {_INNER})", "input.dtype", _products, _MATMUL, differentiable="input weight",
              reference=_matmul, magnitude=_absolutely(_matmul), resizable=True, special=ONLY_NAN),
    extension("grouped_matmul_backward(Tensor grad, Tensor input, Tensor weight, Tensor sizes, bool trans_b, "
              "bool for_input, bool for_weight) -> (Tensor? grad_input, Tensor? grad_weight)",
              "(input.shape if for_input else None, weight.shape if for_weight else None)",
              "(input.dtype if for_input else None, weight.dtype if for_weight else None)", _gradients, _MATMUL,
              reference=_backward, magnitude=_absolutely(_backward), resizable=True, special=ONLY_NAN),
]  # fmt: skip
