"""Mixture of experts: gather rows, scatter-add rows, and grouped matrix products."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.indexing import changed
from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, double, operator


def scaled(x: Array, scale: Maybe) -> Any:
    return x if scale is None else double(x) * scale[:, None]


@operator("isthmus::gather_rows")
def gather_rows(x: Array, rows: Array, scale: Maybe) -> Any:
    return scaled(x[rows], scale)


@operator("isthmus::scatter_rows")
def scatter_rows(x: Array, rows: Array, scale: Maybe, size: int) -> Array:
    return changed(np.zeros((size, x.shape[1])), rows, scaled(x, scale), add=True)


@operator("isthmus::row_products")
def row_products(x: Array, other: Array, rows: Array) -> Any:
    return (double(x) * other[rows]).sum(-1)


def groups(sizes: Array) -> Iterator[slice]:
    ends = np.cumsum(sizes)
    return (slice(end - size, end) for end, size in zip(ends, sizes, strict=True))


@operator("isthmus::grouped_matmul")
def grouped_matmul(x: Array, weight: Array, sizes: Array, trans_b: bool) -> Array:
    weight = weight.swapaxes(1, 2) if trans_b else weight
    out = np.zeros((len(x), weight.shape[2]))
    for rows, each in zip(groups(sizes), weight, strict=True):
        out[rows] = double(x[rows]) @ double(each)
    return out


@operator("isthmus::grouped_matmul_backward")
def grouped_matmul_backward(
    grad: Array, x: Array, weight: Array, sizes: Array, trans_b: bool, for_input: bool, for_weight: bool
) -> tuple[Any, Any]:  # fmt: skip
    dx = grouped_matmul(grad, weight, sizes, not trans_b) if for_input else None
    dw = np.zeros(weight.shape)
    left, right = (grad, x) if trans_b else (x, grad)
    for i, rows in enumerate(groups(sizes)):
        dw[i] = double(left[rows]).T @ double(right[rows])
    return dx, dw if for_weight else None
