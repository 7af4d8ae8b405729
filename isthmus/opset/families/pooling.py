"""Pooling by maximum and mean."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.operator import CHOSEN, Operator, accumulated, op
from isthmus.opset.reference import absolutely
from isthmus.opset.rules import windows
from isthmus.opset.sampling import Case, Maker

_MEAN = accumulated(16, "a sum over the window")
_SPREAD = {
    "": accumulated(16, "gradients of overlapping windows are added"),
    "bfloat16": accumulated(4 * 2.0**16, "gradients of overlapping windows are added in the half"),
    "float16": accumulated(4 * 2.0**13, "gradients of overlapping windows are added in the half"),
}
_GRADIENT = ("like(self)", "self.dtype")
# kernel, stride, padding
_WINDOWS: tuple[tuple[list[int], list[int], list[int]], ...] = (
    ([3, 3], [2, 2], [1, 1]),
    ([2, 3], [], [0, 0]),
    ([3, 2], [1, 2], [1, 0]),
)


def _inputs(m: Maker, three: bool) -> list[tuple[str, str, tuple[int, ...]]]:
    if three:
        return [("contiguous", "contiguous", (2, 3, 5, 7, 6)), ("strided", "transposed", (1, 2, 6, 5, 7))]
    return [("contiguous", "contiguous", (2, 3, 9, 11)), ("strided", "channels_last", (2, 5, 8, 7))]


def _deep(values: list[int], three: bool) -> list[int]:
    return [values[0], *values] if three and values else values


def _pools(three: bool = False, distinct: bool = False) -> Any:
    def samples(m: Maker) -> Iterator[Case]:
        for kind, layout, size in _inputs(m, three):
            for kernel, stride, pad in _WINDOWS:
                tensor = m.distinct(*size, layout=layout) if distinct else m.tensor(*size, layout=layout)
                options = [_deep(each, three) for each in (kernel, stride, pad)]
                yield m.case(kind, tensor, *options, ceil_mode=kernel == [2, 3], model="resnet")
        if distinct:
            apart = [_deep(each, three) for each in ([3, 2], [2, 1], [1, 0], [2, 1])]
            yield m.case("contiguous", m.distinct(*_inputs(m, three)[0][2]), *apart)
            wide = [_deep(each, three) for each in ([5, 4], [1, 1], [2, 2])]
            yield m.case("contiguous", m.distinct(*_inputs(m, three)[0][2]), *wide)
            # Padding is never the maximum; of equal elements the first counts.
            lowest = np.full(_inputs(m, three)[0][2], -np.inf)
            yield m.case("special", m.values(lowest), *wide)
        else:  # without padding in the count; then with a divisor_override
            for counted, divisor in ((False, None), (True, 5)):
                window = [_deep(each, three) for each in ([3, 2], [2, 1], [1, 1])]
                yield m.case(
                    "contiguous", m.tensor(*_inputs(m, three)[0][2]), *window, False, counted, divisor
                )

    return samples


def _mean_gradients(m: Maker) -> Iterator[Case]:
    for kind, layout, size in _inputs(m, False):
        for kernel, stride, pad in _WINDOWS:
            grad = m.tensor(*size[:2], *windows(size[2:], kernel, stride, pad))
            yield m.case(
                kind, grad, m.tensor(*size, layout=layout), kernel, stride, pad, False, kernel != [3, 2], None
            )
    grad = m.tensor(2, 3, *windows((9, 11), [3, 2], [2, 1], [1, 1]))
    yield m.case("contiguous", grad, m.tensor(2, 3, 9, 11), [3, 2], [2, 1], [1, 1], False, True, 5)


def _max_gradients(m: Maker) -> Iterator[Case]:
    for kind, layout, size in _inputs(m, False):
        for kernel, stride, pad in _WINDOWS:
            tensor = m.distinct(*size, layout=layout)
            indices = _maxima(tensor.view.astype(np.float64), kernel, stride or kernel, pad)
            yield m.case(kind, m.tensor(*indices.shape), tensor, kernel, stride, pad, [1, 1], False,
                         m.values(indices, "int64"), model="resnet")  # fmt: skip


def _maxima(values: np.ndarray[Any, Any], kernel: list[int], stride: list[int], pad: list[int]) -> Any:
    """Flat index of the maximum of each window."""
    height, width = values.shape[2:]
    rows, columns = windows((height, width), kernel, stride, pad)
    found = np.zeros((*values.shape[:2], rows, columns), np.int64)
    for i, j in np.ndindex(rows, columns):
        top, left = i * stride[0] - pad[0], j * stride[1] - pad[1]
        ys = range(max(top, 0), min(top + kernel[0], height))
        xs = range(max(left, 0), min(left + kernel[1], width))
        flat = np.array([y * width + x for y in ys for x in xs])
        inside = values.reshape(*values.shape[:2], -1)[..., flat]
        found[..., i, j] = flat[inside.argmax(-1)]
    return found


def _adaptive(three: bool = False) -> Any:
    def samples(m: Maker) -> Iterator[Case]:
        for kind, layout, size in _inputs(m, three):
            for out in ([1, 1], [3, 4]):
                yield m.case(kind, m.tensor(*size, layout=layout), _deep(out, three), model="resnet")

    return samples


def _adaptive_gradients(m: Maker) -> Iterator[Case]:
    for kind, layout, size in _inputs(m, False):
        for out in ((1, 1), (3, 4)):
            yield m.case(kind, m.tensor(*size[:2], *out), m.tensor(*size, layout=layout), model="resnet")


_OUT = "self.shape[:2] + windows(self.shape[2:], kernel_size, stride, padding, {}, ceil_mode)"
_MAXIMA = "(" + _OUT.format("dilation") + ", " + _OUT.format("dilation") + ")"
_MEANS = _OUT.format("(1,)")
_INDEXED = '(self.dtype, "int64")'
_SIZED = "self.shape[:2] + tuple(output_size)"

OPERATORS: list[Operator] = [
    op("max_pool2d_with_indices", dt.FLOATS, _MAXIMA, _INDEXED, _pools(distinct=True), CHOSEN),
    op("max_pool3d_with_indices", dt.FLOATS, _MAXIMA, _INDEXED, _pools(True, distinct=True), CHOSEN),
    op("max_pool2d_with_indices_backward", dt.FLOATS, *_GRADIENT, _max_gradients, _SPREAD,
       magnitude=absolutely("aten::max_pool2d_with_indices_backward")),
    op("avg_pool2d", dt.FLOATS, _MEANS, "self.dtype", _pools(), _MEAN, magnitude=absolutely("aten::avg_pool2d")),
    op("avg_pool3d", dt.FLOATS, _MEANS, "self.dtype", _pools(True), _MEAN, magnitude=absolutely("aten::avg_pool3d")),
    op("avg_pool2d_backward", dt.FLOATS, *_GRADIENT, _mean_gradients, _SPREAD,
       magnitude=absolutely("aten::avg_pool2d_backward")),
    op("_adaptive_avg_pool2d", dt.FLOATS, _SIZED, "self.dtype", _adaptive(), _MEAN,
       magnitude=absolutely("aten::_adaptive_avg_pool2d")),
    op("_adaptive_avg_pool3d", dt.FLOATS, _SIZED, "self.dtype", _adaptive(True), _MEAN,
       magnitude=absolutely("aten::_adaptive_avg_pool3d")),
    op("_adaptive_avg_pool2d_backward", dt.FLOATS, *_GRADIENT, _adaptive_gradients, _SPREAD,
       magnitude=absolutely("aten::_adaptive_avg_pool2d_backward")),
]  # fmt: skip
