"""Softmax, normalization and losses."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from functools import partial
from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, double, operator, register, writes
from isthmus.drivers.numpy.kernels.reductions import Dims, mean, reduce, total, var


def log_softmax(x: Array, dim: int) -> Any:
    x = double(x)
    shifted = x - reduce(partial(np.amax, initial=-np.inf), x, dim, True)
    return shifted - np.log(total(np.exp(shifted), dim, True))


def safe_softmax(x: Array, dim: int) -> Any:
    """Softmax whose rows of -inf alone give 0."""
    hidden = reduce(np.all, x == -np.inf, dim, True)
    return np.where(hidden, 0, np.exp(log_softmax(x, dim)))


def softmax_backward(grad: Array, y: Array, dim: int) -> Any:
    return double(grad) * y - y * total(double(grad) * y, dim, True)


def log_softmax_backward(grad: Array, y: Array, dim: int) -> Any:
    return grad - np.exp(double(y)) * total(grad, dim, True)


def affine(x: Array, weight: Maybe, bias: Maybe = None) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def normalize_backward(grad: Array, normal: Array, dim: Dims) -> Any:
    """Return the gradient of x / rms(x) without the factor rstd."""
    return grad - normal * mean(grad * normal, dim, True)


def split(x: Array, shape: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the leading and the normalized dimensions."""
    return tuple(range(x.ndim - len(shape))), tuple(range(x.ndim - len(shape), x.ndim))


@operator("aten::native_layer_norm")
def layer_norm(x: Array, shape: list[int], weight: Maybe, bias: Maybe, eps: float) -> tuple[Array, ...]:
    _, dim = split(x, shape)
    center, rstd = mean(x, dim, True), 1 / np.sqrt(var(x, dim, 0, True) + eps)
    return affine((x - center) * rstd, weight, bias), center, rstd


@operator("aten::native_layer_norm_backward")
def layer_norm_backward(
    grad: Array, x: Array, shape: list[int], center: Array, rstd: Array, weight: Maybe, bias: Maybe, mask: Any
) -> tuple[Array, ...]:
    rows, dim = split(x, shape)
    grad, normal = double(grad), (double(x) - center) * rstd
    scaled = affine(grad, weight)
    dx = (normalize_backward(scaled, normal, dim) - mean(scaled, dim, True)) * rstd
    return dx, np.sum(grad * normal, rows), np.sum(grad, rows)


