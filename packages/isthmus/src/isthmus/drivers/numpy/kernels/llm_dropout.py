"""Fused dropout, residual addition and normalization."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, double, operator
from isthmus.drivers.numpy.kernels.normalization import affine, normalize_backward
from isthmus.drivers.numpy.kernels.reductions import mean


def dropped(x: Array, rowscale: Maybe, layerscale: Maybe, mask: Maybe, p: float) -> Any:
    """Return x scaled by row and by column, and 0 where the mask is false."""
    x = affine(x / (1 - p), None if rowscale is None else rowscale[..., None])
    x = affine(x, layerscale)
    return x if mask is None else np.where(mask, x, 0)


@operator("isthmus::dropout_add_norm")
def dropout_add_norm(
    x: Array, residual: Maybe, weight: Array, bias: Maybe, rowscale: Maybe, layerscale: Maybe, mask: Maybe, p: float,
    eps: float, rms: bool, wide_sum: bool,
) -> tuple[Any, ...]:  # fmt: skip
    total = affine(dropped(double(x), rowscale, layerscale, mask, p), None, residual)
    center = np.zeros((*x.shape[:-1], 1)) if rms else mean(total, (-1,), True)
    rstd = 1 / np.sqrt(mean(np.square(total - center), (-1,), True) + eps)
    return affine((total - center) * rstd, weight, bias), total, center, rstd


@operator("isthmus::dropout_add_norm_backward")
def dropout_add_norm_backward(
    grad: Array, grad_sum: Maybe, total: Array, x: Maybe, weight: Array, rowscale: Maybe, layerscale: Maybe,
    mask: Maybe, center: Array, rstd: Array, p: float, rms: bool, with_bias: bool, with_residual: bool,
) -> tuple[Any, ...]:  # fmt: skip
    grad, normal = double(grad), (double(total) - center) * rstd
    slope = grad * weight
    dx = normalize_backward(slope, normal, (-1,)) - (0 if rms else mean(slope, (-1,), True))
    dx = affine(dx * rstd, None, grad_sum)
    scales = None
    if layerscale is not None:
        scales = by_column(dropped(dx, rowscale, None, mask, p) * x)
    return (
        dropped(dx, rowscale, layerscale, mask, p), dx, by_column(grad * normal), by_column(grad), scales
    )  # fmt: skip


def by_column(x: Array) -> Any:
    """Sum all dimensions but the last."""
    return x.sum(tuple(range(x.ndim - 1)))
