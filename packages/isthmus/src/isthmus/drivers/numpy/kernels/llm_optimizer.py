"""Fused Adam over all parameters, and the norm of all gradients."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

import math
from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, double, operator, writes
from isthmus.drivers.numpy.kernels.reductions import vector_norm


@writes("isthmus::adamw_")
def adamw(
    params: list[Array], grads: list[Array], firsts: list[Array], seconds: list[Array], largest: list[Array],
    masters: list[Array], steps: list[Array], norm: Maybe, grad_scale: Maybe, found_inf: Maybe, lr: float,
    beta1: float, beta2: float, eps: float, decay: float, max_norm: float, decoupled: bool, maximize: bool,
) -> None:  # fmt: skip
    if found_inf is not None and found_inf:
        return
    clip = 1.0 if norm is None else np.minimum(max_norm / (double(norm) + 1e-6), 1)
    scale = clip / (1.0 if grad_scale is None else double(grad_scale)) * (-1 if maximize else 1)
    for i, (param, grad, m, v) in enumerate(zip(params, grads, firsts, seconds, strict=True)):
        before, t = double(masters[i] if masters else param), float(steps[i]) + 1
        g = double(grad) * scale
        before, g = (before * (1 - lr * decay), g) if decoupled else (before, g + decay * before)
        first = double(m) + (1 - beta1) * (g - double(m))
        second = beta2 * double(v) + (1 - beta2) * g * g
        most = np.maximum(second, double(largest[i])) if largest else second
        denominator = np.sqrt(most / (1 - beta2**t)) + eps
        after = before - lr / (1 - beta1**t) * first / denominator
        m[...], v[...], param[...], steps[i][...] = first, second, after, t
        if largest:
            largest[i][...] = most
        if masters:
            masters[i][...] = after


@operator("isthmus::grad_norm")
def grad_norm(grads: list[Array], order: float) -> tuple[Any, Any]:
    each = np.array([one(double(grad).reshape(-1), order) for grad in grads])
    return one(each, order), each


def one(x: Array, order: float) -> Any:
    if order == 2:
        return math.sqrt(np.sum(x * x))
    return vector_norm(x, order, None, False) if x.size else 0.0
