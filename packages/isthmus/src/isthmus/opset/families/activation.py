"""Activations and their derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import ANY, denormals, elementwise, points, several
from isthmus.opset.operator import (
    CHOSEN,
    EXACT,
    LIBRARY,
    MODERATE,
    ONLY_NAN,
    SCALED,
    Operator,
    Tolerance,
    accumulated,
    op,
    transcendental,
)
from isthmus.opset.sampling import Case, Maker

if TYPE_CHECKING:
    import torch

_WIDE = (-9.0, 9.0)
_LIKE = ("like(self)", "self.dtype")
_PAIR = ("broadcast(grad_output, self)", "grad_output.dtype")
_DERIVED = accumulated(16, "a product of sums; each factor is within a few roundings of its terms")
_GATED = accumulated(8, "x times a function within a few roundings")


def _times(bound: float) -> Any:
    """Magnitude of ``grad * f(x)`` whose terms stay below ``bound * (1 + |x|)``."""

    def magnitude(grad_output: torch.Tensor, self: torch.Tensor, **_: Any) -> Any:
        return bound * grad_output.abs() * (1 + self.abs())

    return magnitude


def _gelus(m: Maker) -> Iterator[Case]:
    yield from elementwise((-6, 6), special=False, approximate="none")(m)
    yield from elementwise((-6, 6), special=False, approximate="tanh")(m)
    yield from several(points(_FAR, approximate="none"), points(_FAR, approximate="tanh"))(m)


def _backward(*ranges: Any, **scalars: Any) -> Any:
    """Two tensors of one shape: a gradient, and the point of the derivative."""

    def samples(m: Maker) -> Iterator[Case]:
        for kind, layout, shape, model in (
            ("contiguous", "contiguous", (2, 17, 35), "llama"), ("strided", "transposed", (3, 19, 23), "qwen_moe"),
            ("strided", "sliced", (5, 29), "bert"), ("strided", "channels_last", (2, 7, 5, 3), "resnet"),
            ("zero-size", "contiguous", (3, 0), ""), ("0-dim", "contiguous", (), ""),
            ("large", "contiguous", (4111,), "llama"),
        ):  # fmt: skip
            tensors = [m.tensor(*shape, low=low, high=high, layout=layout) for low, high in ranges]
            yield m.case(kind, *tensors, model=model, **scalars)
        mixed = [m.tensor(6, 10, low=ranges[0][0], high=ranges[0][1], layout="transposed")]
        yield m.case(
            "strided", *mixed, *[m.tensor(6, 10, low=low, high=high) for low, high in ranges[1:]], **scalars
        )

    return samples


def _far_bounds(m: Maker) -> Iterator[Case]:
    """Bounds that float16 does not have."""
    if m.dtype != "float16":
        yield m.case("special", m.values([-7e4, 1.0, 8e4, 9e5]), min_val=-1e5, max_val=1e5)


def _denormal_gradients(output: float) -> Any:
    """Denormal gradients where the derivative is a power of two."""

    def samples(m: Maker) -> Iterator[Case]:
        yield m.case("special", denormals(m, 9), m.values([output] * 9))

    return samples


_FAR = (80.0, -80.0, 1000.0, -1000.0, 0.0, -0.0, 20_000.0, -20_000.0)  # exponentials of these overflow


_LARGE_GRADS = (60_000.0, -1e9, 3e-5, 2.0, 70_000.0)  # some beyond float16
_GRADS = (0.5, -1.5, 2.25, 1.0, -0.75, 3.0, 1.25, -2.0)


_TWO_ROUNDINGS = Tolerance(0.51, 4, "up to four roundings before the last")

OPERATORS: list[Operator] = [
    op("relu", dt.NUMBERS, *_LIKE, elementwise(ANY), CHOSEN),
    op("threshold_backward", dt.FLOATS, *_PAIR, several(
        _backward(ANY, ANY, threshold=0), points(_GRADS[:5], [0.0, -0.0, 0.5, -0.5, 1e-3], threshold=0),
        points(_GRADS[:5], [1.5, 1.25, 1.75, -1.5, 0.0], threshold=1.5),
        points(_GRADS[:5], [-0.75, -0.5, -1.0, 0.0, 3.0], threshold=-0.75),
        points(_GRADS[:4], [0.2993, 0.2998, 0.3003, 0.3008], threshold=0.3)
    ), EXACT),
    op("sigmoid", dt.FLOATS, *_LIKE, elementwise(_WIDE), transcendental(4), extreme=MODERATE),
    op("sigmoid_backward", dt.FLOATS, "like(grad_output)", "grad_output.dtype", several(
        _backward(ANY, (0.01, 0.99)), points(_LARGE_GRADS, [0.5, 0.25, 1.0, 0.0, 0.75]), _denormal_gradients(0.5)
    ), _TWO_ROUNDINGS, magnitude=lambda grad_output, output: grad_output.abs(), extreme=()),
    op("tanh", dt.FLOATS, *_LIKE, elementwise((-5, 5)), transcendental(5, LIBRARY)),
    op("tanh_backward", dt.FLOATS, "like(grad_output)", "grad_output.dtype", several(
        _backward(ANY, (-0.99, 0.99)), points(_LARGE_GRADS, [0.5, -0.25, 1.0, -1.0, 0.0]), _denormal_gradients(0)
    ), _TWO_ROUNDINGS, magnitude=lambda grad_output, output: 2 * grad_output.abs(), extreme=()),
    op("silu", dt.FLOATS, *_LIKE, several(elementwise(_WIDE, special=False), points(_FAR)), transcendental(4),
       extreme=MODERATE),
    op("silu_backward", dt.FLOATS, *_PAIR, several(_backward(ANY, _WIDE), points(_GRADS, _FAR)), _DERIVED,
       magnitude=_times(1)),
    op("gelu", dt.FLOATS, *_LIKE, _gelus, _GATED, magnitude=lambda self, approximate: self.abs(), special=ONLY_NAN),
    op("gelu_backward", dt.FLOATS, "like(grad_output)", "grad_output.dtype",
       several(_backward(ANY, (-6, 6), approximate="none"), _backward(ANY, (-6, 6), approximate="tanh"),
               points(_GRADS, _FAR, approximate="none"), points(_GRADS, _FAR, approximate="tanh")),
       _DERIVED, magnitude=_times(1)),
    op("hardtanh", dt.FLOATS, *_LIKE, several(
        elementwise(ANY, min_val=-0.5, max_val=1.25), points([0.25, 0.75, 0.5, -3.0, 3.0], min_val=0.5, max_val=0.75),
        points([-2.0, -1.5, -1.25, 0.0, 1.0], min_val=-1.5, max_val=-1.25),
        points([-2.0, 1.0, 3.0], min_val=1.0, max_val=1.0), _far_bounds
    )),
    op("leaky_relu", dt.FLOATS, *_LIKE, several(
        elementwise(ANY, negative_slope=0.07), points([-3.0, -0.5, 0.0, -0.0, 2.0], negative_slope=-0.3),
        points([-3.0, -0.5, 0.25, 2.0], negative_slope=1.5), points([-3.0, -0.5, 2.0], negative_slope=0)
    ), SCALED),
    op("elu", dt.FLOATS, *_LIKE, several(
        elementwise((-5, 3), alpha=1.5), elementwise((-5, 3), special=False, alpha=0.7, scale=1.05, input_scale=0.9),
        points([-80.0, -1000.0, -1e-3, 1e-3, 0.0, -0.0, 1000.0], alpha=0.7, scale=1.5),
        points([-4.0, -0.5, 0.75, 2.0], alpha=1.25, scale=0.5, input_scale=2.5),
        points([-4.0, -0.5, 0.75, 2.0], alpha=0.75, scale=-1.5, input_scale=-0.5)
    ), transcendental(4)),
    op("softplus", dt.FLOATS, *_LIKE, several(
        elementwise((-9, 25)), elementwise((-9, 25), special=False, beta=0.5, threshold=4.0),
        points([-80.0, -12.0, 0.0, -0.0, 19.5, 20.0, 20.5, 1000.0], beta=1, threshold=20),
        points([-6.0, -0.5, 0.25, 0.5, 0.75, 2.0, 1000.0], beta=4, threshold=2),
        points([-2.0, 0.5, 3.0], beta=0.25, threshold=-1),
        points([-1.0, 2.0, 2.25, 2.3, 2.75], beta=1.01, threshold=2.5),
        points([2.297, 2.298, 2.299, 2.301], beta=1, threshold=2.3)
    ), transcendental(4)),
]  # fmt: skip
