"""Sampling of images at the points of a grid."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, double, operator

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2


def inside(place: Array, size: int, padding: int, align_corners: bool) -> Any:
    """Move places in pixels into an image of this size, by the padding mode."""
    if padding == REFLECTION:
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        if span == 0:
            return np.zeros_like(place)
        turns, rest = np.divmod(np.abs(place - low), span)
        place = low + np.where(turns % 2 == 0, rest, span - rest)
    return place if padding == ZEROS else np.clip(place, 0, size - 1)


def weights(place: Array, mode: int) -> Iterator[tuple[Any, Any]]:
    """Yield the pixels around each place along one dimension, and their weights."""
    first = np.floor(place)
    t = place - first
    if mode == NEAREST:
        yield np.rint(place), np.ones_like(place)
    elif mode == BILINEAR:
        yield first, 1 - t
        yield first + 1, t
    else:
        for offset in (-1, 0, 1, 2):
            yield first + offset, cubic(np.abs(t - offset))


def cubic(d: Array) -> Any:
    """Return the cubic convolution kernel with a = -0.75 at distance d <= 2."""
    a = -0.75
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    return np.where(d <= 1, near, ((d - 5) * d + 8) * d * a - 4 * a)


@operator("aten::grid_sampler_2d")
def grid_sample(image: Array, grid: Array, mode: int, padding: int, align_corners: bool) -> Array:
    image, sizes = double(image), image.shape[:1:-1]  # width, height
    along = []
    for i, size in enumerate(sizes):
        point = double(grid[..., i])
        place = (point + 1) / 2 * (size - 1) if align_corners else ((point + 1) * size - 1) / 2
        if mode != BICUBIC:
            place = inside(place, size, padding, align_corners)
        along.append([*weights(place, mode)])
    result = np.zeros((*image.shape[:2], *grid.shape[1:3]))
    batch = np.arange(len(image))[:, None, None]
    for x, x_weight in along[0]:
        for y, y_weight in along[1]:
            column, row = (
                inside(each, size, padding, align_corners) if mode == BICUBIC else each
                for each, size in zip((x, y), sizes, strict=True)
            )
            met = (column >= 0) & (column < sizes[0]) & (row >= 0) & (row < sizes[1])
            column, row = (np.where(met, each, 0).astype(np.int64) for each in (column, row))
            pixels = np.moveaxis(image[batch, :, row, column], -1, 1)
            result += np.where(met, x_weight * y_weight, 0)[:, None] * pixels
    return result
