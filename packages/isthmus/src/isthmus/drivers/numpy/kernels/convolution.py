"""Convolution."""

# ruff: noqa: D102, D103 (a kernel is documented where its operator is: in the opset)

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, exact, operator
from isthmus.drivers.numpy.kernels.reductions import total


def taps(x: Any, kernel: Any, stride: Any, dilation: Any, out: Any) -> Iterator[Any]:
    """Yield the view (..., *out) of a padded x (..., *space) for each position of a kernel."""
    spots = [
        [slice(o * d, o * d + (n - 1) * s + 1, s) for o in range(k)]
        for k, d, s, n in zip(kernel, dilation, stride, out, strict=True)
    ]
    return (x[(..., *place)] for place in itertools.product(*spots))


def padded(x: Array, padding: Sequence[int], extra: Sequence[int], fill: float = 0) -> Array:
    lead = x.ndim - len(padding)
    around = [n + 2 * p + e for n, p, e in zip(x.shape[lead:], padding, extra, strict=True)]
    result = np.full((*x.shape[:lead], *around), fill, x.dtype)
    result[interior(padding, x.shape[lead:])] = x
    return result


def interior(padding: Sequence[int], space: Sequence[int]) -> Any:
    """Return the index of what padding surrounds."""
    return (..., *(slice(p, p + n) for p, n in zip(padding, space, strict=True)))


def grouped(x: Array, groups: int, dim: int) -> Array:
    return x.reshape(*x.shape[:dim], groups, x.shape[dim] // groups, *x.shape[dim + 1 :])


class Geometry(NamedTuple):
    """Geometry of a convolution: x is (N, C, *space), w is (O, C / groups, *kernel), y is (N, O, *out)."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    def taps(self, x: Array, w: Array, out: Sequence[int]) -> Iterator[Any]:
        """Yield the view (N, groups, C / groups, *out) of a padded x for each tap."""
        return taps(grouped(x, self.groups, 1), w.shape[2:], self.stride, self.dilation, out)

    def columns(self, x: Array, w: Array, out: Sequence[int]) -> Array:
        """Return what each position meets, as matrices (N, groups, C / groups * taps, positions)."""
        met_by = self.taps(padded(x, self.padding, [0] * len(out)), w, out)
        columns = np.empty((len(x), self.groups, w.shape[1], math.prod(w.shape[2:]), *out), x.dtype)
        for tap, met in enumerate(met_by):
            columns[:, :, :, tap] = met
        return columns.reshape(len(x), self.groups, math.prod(w.shape[1:]), math.prod(out))

    def rows(self, y: Array, w: Array) -> Array:
        """Return y as matrices (N, groups, O / groups, positions)."""
        return y.reshape(len(y), self.groups, len(w) // self.groups, math.prod(y.shape[2:]))

    def matrices(self, w: Array) -> Array:
        """Return w as matrices (groups, O / groups, C / groups * taps)."""
        return w.reshape(self.groups, len(w) // self.groups, math.prod(w.shape[1:]))

    def forward(self, x: Array, w: Array, out: Sequence[int]) -> Array:
        return np.matmul(self.matrices(w), self.columns(x, w, out)).reshape(len(x), len(w), *out)

    def input_gradient(self, y: Array, w: Array, space: Sequence[int]) -> Array:
        columns = np.matmul(self.matrices(w).swapaxes(1, 2), self.rows(y, w))
        columns = columns.reshape(len(y), self.groups, w.shape[1], math.prod(w.shape[2:]), *y.shape[2:])
        around = [n + 2 * p for n, p in zip(space, self.padding, strict=True)]
        x = np.zeros((len(y), w.shape[1] * self.groups, *around), y.dtype)
        for tap, met in enumerate(self.taps(x, w, y.shape[2:])):
            met[...] += columns[:, :, :, tap]
        return np.asarray(x[interior(self.padding, space)])

    def weight_gradient(self, x: Array, y: Array, w: Array) -> Array:
        columns = self.columns(x, w, y.shape[2:]).swapaxes(2, 3)
        zeros = np.zeros_like(self.matrices(w))
        return np.asarray(sum(map(np.matmul, self.rows(y, w), columns), zeros)).reshape(w.shape)


@operator("aten::convolution")
def convolution(
    x: Array, w: Array, bias: Maybe, stride: list[int], padding: list[int], dilation: list[int], transposed: bool,
    output_padding: list[int], groups: int,
) -> Any:  # fmt: skip
    x, w, geometry = exact(x), exact(w), Geometry(stride, padding, dilation, groups)
    sizes = zip(x.shape[2:], w.shape[2:], stride, padding, dilation, output_padding, strict=True)
    if transposed:
        space = [(n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, d, extra in sizes]
        y = geometry.input_gradient(x, w, space)
    else:
        y = geometry.forward(x, w, [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d, _ in sizes])
    return y if bias is None else y + exact(bias).reshape(-1, *[1] * (y.ndim - 2))


@operator("aten::convolution_backward")
def convolution_backward(
    grad: Array, x: Array, w: Array, bias_sizes: Any, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int, mask: list[bool],
) -> tuple[Any, ...]:  # fmt: skip
    grad, x, w, geometry = exact(grad), exact(x), exact(w), Geometry(stride, padding, dilation, groups)
    dx = dw = None
    if mask[0]:
        gradient = geometry.forward if transposed else geometry.input_gradient
        dx = gradient(grad, w, x.shape[2:])
    if mask[1]:
        dw = geometry.weight_gradient(grad, x, w) if transposed else geometry.weight_gradient(x, grad, w)
    return dx, dw, total(grad, (0, *range(2, grad.ndim)))
