"""Pooling by maximum and mean."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import denormals, whole_numbers
from isthmus.opset.operator import CHOSEN, Operator, accumulated, op
from isthmus.opset.reference import absolutely
from isthmus.opset.rules import per, windows
from isthmus.opset.sampling import Case, Maker

_MEAN = accumulated(16, "a sum over the window")
_SPREAD = {
    "": accumulated(16, "gradients of overlapping windows are added"),
    "bfloat16": accumulated(4 * 2.0**16, "gradients of overlapping windows are added in the half"),
    "float16": accumulated(4 * 2.0**13, "gradients of overlapping windows are added in the half"),
}
_GRADIENT = ("like(self)", "self.dtype")
# kernel, stride, padding, ceil_mode
_WINDOWS: tuple[tuple[list[int], list[int], list[int], bool], ...] = (
    ([3, 3], [2, 2], [1, 1], False),
    ([2, 3], [], [0, 0], True),
    ([3, 2], [1, 2], [1, 0], False),
    ([5, 2], [2, 4], [2, 1], True),  # the last column would begin in the padding: there is none
    ([2, 5], [3, 1], [0, 2], True),
    ([2], [3], [1], True),
)
_DEEP_WINDOWS: tuple[tuple[list[int], list[int], list[int], bool], ...] = (
    ([3, 3, 3], [2, 2, 2], [1, 1, 1], False),
    ([2, 2, 3], [], [0, 0, 0], True),
    ([2, 3, 4], [3, 1, 2], [1, 0, 2], False),
    ([3, 4, 2], [2, 3, 5], [1, 1, 0], True),
)
# kernel, stride, padding, dilation, ceil_mode
_DILATED: tuple[tuple[list[int], list[int], list[int], list[int], bool], ...] = (
    ([3, 2], [2, 1], [1, 0], [2, 1], False),
    ([5, 4], [1, 1], [2, 2], [1, 1], False),
    ([2, 3], [3, 2], [1, 1], [1, 3], True),
)
_DEEP_DILATED: tuple[tuple[list[int], list[int], list[int], list[int], bool], ...] = (
    ([3, 3, 2], [2, 2, 1], [1, 1, 0], [2, 2, 1], False),
    ([5, 5, 4], [1, 1, 1], [2, 2, 2], [1, 1, 1], False),
    ([2, 2, 3], [3, 1, 2], [1, 0, 1], [1, 3, 2], True),
)
# count_include_pad, divisor_override; each with a window of ceil_mode that reaches past the padding
_DIVISORS = ((False, None), (True, None), (True, -5), (False, 1))


def _inputs(m: Maker, three: bool) -> list[tuple[str, str, tuple[int, ...]]]:
    if three:
        return [("contiguous", "contiguous", (2, 3, 5, 7, 6)), ("strided", "transposed", (1, 2, 6, 5, 7))]
    return [("contiguous", "contiguous", (2, 3, 9, 11)), ("strided", "channels_last", (2, 5, 8, 7))]


def _maximum_pools(three: bool = False) -> Any:
    def samples(m: Maker) -> Iterator[Case]:
        for kind, layout, size in _inputs(m, three):
            for *window, ceil in _DEEP_WINDOWS if three else _WINDOWS:
                tensor = m.distinct(*size, layout=layout)
                yield m.case(kind, tensor, *window, ceil_mode=ceil, model="resnet")
        size, rows = _inputs(m, three)[0][2], _DEEP_DILATED if three else _DILATED
        for row in rows:
            yield m.case("contiguous", m.distinct(*size), *row)
        # Padding is never the maximum; of equal elements the first counts.
        yield m.case("special", m.values(np.full(size, -np.inf)), *rows[1])
        for width in (2, 3):
            yield m.case(
                "special", m.values(m.integers(*size, low=0, high=3).view), [width] * len(rows[0][0])
            )
        yield m.case("special", m.values(m.integers(*size, low=-3, high=0).view), *rows[1])
        ones = [1] * len(rows[0][0])  # windows of one element, which may be NaN
        missing = np.where(np.arange(35) % 4, 1.5, np.nan).reshape(1, *ones[1:], 5, 7)
        yield m.case("special", m.values(missing), ones, ones)
        if m.dtype == "float32":  # more than 2^16 elements of a plane; more than 2^16 planes
            deep = [1] if three else []
            yield m.case("large", m.distinct(1, 1, *deep, 259, 257), [*deep, 5, 9], [*deep, 97, 31])
            yield m.case("large", m.distinct(1, 65_539, *deep, 2, 3), [*deep, 2, 3])
            # More than 2^16 windows of a plane, and images; more than 4096 elements of a window, the last the most.
            yield m.case("large", m.distinct(1, 1, *deep, 259, 257), [*deep, 1, 2], [*deep, 1, 1])
            yield m.case("large", m.distinct(65_539, 1, *deep, 1, 2), [*deep, 1, 2])
            yield m.case("large", m.values(np.arange(4158.0).reshape(1, 1, *deep, 63, 66)), [*deep, 63, 66])

    return samples


def _mean_pools(three: bool = False) -> Any:
    def samples(m: Maker) -> Iterator[Case]:
        rows = _DEEP_WINDOWS if three else _WINDOWS
        for kind, layout, size in _inputs(m, three):
            for *window, ceil in rows:
                yield m.case(kind, m.tensor(*size, layout=layout), *window, ceil_mode=ceil, model="resnet")
        sizes = [size for _, _, size in _inputs(m, three)]
        for counted, divisor in _DIVISORS:
            for size in sizes:
                yield m.case("contiguous", m.tensor(*size), *rows[3], counted, divisor)
        wide = [1, 2, 3][-len(sizes[0]) + 2 :]
        yield m.case("contiguous", m.tensor(1, 2, *wide[:-1], 1031), wide, [1] * len(wide))
        if m.dtype == "float32":
            kernel = [1, 2, 3] if three else [2, 3]
            yield m.case("large", m.tensor(1, 65_539, *kernel), kernel)
            yield m.case("large", m.tensor(65_539, 1, *kernel[:-1], 2), [*kernel[:-1], 2])
            plane = [1, 63, 66] if three else [63, 66]  # one window of more than 4096 elements
            yield m.case("large", whole_numbers(m, 1, 1, *plane), plane)
        high = m.tensor(*sizes[0], low=20_000, high=65_000)  # float16 cannot hold their sums
        yield m.case("contiguous", high, *rows[0])

    return samples


def _mean_gradients(m: Maker) -> Iterator[Case]:
    # Windows that keep the size, so that any size will do; one row; denormal gradients that are added alone.
    rest: tuple[Any, ...] = ([3, 3], [1, 1], [1, 1], False, True, None)
    yield m.case("contiguous", m.tensor(2, 3, 5, 7), m.tensor(2, 3, 5, 7), *rest)
    yield m.case("contiguous", m.tensor(1, 1, 1, 3), m.tensor(1, 1, 1, 3), *rest)
    yield m.case(
        "special", denormals(m, 1, 2, 3, 5), m.tensor(1, 2, 3, 5), [1, 1], [1, 1], [0, 0], False, True, 1
    )
    for kind, layout, size in _inputs(m, False):
        for i, (kernel, stride, pad, ceil) in enumerate(_WINDOWS):
            grad = m.tensor(*size[:2], *windows(size[2:], kernel, stride, pad, ceil=ceil))
            tensor = m.tensor(*size, layout=layout)
            yield m.case(kind, grad, tensor, kernel, stride, pad, ceil, i % 3 < 2, None)
        kernel, stride, pad, ceil = _WINDOWS[3]
        for counted, divisor in _DIVISORS:
            grad = m.tensor(*size[:2], *windows(size[2:], kernel, stride, pad, ceil=ceil))
            yield m.case("contiguous", grad, m.tensor(*size), kernel, stride, pad, ceil, counted, divisor)
    # The window is the whole image.
    yield m.case("special", m.tensor(2, 3, 1, 1), m.tensor(2, 3, 5, 4), [5, 4], [], [0], False, True, None)
    if m.dtype == "float32":
        grad, tensor = m.tensor(1, 65_539, 1, 1), m.tensor(1, 65_539, 2, 3)
        yield m.case("large", grad, tensor, [2, 3], [], [0], False, True, None)


def _max_gradients(m: Maker) -> Iterator[Case]:
    rows = [(*window[:3], [1, 1], window[3]) for window in _WINDOWS]
    # Windows of one element; more than 2^16 rows and elements.
    large = ((1, 1, 1031, 3), (1, 1, 3, 4133), (65_601, 1, 1, 2)) if m.dtype == "float32" else ()
    for size in ((1, 2, 1, 3), *large):
        places = np.broadcast_to(np.arange(size[2] * size[3]).reshape(size[2:]), size)
        kind = "large" if size in large else "contiguous"
        yield m.case(kind, m.tensor(*size), m.tensor(*size), [1, 1], [1, 1], [0, 0], [1, 1], False,
                     m.values(places, "int64"))  # fmt: skip
    for kind, layout, size in _inputs(m, False):
        for kernel, stride, pad, dilation, ceil in (*rows, *_DILATED):
            tensor = m.distinct(*size, layout=layout)
            indices = _maxima(tensor.view.astype(np.float64), kernel, stride or kernel, pad, dilation, ceil)
            yield m.case(kind, m.tensor(*indices.shape), tensor, kernel, stride, pad, dilation, ceil,
                         m.values(indices, "int64"), model="resnet")  # fmt: skip
    tensor = m.distinct(2, 3, 5, 4)  # the window is the whole image
    indices = _maxima(tensor.view.astype(np.float64), [5, 4], [5, 4], [0, 0], [1, 1], False)
    yield m.case("special", m.tensor(2, 3, 1, 1), tensor, [5, 4], [5, 4], [0, 0], [1, 1], False,
                 m.values(indices, "int64"))  # fmt: skip
    few = m.values([[[[0.5, 2.0, -1.0]]]])  # less than a vector
    yield m.case("contiguous", m.tensor(1, 1, 1, 2), few, [1, 2], [1, 1], [0, 0], [1, 1], False,
                 m.values([[[[1, 1]]]], "int64"))  # fmt: skip
    if m.dtype == "float32":  # more than 2^16 elements of a plane
        tensor = m.distinct(1, 1, 523, 257)
        indices = _maxima(tensor.view.astype(np.float64), [5, 9], [97, 31], [0, 0], [1, 1], False)
        yield m.case("large", m.tensor(*indices.shape), tensor, [5, 9], [97, 31], [0, 0], [1, 1], False,
                     m.values(indices, "int64"))  # fmt: skip


def _maxima(
    values: np.ndarray[Any, Any],
    kernel: list[int],
    stride: list[int],
    pad: list[int],
    dilation: list[int],
    ceil: bool,
) -> Any:
    """Flat index of the maximum of each window."""
    space = values.shape[2:]
    found = np.zeros((*values.shape[:2], *windows(space, kernel, stride, pad, dilation, ceil)), np.int64)
    for place in np.ndindex(*found.shape[2:]):
        ys, xs = (
            [at for at in first + per(dilation, d) * np.arange(per(kernel, d)) if 0 <= at < n]
            for d, n in enumerate(space)
            for first in (place[d] * per(stride, d) - per(pad, d),)
        )
        flat = np.array([y * space[1] + x for y in ys for x in xs])
        inside = values.reshape(*values.shape[:2], -1)[..., flat]
        found[(..., *place)] = flat[inside.argmax(-1)]
    return found


def _adaptive(three: bool = False) -> Any:
    def samples(m: Maker) -> Iterator[Case]:
        for kind, layout, size in _inputs(m, three):
            for out in ([1, 1, 1], [3, 3, 4], [4, 7, 2], [6, 1, 13], [1, 2, 1031], [1, 1031, 2]):
                yield m.case(kind, m.tensor(*size, layout=layout), out if three else out[1:], model="resnet")
        if m.dtype == "float32":
            deep = [1] if three else []
            yield m.case("large", m.tensor(1, 65_539, *deep, 2, 3), [*deep, 2, 1])
            yield m.case("large", whole_numbers(m, 1, 1, *deep, 1, 70_001), [1] * (3 if three else 2))
            yield m.case("large", whole_numbers(m, 1, 1, 4133, 3, *deep), [1] * (3 if three else 2))
        # i * (26 / 22) in floating point is below its whole value.
        yield m.case(
            "contiguous", m.tensor(1, 2, *([3] if three else []), 26, 26), [2, 22, 22] if three else [22, 22]
        )
        high = m.tensor(*_inputs(m, three)[0][2], low=20_000, high=65_000)  # float16 cannot hold their sums
        yield m.case("contiguous", high, [1, 1, 2] if three else [1, 2])

    return samples


def _adaptive_gradients(m: Maker) -> Iterator[Case]:
    for kind, layout, size in _inputs(m, False):
        for out in ((1, 1), (3, 4), (7, 2), (1, 13), (13, 1)):
            yield m.case(kind, m.tensor(*size[:2], *out), m.tensor(*size, layout=layout), model="resnet")
    # Same sizes as in the forward operator.
    yield m.case("contiguous", m.tensor(1, 2, 22, 22), m.tensor(1, 2, 26, 26))
    yield m.case("contiguous", m.tensor(1, 2, 1, 3), m.tensor(1, 2, 1, 3))
    if m.dtype == "float32":
        yield m.case("large", m.tensor(1, 65_539, 2, 1), m.tensor(1, 65_539, 2, 3))
        yield m.case("large", m.tensor(1, 1, 2, 4133), m.tensor(1, 1, 2, 4133))
        yield m.case("large", m.tensor(1, 2, 1, 1), m.tensor(1, 2, 263, 257))


_OUT = "self.shape[:2] + windows(self.shape[2:], kernel_size, stride, padding, {}, ceil_mode)"
_MAXIMA = "(" + _OUT.format("dilation") + ", " + _OUT.format("dilation") + ")"
_MEANS = _OUT.format("(1,)")
_INDEXED = '(self.dtype, "int64")'
_SIZED = "self.shape[:2] + tuple(output_size)"

OPERATORS: list[Operator] = [
    op("max_pool2d_with_indices", dt.FLOATS, _MAXIMA, _INDEXED, _maximum_pools(), CHOSEN, resizable=True),
    op("max_pool3d_with_indices", dt.FLOATS, _MAXIMA, _INDEXED, _maximum_pools(True), CHOSEN, resizable=True),
    op("max_pool2d_with_indices_backward", dt.FLOATS, *_GRADIENT, _max_gradients, _SPREAD,
       magnitude=absolutely("aten::max_pool2d_with_indices_backward")),
    op("avg_pool2d", dt.FLOATS, _MEANS, "self.dtype", _mean_pools(), _MEAN,
       magnitude=absolutely("aten::avg_pool2d"), resizable=True),
    op("avg_pool3d", dt.FLOATS, _MEANS, "self.dtype", _mean_pools(True), _MEAN,
       magnitude=absolutely("aten::avg_pool3d"), resizable=True),
    op("avg_pool2d_backward", dt.FLOATS, *_GRADIENT, _mean_gradients, _SPREAD,
       magnitude=absolutely("aten::avg_pool2d_backward"), denormal=False, resizable=True),
    op("_adaptive_avg_pool2d", dt.FLOATS, _SIZED, "self.dtype", _adaptive(), _MEAN,
       magnitude=absolutely("aten::_adaptive_avg_pool2d"), resizable=True),
    op("_adaptive_avg_pool3d", dt.FLOATS, _SIZED, "self.dtype", _adaptive(True), _MEAN,
       magnitude=absolutely("aten::_adaptive_avg_pool3d"), resizable=True),
    op("_adaptive_avg_pool2d_backward", dt.FLOATS, *_GRADIENT, _adaptive_gradients, _SPREAD,
       magnitude=absolutely("aten::_adaptive_avg_pool2d_backward"), resizable=True),
]  # fmt: skip