@operator("aten::native_group_norm")
def group_norm(
    x: Array, weight: Maybe, bias: Maybe, n: int, c: int, size: int, groups: int, eps: float
) -> tuple[Array, ...]:  # fmt: skip
    rows = double(x).reshape(n, groups, c // groups * size)
    center, rstd = mean(rows, 2), 1 / np.sqrt(var(rows, 2, 0) + eps)
    normal = ((rows - center[..., None]) * rstd[..., None]).reshape(x.shape)
    return affine(normal, per_channel(weight, x), per_channel(bias, x)), center, rstd


@operator("aten::native_group_norm_backward")
def group_norm_backward(
    grad: Array, x: Array, center: Array, rstd: Array, weight: Maybe, n: int, c: int, size: int, groups: int,
    mask: Any,
) -> tuple[Array, ...]:  # fmt: skip
    shape, channels = (n, groups, c // groups, size), (n, c, size)
    center, rstd = (double(each).reshape(n, groups, 1, 1) for each in (center, rstd))
    grad, normal = double(grad).reshape(shape), (double(x).reshape(shape) - center) * rstd
    slope = grad if weight is None else grad * double(weight).reshape(1, groups, -1, 1)
    dx = (normalize_backward(slope, normal, (2, 3)) - mean(slope, (2, 3), True)) * rstd
    sums = (np.sum(each.reshape(channels), (0, 2)) for each in (grad * normal, grad))
    return (dx.reshape(x.shape), *sums)


def per_channel(value: Any, x: Array) -> Any:
    return None if value is None else double(value).reshape((-1,) + (1,) * (x.ndim - 2))


@writes("aten::native_batch_norm", "aten::_native_batch_norm_legit")
def batch_norm(
    x: Array, weight: Maybe, bias: Maybe, running_mean: Any, running_var: Any, training: bool, momentum: float,
    eps: float, out: Array, save_mean: Array, save_rstd: Array,
) -> None:  # fmt: skip
    rows, x = (0, *range(2, x.ndim)), double(x)
    center, spread = (
        (mean(x, rows), var(x, rows, 0)) if training else map(double, (running_mean, running_var))
    )
    if training and running_mean is not None:
        running_mean[...] = (1 - momentum) * double(running_mean) + momentum * center
        running_var[...] = (1 - momentum) * double(running_var) + momentum * var(x, rows, 1)
    save_mean[...], save_rstd[...] = center, 1 / np.sqrt(spread + eps)
    y = (x - per_channel(center, x)) / np.sqrt(per_channel(spread, x) + eps)
    out[...] = affine(y, per_channel(weight, x), per_channel(bias, x))


@writes("aten::_native_batch_norm_legit_no_training")
def batch_norm_of_running(
    x: Array, weight: Maybe, bias: Maybe, running_mean: Any, running_var: Any, momentum: float, eps: float,
    out: Array, save_mean: Array, save_rstd: Array,
) -> None:  # fmt: skip
    batch_norm(x, weight, bias, running_mean, running_var, False, momentum, eps, out, save_mean, save_rstd)


@writes("aten::_native_batch_norm_legit.no_stats")
def batch_norm_of_batch(
    x: Array, weight: Maybe, bias: Maybe, training: bool, momentum: float, eps: float,
    out: Array, save_mean: Array, save_rstd: Array,
) -> None:  # fmt: skip
    batch_norm(x, weight, bias, None, None, True, momentum, eps, out, save_mean, save_rstd)


@operator("aten::native_batch_norm_backward")
def batch_norm_backward(
    grad: Array, x: Array, weight: Maybe, running_mean: Any, running_var: Any, save_mean: Any, save_rstd: Any,
    training: bool, eps: float, mask: Any,
) -> tuple[Array, ...]:  # fmt: skip
    rows, grad = (0, *range(2, x.ndim)), double(grad)
    center = save_mean if training else running_mean
    rstd = per_channel(save_rstd if training else 1 / np.sqrt(double(running_var) + eps), x)
    normal, dx = (x - per_channel(center, x)) * rstd, affine(grad, per_channel(weight, x))
    dx = normalize_backward(dx, normal, rows) - mean(dx, rows, True) if training else dx
    return dx * rstd, np.sum(grad * normal, rows), np.sum(grad, rows)


def class_weights(target: Array, weight: Maybe, ignore_index: int) -> tuple[Array, Array, Array]:
    """Return for each sample whether it counts, its class and its weight (both 0 if it does not count)."""
    kept = target != ignore_index
    classes = np.where(kept, target, 0)
    return kept, classes[..., None], np.where(kept, 1.0 if weight is None else double(weight)[classes], 0)


@operator("aten::nll_loss_forward")
def nll_loss(
    log_p: Array, target: Array, weight: Maybe, reduction: int, ignore_index: int
) -> tuple[Any, ...]:
    kept, classes, scale = class_weights(target, weight, ignore_index)
    picked = np.take_along_axis(double(log_p), classes, -1)[..., 0]
    losses = np.where(kept, -picked * scale, 0)
    if reduction == 0 and target.ndim:
        return losses, 0
    return losses.sum() / (scale.sum() if reduction == 1 else 1), scale.sum()


@operator("aten::nll_loss_backward")
def nll_loss_backward(
    grad: Array, log_p: Array, target: Array, weight: Maybe, reduction: int, ignore_index: int, total_weight: Array
) -> Array:  # fmt: skip
    kept, classes, scale = class_weights(target, weight, ignore_index)
    each = np.where(kept, -grad * scale / (double(total_weight) if reduction == 1 else 1), 0)
    result = np.zeros(log_p.shape)
    np.put_along_axis(result, classes, each[..., None], -1)
    return result


def reduced(losses: Array, reduction: int) -> Array:
    return losses if reduction == 0 else mean(losses) if reduction == 1 else total(losses)


register(
    {
        "_safe_softmax": safe_softmax,
        "_softmax": lambda x, dim, half_to_float: np.exp(log_softmax(x, dim)),
        "_log_softmax": lambda x, dim, half_to_float: log_softmax(x, dim),
        "_softmax_backward_data": softmax_backward,
        "_log_softmax_backward_data": log_softmax_backward,
        "mse_loss": lambda x, target, reduction: reduced((double(x) - target) ** 2, reduction),
        "mse_loss_backward": lambda grad, x, target, reduction: (
            2 * grad * (double(x) - target) / (x.size if reduction == 1 else 1)
        ),
    }
)
