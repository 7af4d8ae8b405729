"""Padding by reflection, resampling, folding and distances."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.convolution import interior, padded, taps
from isthmus.drivers.numpy.kernels.kernel import Array, double, operator, register
from isthmus.drivers.numpy.kernels.reductions import vector_norm


def reflect(place: Array, size: int) -> Any:
    return size - 1 - np.abs(size - 1 - np.abs(place))


def replicate(place: Array, size: int) -> Any:
    return np.clip(place, 0, size - 1)


def padded_by(source: Callable[[Array, int], Any]) -> Callable[[Array, list[int]], Array]:
    """Make a kernel that pads the last dimensions with elements of the tensor; negative pads crop."""

    def pad(x: Array, padding: list[int]) -> Array:
        for dim, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True), 1):
            size = x.shape[-dim]
            x = np.take(x, source(np.arange(-before, size + after), size), -dim)
        return x

    return pad


register({f"reflection_pad{rank}d": padded_by(reflect) for rank in (1, 2, 3)})
register({f"replication_pad{rank}d": padded_by(replicate) for rank in (1, 2, 3)})


def step(size: int, out: int, scale: float | None) -> float:
    """Return the distance in the input between two elements of the output; a scale is ignored for equal sizes."""
    return 1 / scale if scale and size != out else size / out


@operator("aten::upsample_nearest2d")
def nearest(x: Array, out: list[int], scale_h: float | None, scale_w: float | None) -> Array:
    for dim, scale in ((-2, scale_h), (-1, scale_w)):
        size, count = x.shape[dim], out[dim]
        distance = step(size, count, None if count == 2 * size else scale)  # same rule as PyTorch
        place = np.floor(np.arange(count) * distance).astype(np.int64)
        x = np.take(x, np.minimum(place, size - 1), dim)
    return x


@operator("aten::upsample_bilinear2d")
def bilinear(
    x: Array, out: list[int], align_corners: bool, scale_h: float | None, scale_w: float | None
) -> Any:  # fmt: skip
    rounds = x.dtype.kind == "u"  # after each pass, as on the CPU
    x = double(x)
    for dim, scale in ((-1, scale_w), (-2, scale_h)):
        size, count = x.shape[dim], out[dim]
        if align_corners:
            place = np.arange(count) * ((size - 1) / (count - 1) if count > 1 else 0)
        else:
            place = np.maximum((np.arange(count) + 0.5) * step(size, count, scale) - 0.5, 0)
        first = np.minimum(place.astype(np.int64), size - 1)
        share = np.clip(place - first, 0, 1).reshape(-1, *[1] * (-dim - 1))
        second = np.take(x, np.minimum(first + 1, size - 1), dim)
        x = np.take(x, first, dim) * (1 - share) + second * share
        x = np.floor(x + 0.5) if rounds else x
    return x


@operator("aten::im2col")
def im2col(x: Array, kernel: list[int], dilation: list[int], padding: list[int], stride: list[int]) -> Array:
    sizes = zip(x.shape[-2:], kernel, dilation, padding, stride, strict=True)
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in sizes]
    parts = [*taps(padded(x, padding, [0, 0]), kernel, stride, dilation, out)]
    return np.stack(parts, -3).reshape(*x.shape[:-3], x.shape[-3] * math.prod(kernel), math.prod(out))


@operator("aten::col2im")
def col2im(
    columns: Array, size: list[int], kernel: list[int], dilation: list[int], padding: list[int], stride: list[int]
) -> Array:  # fmt: skip
    sizes = zip(size, kernel, dilation, padding, stride, strict=True)
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in sizes]
    taken = math.prod(kernel)
    lead = (*columns.shape[:-2], columns.shape[-2] // taken)
    parts = double(columns).reshape(*lead, taken, *out)
    x = padded(np.zeros((*lead, *size)), padding, [0, 0])
    for i, met in enumerate(taps(x, kernel, stride, dilation, out)):
        met[...] += parts[..., i, :, :]
    return np.asarray(x[interior(padding, size)])


def norm(difference: Array, p: float) -> Array:
    if not difference.shape[-1]:
        return np.zeros(difference.shape[:-1])
    return vector_norm(difference, p, -1, False)


@operator("aten::_cdist_forward")
def cdist(x: Array, y: Array, p: float, compute_mode: int | None) -> Array:
    if x.shape[-2] > y.shape[-2]:  # the loop is over the rows of the shorter one
        return np.swapaxes(cdist(y, x, p, compute_mode), -1, -2)
    x, y = double(x), double(y)
    lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    result = np.zeros((*lead, x.shape[-2], y.shape[-2]))
    for i in range(x.shape[-2]):
        result[..., i, :] = norm(x[..., i : i + 1, :] - y, p)
    return result


@operator("aten::_pdist_forward")
def pdist(x: Array, p: float) -> Array:
    first, second = np.triu_indices(len(x), 1)
    return norm(double(x)[first] - double(x)[second], p)
