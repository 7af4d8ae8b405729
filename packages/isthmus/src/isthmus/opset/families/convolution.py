"""Convolutions of one to three dimensions, transposed and grouped ones too."""

from collections.abc import Iterator
from typing import Any

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import whole_numbers
from isthmus.opset.operator import Operator, accumulated, op
from isthmus.opset.reference import absolutely
from isthmus.opset.rules import Shape, convolved
from isthmus.opset.sampling import Array, Case, Maker

_SUMS = accumulated(32, "sums of products over channels and window, blocked")
_GRADIENTS = accumulated(64, "sums of products over channels and window, or batch and positions, blocked")

# kind, layout, input, weight, bias, stride, padding, dilation, transposed, output padding, groups, model
_ROWS: tuple[tuple[Any, ...], ...] = (
    ("contiguous", "contiguous", (2, 3, 17, 15), (5, 3, 7, 7), 0, [2, 2], [3, 3], [1, 1], 0, [0, 0], 1, "resnet"),
    ("contiguous", "contiguous", (2, 5, 9, 7), (7, 5, 3, 3), 0, [1, 1], [1, 1], [1, 1], 0, [0, 0], 1, "resnet"),
    ("contiguous", "contiguous", (2, 5, 9, 7), (7, 5, 1, 1), 0, [2, 2], [0, 0], [1, 1], 0, [0, 0], 1, "resnet"),
    ("strided", "channels_last", (2, 5, 9, 7), (7, 5, 3, 3), 1, [1, 1], [1, 1], [1, 1], 0, [0, 0], 1, "resnet"),
    ("strided", "transposed", (2, 4, 9, 7), (6, 2, 3, 2), 1, [2, 1], [1, 0], [2, 1], 0, [0, 0], 2, ""),
    ("contiguous", "contiguous", (2, 4, 7, 5), (4, 3, 3, 3), 1, [2, 2], [1, 1], [1, 1], 1, [1, 1], 1, ""),
    ("contiguous", "contiguous", (2, 4, 5, 3), (4, 2, 3, 3), 0, [2, 3], [1, 0], [2, 1], 1, [1, 2], 2, ""),
    ("contiguous", "contiguous", (2, 4, 9, 7), (4, 1, 3, 3), 0, [2, 2], [1, 1], [1, 1], 0, [0, 0], 4, "resnet"),
    ("contiguous", "contiguous", (2, 6, 11), (6, 1, 4), 1, [1], [3], [1], 0, [0], 6, ""),
    ("contiguous", "contiguous", (1, 2, 5, 6, 7), (3, 2, 2, 3, 2), 1, [1, 2, 1], [0, 1, 1], [1, 1, 1], 0,
     [0, 0, 0], 1, ""),
    # A row of each, whose size is kept; less than a vector.
    ("contiguous", "contiguous", (2, 3, 1, 9), (4, 3, 1, 3), 1, [1, 1], [0, 1], [1, 1], 0, [0, 0], 1, ""),
    ("special", "contiguous", (1, 1, 1, 3), (1, 1, 1, 3), 0, [1, 1], [0, 1], [1, 1], 0, [0, 0], 1, ""),
    # One channel of the input, or of the output.
    ("contiguous", "contiguous", (2, 1, 5, 4), (3, 1, 2, 3), 1, [1, 1], [1, 1], [1, 1], 0, [0, 0], 1, ""),
    ("contiguous", "contiguous", (2, 1, 5, 4), (1, 3, 2, 3), 1, [2, 1], [1, 0], [1, 1], 1, [1, 0], 1, ""),
    ("contiguous", "contiguous", (2, 3, 5, 4), (3, 1, 3, 2), 0, [1, 2], [0, 1], [1, 1], 1, [0, 1], 1, ""),
    # Every list differs from the others and by dimension.
    ("contiguous", "contiguous", (2, 4, 11, 9), (6, 2, 2, 3), 1, [1, 3], [2, 4], [3, 2], 0, [0, 0], 2, ""),
    ("contiguous", "contiguous", (1, 4, 9, 8), (2, 4, 2, 3), 0, [3, 5], [1, 0], [1, 2], 0, [0, 0], 1, ""),
    ("contiguous", "contiguous", (2, 3, 7, 8), (6, 1, 3, 2), 1, [1, 2], [0, 3], [2, 1], 0, [0, 0], 3, ""),
    ("contiguous", "contiguous", (1, 4, 5, 6, 7), (2, 2, 2, 3, 4), 0, [3, 2, 1], [0, 1, 2], [2, 1, 3], 0,
     [0, 0, 0], 2, ""),
    ("contiguous", "contiguous", (2, 3, 5), (3, 2, 4), 1, [3], [2], [1], 1, [2], 1, ""),
    ("contiguous", "contiguous", (2, 4, 3, 5), (4, 3, 2, 3), 1, [1, 4], [2, 0], [5, 1], 1, [0, 3], 2, ""),
    ("contiguous", "contiguous", (1, 2, 3, 3), (2, 1, 2, 2), 1, [2, 3], [0, 0], [1, 1], 1, [1, 2], 2, ""),
    ("contiguous", "contiguous", (1, 4, 3, 4, 2), (4, 3, 2, 3, 4), 1, [1, 2, 3], [1, 0, 2], [2, 3, 1], 1,
     [0, 1, 2], 2, ""),
)  # fmt: skip
# Numbers of input and output channels of each group, on either side of widths of vectors.
_GROUPED: tuple[tuple[Any, ...], ...] = tuple(
    ("special", "contiguous", (2, groups * inputs, 5, 4),
     (groups * inputs, outputs, 2, 3) if transposed else (groups * outputs, inputs, 2, 3),
     1, [1, 1], [0, 1], [1, 1], transposed, [0, 0], groups, "")
    for groups, inputs, outputs in ((3, 2, 8), (2, 4, 16), (2, 8, 1), (2, 16, 2), (3, 1, 4), (2, 3, 2))
    for transposed in (0, 1)
)  # fmt: skip
# Whole vectors of channels, for which kernels have paths of their own, beside images of odd sizes.
_WHOLE: tuple[tuple[Any, ...], ...] = (
    ("special", "contiguous", (1, 8, 5, 7), (16, 8, 1, 1), 1, [1, 1], [0, 0], [1, 1], 0, [0, 0], 1, ""),
    ("special", "contiguous", (2, 16, 7, 5), (32, 16, 1, 1), 0, [2, 2], [0, 0], [1, 1], 0, [0, 0], 1, ""),
    ("special", "contiguous", (2, 16, 7, 5), (16, 16, 3, 3), 1, [1, 1], [1, 1], [1, 1], 0, [0, 0], 1, ""),
    ("special", "contiguous", (1, 32, 9, 7), (8, 32, 5, 5), 1, [2, 2], [2, 2], [1, 1], 0, [0, 0], 1, ""),
    ("special", "contiguous", (2, 32, 7, 7), (32, 1, 3, 3), 1, [1, 1], [1, 1], [1, 1], 0, [0, 0], 32, ""),
    ("special", "contiguous", (1, 16, 9, 5), (16, 1, 5, 5), 0, [2, 2], [2, 2], [1, 1], 0, [0, 0], 16, ""),
    ("special", "contiguous", (1, 16, 5, 3), (16, 8, 2, 2), 1, [2, 2], [0, 0], [1, 1], 1, [0, 0], 1, ""),
    ("special", "contiguous", (2, 16, 13), (24, 16, 3), 1, [1], [1], [1], 0, [0], 1, ""),
)  # fmt: skip
# More channels than one tile; more than 2^16 positions, channels, groups and images; more than 4096 products.
_LARGE: tuple[tuple[Any, ...], ...] = (
    ("large", "contiguous", (1, 139, 3, 4), (131, 139, 1, 2), 1, [1, 1], [0, 1], [1, 1], 0, [0, 0], 1, ""),
    ("large", "contiguous", (1, 4133, 2, 3), (3, 4133, 1, 2), 0, [1, 1], [0, 0], [1, 1], 0, [0, 0], 1, ""),
    ("large", "contiguous", (65_601, 1, 2), (2, 1, 2), 1, [1], [0], [1], 0, [0], 1, ""),
    ("large", "contiguous", (1, 1, 2, 2), (65_601, 1, 1, 2), 1, [1, 1], [0, 0], [1, 1], 0, [0, 0], 1, ""),
    ("large", "contiguous", (1, 65_601, 2), (65_601, 1, 2), 1, [1], [0], [1], 0, [0], 65_601, ""),
    ("large", "contiguous", (1, 2, 131, 127), (2, 2, 2, 2), 1, [2, 2], [0, 0], [1, 1], 1, [1, 0], 1, ""),
    ("large", "contiguous", (1, 1, 259, 257), (2, 1, 1, 2), 0, [1, 1], [0, 0], [1, 1], 0, [0, 0], 1, ""),
)


