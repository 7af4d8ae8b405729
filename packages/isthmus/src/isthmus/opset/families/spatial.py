"""Padding by reflection, resampling, folding, distances and Fourier transforms."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import denormals, whole_numbers
from isthmus.opset.operator import EXACT, Operator, accumulated, op
from isthmus.opset.reference import absolutely
from isthmus.opset.sampling import Case, Maker

if TYPE_CHECKING:
    import torch


_POWERS = (2.0, 1.0, float("inf"), 0.0, 0.5, 1.3, 3.0)


def _pads(rank: int, reflection: bool) -> Any:
    def samples(m: Maker) -> Iterator[Case]:
        size, pad = (5, 6, 7)[-rank:], [1, 2, 3, 0, 2, 1][: 2 * rank]
        yield m.case("contiguous", m.tensor(2, 3, *size), pad)
        yield m.case("contiguous", m.tensor(3, *size), pad[::-1])
        yield m.case("strided", m.tensor(2, 3, *size, layout="transposed"), pad)
        yield m.case("contiguous", m.tensor(1, 1, *size), [2, *[0] * (2 * rank - 1)])
        yield m.case("contiguous", m.tensor(1, 1, *[1] * (rank - 1), 2), [1, *[0] * (2 * rank - 1)])
        widest = [6, 6, 5, 4, 3, 4] if reflection else [17, 9, 6, 20, 5, 13]
        yield m.case("contiguous", m.tensor(2, 3, *size), widest[: 2 * rank])
        crops = [-2, 3, 1, -3, -1, -1]  # negative pads crop
        for pads in (crops, [5, -3, 4, -3, 3, -3]):
            yield m.case("contiguous", m.tensor(2, 3, *size), pads[: 2 * rank])
        if m.dtype == "float32":
            planes = 65_601 if rank == 1 else 32_771
            yield m.case("large", m.tensor(1, planes, *[2] * rank), [1, 0, 0, 1, 0, 0][: 2 * rank])
            thin = m.tensor(1, 65_601, *[1] * (rank - 1), 2)
            yield m.case("large", thin, [1, 0, 0, 0, 0, 0][: 2 * rank])
            yield m.case("large", m.tensor(1, 1, *[2] * (rank - 1), 4133), [1, 0] * rank)
            if rank > 1:
                yield m.case("large", m.tensor(1, 1, *[2] * (rank - 2), 1033, 3), [1, 0] * rank)

    return samples


def _resizes(*flags: Any) -> Any:
    """Sizes given alone, and with the scales that they were floored from."""

    def samples(m: Maker) -> Iterator[Case]:
        for size, out in (
            ((5, 7), [10, 14]), ((9, 6), [4, 11]), ((3, 3), [3, 3]), ((7, 5), [1, 1]), ((1, 4), [3, 1]),
        ):  # fmt: skip
            for option in flags or ((),):
                yield m.case("contiguous", m.tensor(2, 3, *size), out, *option)
        yield m.case("strided", m.tensor(2, 3, 5, 4, layout="channels_last"), [7, 9], *(flags or ((),))[0])
        yield m.case("contiguous", m.tensor(2, 3, 5, 7), [11, 15], *(flags or ((),))[0], 2.3, 2.2)
        yield m.case("contiguous", m.tensor(1, 1, 1, 3), [1, 3], *(flags or ((),))[0])
        yield m.case("special", m.values(np.zeros((1, 1, 2, 2))), [2, 4], *(flags or ((),))[0])
        for option in flags or ((),):
            yield m.case("contiguous", m.tensor(2, 3, 11, 5), [4, 8], *option, 0.43, 1.7)
            yield m.case("contiguous", m.tensor(1, 2, 5, 11), [13, 6], *option, 2.7, None)
            yield m.case("contiguous", m.tensor(1, 2, 9, 5), [4, 8], *option, None, 1.7)
            if m.dtype == "float32":
                yield m.case("large", m.tensor(1, 65_601, 2, 1), [1, 3], *option)
                if option != (True,):  # scales that make positions exact
                    yield m.case("large", m.tensor(1, 1, 32, 4132), [64, 1033], *option)
                yield m.case("large", m.tensor(2, 1, 3, 29), [1031, 65], *option)

    return samples


def _grids(m: Maker) -> Iterator[Case]:
    for mode, padding, corners in ((0, 0, False), (0, 1, True), (0, 2, False), (1, 0, False)):
        yield m.case("contiguous", m.tensor(2, 3, 5, 7), m.tensor(2, 3, 5, 2, low=-1.3, high=1.3), mode, padding,
                     corners)  # fmt: skip
        yield m.case("contiguous", m.tensor(1, 1, 1, 3), m.tensor(1, 3, 1, 2, low=-1.3, high=1.3), mode, padding,
                     corners)  # fmt: skip
    # Every mode, with points far outside; odd multiples of 1/32 are exact and never halfway between two pixels.
    for mode, padding, corners in product((0, 1, 2), (0, 1, 2), (False, True)):
        near, far = (
            m.integers(2, 3, 4, 2, low=-40, high=40).view,
            m.integers(2, 3, 3, 2, low=-900, high=900).view,
        )
        points = (2 * np.concatenate([near, far], 2) + 1) / 32
        yield m.case("contiguous", m.tensor(2, 3, 5, 7), m.values(points), mode, padding, corners)
    # Points halfway between two pixels, of which nearest takes the even one.
    halves = np.stack(np.meshgrid(np.arange(-5, 6) / 4, np.arange(-5, 6) / 4), -1)[None]
    for size, corners in ((5, True), (8, False)):
        yield m.case("special", m.tensor(1, 2, size, size), m.values(halves), 1, 0, corners)
    if m.dtype == "float32":
        yield m.case("large", m.tensor(2, 1, 4, 6), m.tensor(2, 257, 263, 2, low=-1, high=1), 0, 0, False)
        yield m.case("large", m.tensor(1, 1, 2, 3), m.tensor(1, 65_601, 1, 2, low=-1, high=1), 0, 0, False)
        exact = np.stack(
            [np.arange(1025) / 512 - 1, np.arange(1025) % 2 * 2 - 1], -1
        )  # every pixel of a wide image
        yield m.case("large", m.tensor(1, 1, 2, 1025), m.values(exact[None, None]), 0, 0, True)


def _folds(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", m.tensor(2, 12, 20), [5, 6], [2, 2], [1, 1], [0, 0], [1, 1])
    yield m.case("contiguous", m.tensor(1, 1, 3), [1, 3], [1, 1], [1, 1], [0, 0], [1, 1])
    yield m.case("strided", m.tensor(2, 18, 12, layout="transposed"), [7, 5], [3, 3], [1, 1], [1, 1], [2, 2])
    yield m.case("contiguous", m.tensor(1, 18, 8), [9, 7], [3, 2], [2, 1], [1, 0], [2, 3])
    yield m.case("contiguous", m.tensor(2, 12, 26), [6, 9], [2, 3], [3, 2], [1, 4], [4, 1])
    # Windows that overlap although the stride is their size.
    yield m.case("contiguous", m.tensor(1, 4, 9), [7, 7], [2, 2], [2, 2], [0, 0], [2, 2])
    yield m.case("contiguous", m.tensor(2, 4, 9), [5, 9], [1, 2], [4, 5], [0, 2], [2, 3])
    yield m.case("contiguous", m.tensor(1, 9, 16), [8, 8], [3, 3], [2, 2], [0, 0], [1, 1])
    yield m.case("contiguous", m.tensor(1, 6, 15), [9, 7], [3, 2], [3, 4], [1, 1], [2, 1])
    # A row, or a column, of windows that overlap by one.
    yield m.case("contiguous", m.tensor(1, 3, 3), [1, 7], [1, 3], [1, 1], [0, 0], [1, 2])
    yield m.case("contiguous", m.tensor(1, 3, 3), [7, 1], [3, 1], [1, 1], [0, 0], [2, 1])
    if m.dtype in dt.HALVES:  # sums of hundreds of equal numbers, which stop growing in a half
        yield m.case(
            "large", m.values(np.full((1, 400, 400), 0.3)), [39, 39], [20, 20], [1, 1], [0, 0], [1, 1]
        )
    if m.dtype == "float32":
        yield m.case("large", m.tensor(1, 2, 66_306), [259, 257], [2, 1], [1, 1], [0, 0], [1, 1])
        for size in ([2, 1031], [1031, 2]):
            yield m.case("large", m.tensor(1, 1, 2062), size, [1, 1], [1, 1], [0, 0], [1, 1])
        yield m.case("large", m.tensor(1, 65_601, 2), [1, 2], [1, 1], [1, 1], [0, 0], [1, 1])


def _fold_columns(m: Maker) -> Iterator[Case]:
    # Different dilations of square windows, whose number exchanged ones would not change.
    yield m.case("contiguous", m.tensor(1, 1, 7, 7), [2, 2], [1, 2], [0, 0], [3, 3])
    yield m.case("contiguous", m.tensor(2, 3, 5, 6), [2, 2], [1, 1], [0, 0], [1, 1])
    yield m.case("contiguous", m.tensor(1, 1, 1, 3), [1, 1], [1, 1], [0, 0], [1, 1])
    yield m.case("strided", m.tensor(2, 2, 7, 5, layout="channels_last"), [3, 3], [2, 2], [1, 1], [1, 2])
    yield m.case("contiguous", m.tensor(1, 3, 9, 7), [3, 2], [2, 1], [1, 0], [1, 2])
    yield m.case("contiguous", m.tensor(2, 2, 6, 9), [2, 3], [3, 2], [1, 4], [4, 1])
    yield m.case("contiguous", m.tensor(2, 2, 5, 9), [1, 2], [4, 5], [0, 2], [2, 3])
    if m.dtype == "float32":
        yield m.case("large", m.tensor(1, 1, 259, 257), [2, 1], [1, 1], [0, 0], [1, 1])
        yield m.case("large", m.tensor(1, 1, 36, 40), [33, 32], [1, 1], [0, 0], [1, 1])  # more than 1024 rows
        yield m.case("large", m.tensor(1, 2, 2, 4133), [1, 2], [1, 1], [0, 0], [1, 1])
        yield m.case("large", m.tensor(1, 65_601, 1, 2), [1, 1], [1, 1], [0, 0], [1, 1])


def _distances(m: Maker) -> Iterator[Case]:
    for power in _POWERS:
        yield m.case("contiguous", m.tensor(2, 5, 7), m.tensor(2, 4, 7), power, None)
    yield m.case("strided", m.tensor(5, 7, layout="transposed"), m.tensor(4, 7, layout="sliced"), 2.0, 2)
    for power in _POWERS:  # equal coordinates and equal points
        grid = m.integers(9, 3, low=-1, high=2).view
        yield m.case("contiguous", m.values(grid), m.values(grid[::-1][:7]), power, 2)
    for mode in (0, 1, 2):  # more than 25 points, where PyTorch may use a matrix product; equal ones too
        yield m.case("contiguous", m.tensor(67, 5), m.tensor(131, 5, low=4, high=6), 2.0, mode)
        few = m.values(m.integers(67, 3, low=-1, high=2).view)
        yield m.case("contiguous", few, m.values(few.view[::-1]), 2.0, mode)
    for power in (1.0, 2.0, 0.0, 2.3, float("inf")):  # the last coordinate decides
        last = np.zeros((3, 1031))
        last[:, -1] = [1.0, -2.0, 4.0]
        yield m.case("special", m.values(last), m.values(last[:2] / 2), power, 2)
    near = m.values([[0, 1], [1e-8, 1], [1e-8, 1 + 1e-3]])  # coordinates that almost are equal
    yield m.case("special", near, m.values(near.view[::-1]), 0.0, 2)
    far = [m.tensor(n, 5, low=1000, high=1001) for n in (9, 7)]  # their squares hide the distance
    yield m.case("special", *far, 2.0, 2)
    yield m.case("contiguous", m.tensor(3, 1), m.tensor(2, 1), 3.0, None)
    for power in (1.0, float("inf")):  # without squares, which would be 0
        yield m.case("special", denormals(m, 5, 3), denormals(m, 4, 3), power, None)
    yield m.case("zero-size", m.tensor(2, 0, 3), m.tensor(2, 4, 3), 1.0, None)
    yield m.case("zero-size", m.tensor(5, 0), m.tensor(4, 0), 2.0, None)
    if m.dtype == "float32":
        yield m.case("large", m.tensor(257, 3), m.tensor(263, 3), 1.0, None)
        yield m.case("large", m.tensor(65_601, 2), m.tensor(2, 2), 1.0, None)
        for power in (2.0, 1.0, float("inf")):  # sums of squares of integers are exact
            yield m.case("large", whole_numbers(m, 2, 65_601), whole_numbers(m, 3, 65_601), power, None)


def _own_distances(m: Maker) -> Iterator[Case]:
    for power in _POWERS:
        yield m.case("contiguous", m.tensor(6, 7), power)
        yield m.case(
            "contiguous", m.values(m.integers(7, 3, low=-1, high=2).view), power
        )  # equal coordinates
    yield m.case("contiguous", m.tensor(131, 1), 2.0)
    for power in (1.0, 0.0, float("inf")):
        yield m.case("special", m.values(np.eye(3, 1031, 1028)), power)
    yield m.case("special", m.values([[0, 1], [1e-8, 1], [1e-8, 1 + 1e-3]]), 0.0)
    yield m.case("special", m.values(denormals(m, 5, 3).view / 16), 1.0)
    yield m.case("zero-size", m.tensor(1, 3), 1.0)
    yield m.case("zero-size", m.tensor(5, 0), 2.0)
    if m.dtype == "float32":
        yield m.case("large", m.tensor(367, 2), 1.0)
        yield m.case("large", whole_numbers(m, 3, 32_801), 1.0)


def _transforms(m: Maker) -> Iterator[Case]:
    for dims, norm, half in (([1], 0, True), ([0, 2], 1, True), ([2], 2, False)):
        yield m.case("contiguous", m.tensor(3, 5, 8), dims, norm, half)
    yield m.case("strided", m.tensor(3, 8, layout="transposed"), [1], 0, True)
    # The last of dims is halved, wherever it is.
    for dims, norm, half in (
        ([2, 0], 2, True),
        ([1, 2, 0], 1, False),
        ([0, 1, 2], 0, True),
        ([0, 1], 2, False),
    ):
        yield m.case("contiguous", m.tensor(4, 5, 6), dims, norm, half)
    for size in (1, 2, 17, 64, 1021, 4096):
        yield m.case("contiguous", m.tensor(2, size), [1], 1, True)


def _inverses(m: Maker) -> Iterator[Case]:
    kind = "complex64" if m.dtype == "float32" else "complex128"
    for shape, dims, last, norm in (
        ((3, 5), [1], 8, 2), ((3, 5), [1], 9, 2), ((4, 3, 5), [0, 2], 8, 2), ((5, 3, 4), [2, 0], 9, 1),
        ((5, 3, 4), [1, 2, 0], 8, 0), ((3, 2), [1], 2, 1), ((2, 1), [1], 1, 0), ((2, 511), [1], 1021, 1),
    ):  # fmt: skip
        full = [last if i == dims[-1] else n for i, n in enumerate(shape)]
        spectrum = np.fft.rfftn(m.tensor(*full).view, axes=dims)
        yield m.case("contiguous", m.values(spectrum, kind), dims, norm, last)


def _frequency_size(self: torch.Tensor, dim: list[int], normalization: int, onesided: bool) -> Any:
    import torch

    like = torch.ops.aten._fft_r2c(self, dim, normalization, onesided)
    scale = _scale(self.shape, dim, normalization)
    return torch.zeros(like.shape, dtype=torch.float64) + self.abs().sum(dim, keepdim=True) * scale


def _scale(shape: Any, dim: list[int], normalization: int) -> float:
    import math

    count = math.prod(shape[d] for d in dim)
    return [1.0, count**-0.5, 1 / count][normalization]


def _inverse_size(self: torch.Tensor, dim: list[int], normalization: int, last_dim_size: int) -> Any:
    import torch

    like = torch.ops.aten._fft_c2r(self, dim, normalization, last_dim_size)
    scale = _scale(like.shape, dim, normalization)
    return torch.zeros(like.shape, dtype=torch.float64) + 2 * self.abs().sum(dim, keepdim=True) * scale


def _distance_size(x1: torch.Tensor, x2: torch.Tensor, p: float, compute_mode: Any) -> Any:
    import torch

    return torch.cdist(x1.abs(), -x2.abs(), p)


def _resized_size(self: Any, output_size: Any, *_: Any, **__: Any) -> Any:
    return self.abs().amax((2, 3), keepdim=True).expand(*self.shape[:2], *output_size) * 16


def _grid_size(input: Any, grid: Any, *_: Any, **__: Any) -> Any:
    largest = input.abs().amax((2, 3), keepdim=True).expand(*input.shape[:2], *grid.shape[1:3])
    return largest * max(16, *input.shape[2:])


_INTERPOLATED = accumulated(
    4, "positions and weights are rounded; the magnitude is the largest pixel times the size, at least 16"
)
_HALVES = {
    **{h: accumulated(2.0**12, "weights may be rounded to the half") for h in dt.HALVES},
    "": _INTERPOLATED,
}
_WIDE = ("float32", "float64")
_PADDED = "padded(self, padding)"
_HALF_SPECTRUM = "self.shape if not onesided else at(self, dim[-1], self.shape[dim[-1]] // 2 + 1)"
_POSITIONS = ("tuple((n + 2 * padding[i] - dilation[i] * (kernel_size[i] - 1) - 1) // stride[i] + 1 "
              "for i, n in enumerate(self.shape[2:]))")  # fmt: skip

OPERATORS: list[Operator] = [
    *[op(f"{mode}_pad{rank}d", dt.FLOATS, _PADDED, "self.dtype", _pads(rank, mode == "reflection"), EXACT,
         resizable=True)
      for mode in ("reflection", "replication") for rank in (1, 2, 3)],
    op("upsample_nearest2d", dt.FLOATS, "self.shape[:2] + tuple(output_size)", "self.dtype", _resizes(), EXACT,
       resizable=True),
    op("upsample_bilinear2d", dt.FLOATS, "self.shape[:2] + tuple(output_size)", "self.dtype",
       _resizes((False,), (True,)), _HALVES, magnitude=_resized_size, special=()),
    op("grid_sampler_2d", _WIDE, "input.shape[:2] + grid.shape[1:3]", "input.dtype", _grids, _INTERPOLATED,
       magnitude=_grid_size, special=(), resizable=True),  # a weight of 0 times NaN
    op("col2im", dt.FLOATS,
       "(self.shape[0], self.shape[1] // (kernel_size[0] * kernel_size[1])) + tuple(output_size)",
       "self.dtype", _folds,
       {"": accumulated(16, "overlapping windows are added"),
        "bfloat16": accumulated(4 * 2.0**16, "overlapping windows are added in the half"),
        "float16": accumulated(4 * 2.0**13, "overlapping windows are added in the half")},
       magnitude=absolutely("aten::col2im"), resizable=True),
    op("im2col", dt.FLOATS,
       f"(lambda p: (self.shape[0], self.shape[1] * kernel_size[0] * kernel_size[1], p[0] * p[1]))({_POSITIONS})",
       "self.dtype", _fold_columns, EXACT, resizable=True),
    op("_cdist_forward", _WIDE, "x1.shape[:-1] + (x2.shape[-2],)", "x1.dtype", _distances,
       accumulated(32, "a sum over the coordinates, by differences or by a matrix product"),
       magnitude=_distance_size, resizable=True, leading=True),
    op("_pdist_forward", _WIDE, "(self.shape[0] * (self.shape[0] - 1) // 2,)", "self.dtype", _own_distances,
       accumulated(32, "a sum over the coordinates"),
       magnitude=lambda self, p: __import__("torch").pdist(self, p), strided=False, denormal=False, resizable=True),
    op("_fft_r2c", _WIDE, _HALF_SPECTRUM, '"complex64" if self.dtype == "float32" else "complex128"', _transforms,
       accumulated(16, "log2(n) butterflies"), magnitude=_frequency_size, resizable=True),
    op("_fft_c2r", _WIDE, "at(self, dim[-1], last_dim_size)",
       '"float32" if self.dtype == "complex64" else "float64"', _inverses, accumulated(16, "log2(n) butterflies"),
       magnitude=_inverse_size, resizable=True),
]  # fmt: skip
