"""Convolution."""

# ruff: noqa: D102, D103 (a kernel is documented where its operator is: in the opset)

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, double, operator
from isthmus.drivers.numpy.kernels.normalization import affine, per_channel
from isthmus.drivers.numpy.kernels.reductions import total


def taps(x: Any, kernel: Any, stride: Any, dilation: Any, out: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each position of a kernel, and its view (..., *out) of a padded x (..., *space)."""
    for offset in np.ndindex(*kernel):
        spots = zip(offset, dilation, stride, out, strict=True)
        yield offset, x[(..., *(slice(o * d, o * d + (n - 1) * s + 1, s) for o, d, s, n in spots))]


def padded(x: Array, padding: Sequence[int], extra: Sequence[int], fill: float = 0) -> Array:
    around = [(p, p + e) for p, e in zip(padding, extra, strict=True)]
    return np.pad(x, [*[(0, 0)] * (x.ndim - len(around)), *around], constant_values=fill)


def grouped(x: Array, groups: int, dim: int) -> Array:
    return x.reshape(*x.shape[:dim], groups, x.shape[dim] // groups, *x.shape[dim + 1 :])


class Geometry(NamedTuple):
    """Geometry of a convolution: x is (N, C, *space), w is (O, C / groups, *kernel), y is (N, O, *out)."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    def around(self, x: Array, w: Array, out: Sequence[int]) -> tuple[Any, list[tuple[Any, Any]]]:
        """Return x padded and split into groups, and its taps."""
        space = grouped(padded(x, self.padding, [0] * len(out)), self.groups, 1)
        return space, list(taps(space, w.shape[2:], self.stride, self.dilation, out))

    def forward(self, x: Array, w: Array) -> Array:
        sizes = zip(x.shape[2:], w.shape[2:], self.stride, self.padding, self.dilation, strict=True)
        out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]
        y, w_g = np.zeros((len(x), self.groups, len(w) // self.groups, *out)), grouped(w, self.groups, 0)
        for k, met in self.around(x, w, out)[1]:
            y += np.einsum("ngi...,goi->ngo...", met, w_g[(..., *k)], optimize=True)
        return y.reshape(len(x), len(w), *out)

    def input_gradient(self, y: Array, w: Array, space: Sequence[int]) -> Array:
        zeros = np.zeros((len(y), w.shape[1] * self.groups, *space))
        x, met_by = self.around(zeros, w, y.shape[2:])
        y, w_g = grouped(y, self.groups, 1), grouped(w, self.groups, 0)
        for k, met in met_by:
            met[...] += np.einsum("ngo...,goi->ngi...", y, w_g[(..., *k)], optimize=True)
        inside = tuple(slice(p, p + n) for p, n in zip(self.padding, space, strict=True))
        return np.asarray(x[(..., *inside)]).reshape(zeros.shape)

    def weight_gradient(self, x: Array, y: Array, w: Array) -> Array:
        gradient = np.zeros_like(grouped(w, self.groups, 0))
        for k, met in self.around(x, w, y.shape[2:])[1]:
            gradient[(..., *k)] = np.einsum(
                "ngi...,ngo...->goi", met, grouped(y, self.groups, 1), optimize=True
            )
        return gradient.reshape(w.shape)


@operator("aten::convolution")
def convolution(
    x: Array, w: Array, bias: Maybe, stride: list[int], padding: list[int], dilation: list[int], transposed: bool,
    output_padding: list[int], groups: int,
) -> Any:  # fmt: skip
    x, w, geometry = double(x), double(w), Geometry(stride, padding, dilation, groups)
    sizes = zip(x.shape[2:], w.shape[2:], stride, padding, dilation, output_padding, strict=True)
    space = [(n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, d, extra in sizes]
    y = geometry.input_gradient(x, w, space) if transposed else geometry.forward(x, w)
    return affine(y, None, per_channel(bias, y))


@operator("aten::convolution_backward")
def convolution_backward(
    grad: Array, x: Array, w: Array, bias_sizes: Any, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int, mask: list[bool],
) -> tuple[Any, ...]:  # fmt: skip
    grad, x, w, geometry = double(grad), double(x), double(w), Geometry(stride, padding, dilation, groups)
    dx = geometry.forward(grad, w) if transposed else geometry.input_gradient(grad, w, x.shape[2:])
    dw = geometry.weight_gradient(grad, x, w) if transposed else geometry.weight_gradient(x, grad, w)
    return dx, dw, total(grad, (0, *range(2, grad.ndim)))