def _operands(m: Maker, kind: str, layout: str, size: Shape, weight: Shape) -> tuple[Array, Array]:
    if kind == "large":
        return whole_numbers(m, *size), whole_numbers(m, *weight)
    return m.tensor(*size, layout=layout), m.tensor(*weight)


def _forward(m: Maker) -> Iterator[Case]:
    for kind, layout, size, weight, biased, *options, model in (
        *_ROWS,
        *_GROUPED,
        *_WHOLE,
        *(_LARGE if m.dtype == "float32" else ()),
    ):
        tensor, kernel = _operands(m, kind, layout, size, weight)
        channels = weight[1] * options[5] if options[3] else weight[0]
        bias = m.tensor(channels) if biased else None
        options[3] = bool(options[3])
        yield m.case(kind, tensor, kernel, bias, *options, model=model)
    yield m.case("zero-size", m.tensor(0, 3, 5, 5), m.tensor(4, 3, 3, 3), None, [1, 1], [1, 1], [1, 1], False,
                 [0, 0], 1)  # fmt: skip


def _backward(m: Maker) -> Iterator[Case]:
    for kind, layout, size, weight, biased, *options, model in (
        *_ROWS,
        *_GROUPED,
        *_WHOLE,
        *(_LARGE if m.dtype == "float32" else ()),
    ):
        tensor, kernel = _operands(m, kind, layout, size, weight)
        options[3] = bool(options[3])
        shape = convolved(tensor, kernel, *options)
        grad = whole_numbers(m, *shape) if kind == "large" else m.tensor(*shape)
        for mask in ([True, True, bool(biased)], *([[False, False, True]] if biased else [])):
            yield m.case(kind, grad, tensor, kernel, [shape[1]] if biased else None, *options, mask,
                         model=model)  # fmt: skip


_OUT = "convolved(input, weight, stride, padding, dilation, transposed, output_padding, groups)"

_WANTED = "each if wanted else None for each, wanted"

OPERATORS: list[Operator] = [
    op("convolution", dt.FLOATS, _OUT, "input.dtype", _forward, _SUMS, magnitude=absolutely("aten::convolution"),
       empty=False, resizable=True),
    op("convolution_backward", dt.FLOATS,
       f"tuple({_WANTED} in zip((input.shape, weight.shape, (grad_output.shape[1],)), output_mask))",
       f"tuple({_WANTED} in zip((input.dtype, weight.dtype, weight.dtype), output_mask))", _backward, _GRADIENTS,
       magnitude=absolutely("aten::convolution_backward"), special=()),  # zeros around the border times NaN
]  # fmt: skip
