"""RMSNorm of large language models, with and without residual addition."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, double, operator
from isthmus.drivers.numpy.kernels.normalization import affine, normalize_backward
from isthmus.drivers.numpy.kernels.reductions import mean


@operator("isthmus::rms_norm")
def rms_norm(x: Array, weight: Maybe, eps: float) -> tuple[Any, ...]:
    x = double(x)
    rstd = 1 / np.sqrt(mean(np.square(x), (-1,), True) + eps)
    return affine(x * rstd, weight), rstd


@operator("isthmus::add_rms_norm")
def add_rms_norm(x: Array, residual: Array, weight: Maybe, eps: float) -> tuple[Any, ...]:
    total = double(x) + residual
    out, rstd = rms_norm(total, weight, eps)
    return out, total, rstd


@operator("isthmus::rms_norm_backward")
def rms_norm_backward(
    grad: Array, grad_sum: Maybe, x: Array, weight: Maybe, rstd: Array
) -> tuple[Any, ...]:  # fmt: skip
    grad, normal = double(grad), double(x) * rstd
    dx = normalize_backward(affine(grad, weight), normal, (-1,)) * rstd
    return affine(dx, None, grad_sum), (grad * normal).reshape(-1, x.shape[-1]).sum(0)
