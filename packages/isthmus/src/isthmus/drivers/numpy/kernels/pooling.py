"""Pooling by maximum and mean, in two and three dimensions."""

# ruff: noqa: D102, D103 (a kernel is documented where its operator is: in the opset)

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from isthmus.drivers.numpy.kernels.convolution import interior, padded, taps
from isthmus.drivers.numpy.kernels.indexing import ends
from isthmus.drivers.numpy.kernels.kernel import Array, double, exact, operator, wide, writes


def register_max_pool(name: str, rank: int) -> None:
    """Register maximum pooling over the last ``rank`` dimensions; the first of equal elements counts."""

    @writes(name)
    def max_pool(
        x: Array, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], ceil_mode: bool,
        out: Array, indices: Array,
    ) -> None:  # fmt: skip
        stride = stride or kernel
        space, shape, geometry = x.shape[-rank:], out.shape[-rank:], (kernel, stride, dilation)
        numbers = np.arange(math.prod(space)).reshape(space)  # offsets of the indices
        x = exact(wide(x))
        least = ends(x.dtype)[0]
        values = taps(padded(x, padding, stride, least), *geometry, shape)  # ceil_mode reads further
        places = taps(padded(numbers, padding, stride, -1), *geometry, shape)
        best, found = np.full(out.shape, least, x.dtype), np.full(out.shape, -1)
        for value, number in zip(values, places, strict=True):
            wins = (number >= 0) & ((value > best) | np.isnan(value) | (found < 0))
            best, found = np.where(wins, value, best), np.where(wins, number, found)
        out[...], indices[...] = best, found


register_max_pool("aten::max_pool2d_with_indices", 2)
register_max_pool("aten::max_pool3d_with_indices", 3)


@operator("aten::max_pool2d_with_indices_backward")
def max_pool_backward(
    grad: Array, x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Array
) -> Array:  # fmt: skip
    planes = math.prod(x.shape[:-2])
    result = np.zeros((planes, x.shape[-2] * x.shape[-1]))
    flat = indices.reshape(planes, -1)
    np.add.at(result, (np.arange(planes)[:, None], flat), grad.reshape(flat.shape))
    return result.reshape(x.shape)


def truncated(total: Array, divisor: Any) -> Any:
    """Divide integers, rounding towards zero."""
    quotient = total // divisor
    return quotient + ((quotient < 0) & (quotient * divisor != total))


class Windows(NamedTuple):
    """The windows of a mean over the last dimensions (*space) of a tensor."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    count_include_pad: bool
    divisor: int | None

    def taps(self, x: Array, out: Sequence[int]) -> tuple[Array, Iterator[Any]]:
        """Return x padded with zeros, and its views; windows of ceil_mode reach past the padding."""
        space = padded(x, self.padding, [k + s for k, s in zip(self.kernel, self.stride, strict=True)])
        return space, taps(space, self.kernel, self.stride, [1] * len(out), out)

    def counts(self, space: Sequence[int], out: Sequence[int]) -> tuple[Any, Any]:
        """Return the divisor of each window and its elements inside the tensor: arrays (*out)."""
        areas, insides = [], []
        for n, m, k, s, p in zip(space, out, self.kernel, self.stride, self.padding, strict=True):
            start = np.arange(m) * s - p
            end = np.minimum(start + k, n + p)
            areas.append(end - start)
            insides.append(np.maximum(np.minimum(end, n) - np.maximum(start, 0), 0))
        area, inside = (functools.reduce(np.multiply.outer, each) for each in (areas, insides))
        return self.divisor or (area if self.count_include_pad else np.maximum(inside, 1)), inside

    def forward(self, x: Array, out: Sequence[int]) -> Any:
        x = exact(x)
        total = np.zeros((*x.shape[: -len(out)], *out), x.dtype)
        for met in self.taps(x, out)[1]:
            total += met
        divisor, inside = self.counts(x.shape[-len(out) :], out)
        return np.where(inside == 0, 0, total / divisor if x.dtype.kind == "f" else truncated(total, divisor))

    def backward(self, grad: Array, shape: Sequence[int]) -> Array:
        rank = len(self.kernel)
        out, space = grad.shape[-rank:], shape[-rank:]
        divisor, counted = self.counts(space, out)
        share = np.where(counted == 0, 0, double(grad) / divisor)
        x, met_by = self.taps(np.zeros(shape), out)
        for met in met_by:
            met[...] += share
        return np.asarray(x[interior(self.padding, space)])


def register_mean_pool(name: str, rank: int) -> None:
    @writes(name)
    def mean_pool(
        x: Array, kernel: list[int], stride: list[int], padding: list[int], ceil_mode: bool, count_include_pad: bool,
        divisor: int | None, out: Array,
    ) -> None:  # fmt: skip
        windows = Windows(kernel, stride or kernel, padding, count_include_pad, divisor)
        out[...] = windows.forward(wide(x), out.shape[-rank:])


register_mean_pool("aten::avg_pool2d", 2)
register_mean_pool("aten::avg_pool3d", 3)


@operator("aten::avg_pool2d_backward")
def mean_pool_backward(
    grad: Array, x: Array, kernel: list[int], stride: list[int], padding: list[int], ceil_mode: bool,
    count_include_pad: bool, divisor: int | None,
) -> Array:  # fmt: skip
    windows = Windows(kernel, stride or kernel, padding, count_include_pad, divisor)
    return windows.backward(grad, x.shape)


def bins(size: int, count: int) -> Iterator[slice]:
    """Yield the elements of each bin of adaptive pooling along one dimension."""
    return (slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count))


@operator("aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d")
def adaptive_mean(x: Array, out: list[int]) -> Array:
    result = double(x)
    for axis, count in zip(range(-len(out), 0), out, strict=True):
        met = np.moveaxis(result, axis, 0)
        means = np.zeros((count, *met.shape[1:]))
        for mean, inside in zip(means, bins(len(met), count), strict=True):
            mean[...] = met[inside].mean(0)
        result = np.moveaxis(means, 0, axis)
    return result


@operator("aten::_adaptive_avg_pool2d_backward")
def adaptive_mean_backward(grad: Array, x: Array) -> Array:
    result = double(grad)
    for axis in (-2, -1):
        shares = np.moveaxis(result, axis, 0)
        met = np.zeros((x.shape[axis], *shares.shape[1:]))
        for share, inside in zip(shares, bins(len(met), len(shares)), strict=True):
            met[inside] += share / (inside.stop - inside.start)
        result = np.moveaxis(met, 0, axis)
    return result
