"""Gated activations of large language models."""

from collections.abc import Iterator
from typing import Any

from isthmus.opset.families._common import denormals, size_of
from isthmus.opset.operator import ONLY_NAN, Operator, accumulated, extension
from isthmus.opset.sampling import Array, Case, Maker

_GATED = accumulated(16, "an exponential, a quotient and two products")
_SLOPE = accumulated(32, "an exponential, a quotient and a sum that may cancel")


def _gates(m: Maker) -> Iterator[tuple[str, Array, Array | None, int]]:
    for kind, shape, layout in (
        ("contiguous", (2, 17, 35), "contiguous"),
        ("strided", (2, 5, 19), "transposed"),
        ("large", (3, 1031), "contiguous"),
        ("zero-size", (0, 7), "contiguous"),
    ):
        yield kind, m.tensor(*shape, layout=layout, low=-9), m.tensor(*shape), -1
    for kind, shape, layout, dim in (
        ("contiguous", (2, 17, 70), "contiguous", -1),
        ("contiguous", (3, 4, 19), "contiguous", 1),
        ("strided", (5, 3, 22), "heads", -1),
        ("large", (2, 2062), "contiguous", 1),
    ):
        yield kind, m.tensor(*shape, layout=layout, low=-9), None, dim
    yield "contiguous", m.tensor(4, 3, 5, 2, low=-9), None, 0
    yield "contiguous", m.tensor(3, 6, 5, 3, low=-9), None, -3
    yield "contiguous", m.tensor(3, 1, 8, 5, low=-9), None, 2
    yield "contiguous", m.tensor(10, low=-9), None, -1
    yield "contiguous", m.tensor(3, 5, 4, low=-9), m.tensor(3, 5, 4), 0  # the dimension is not used
    # Gates whose exponentials overflow, and zeros of both signs.
    high = [80.0, -80.0, 1000.0, -1000.0, 0.0, -0.0, 20_000.0, -20_000.0]
    yield "special", m.values(high), m.tensor(8), -1
    yield "special", m.values([high, high[::-1]]), None, 0
    yield "special", m.tensor(3, 7), m.tensor(3, 7, low=-3e4, high=6e4), -1  # 16-bit products overflow
    if m.dtype != "float16":
        yield "special", m.tensor(7, low=-4e5, high=5e5), m.tensor(7), -1
    yield "contiguous", m.tensor(1, 3, 1, 5), m.tensor(1, 3, 1, 5), -1
    yield "contiguous", m.tensor(3, 129), m.tensor(3, 129), 1
    if m.dtype == "float32":
        yield "large", m.tensor(2, 65_602), None, -1
        yield "large", m.tensor(65_602, 2), None, 0
        yield "large", m.tensor(65_601), m.tensor(65_601), -1


def _forward(m: Maker) -> Iterator[Case]:
    for kind, gate, up, dim in _gates(m):
        yield m.case(kind, gate, up, dim)
    yield m.case("special", m.values([32.0] * 4), denormals(m, 4), -1)  # a gate that rounds nothing


def _backward(m: Maker) -> Iterator[Case]:
    for kind, gate, up, dim in _gates(m):
        shape = list(gate.shape)
        if up is None:
            shape[dim] //= 2
        yield m.case(kind, m.tensor(*shape), gate, up, dim)
    yield m.case("special", denormals(m, 4), m.values([32.0] * 4), m.values([1.0] * 4), -1)


def _swiglu(gate: Any, up: Any, dim: int, magnitude: bool = False) -> Any:
    first, second = (gate, up) if up is not None else gate.chunk(2, dim)
    out = first * first.sigmoid() * second
    return out.abs() if magnitude else out


def _gradient(grad: Any, gate: Any, up: Any, dim: int, magnitude: bool = False) -> Any:
    import torch

    first, second = (gate, up) if up is not None else gate.chunk(2, dim)
    sigmoid = first.sigmoid()
    if magnitude:
        grad, second = grad.abs(), second.abs()
        slope = sigmoid * (1 + first.abs() * (1 - sigmoid))
        grads = [grad * second * slope, grad * first.abs() * sigmoid]
    else:
        grads = [grad * second * sigmoid * (1 + first * (1 - sigmoid)), grad * first * sigmoid]
    return (grads[0], grads[1]) if up is not None else (torch.cat(grads, dim), None)


_HALF = "at(gate.shape, dim, gate.shape[dim] // 2) if up is None else gate.shape"

OPERATORS: list[Operator] = [
    extension("swiglu(Tensor gate, Tensor? up, int dim) -> Tensor out", _HALF, "gate.dtype", _forward, _GATED,
              differentiable="gate up", reference=_swiglu, magnitude=size_of(_swiglu), special=ONLY_NAN,
              denormal=False, resizable=True),
    extension("swiglu_backward(Tensor grad, Tensor gate, Tensor? up, int dim) "
              "-> (Tensor grad_gate, Tensor? grad_up)",
              "(gate.shape, None if up is None else up.shape)", "(gate.dtype, None if up is None else up.dtype)",
              _backward, _SLOPE, reference=_gradient, magnitude=size_of(_gradient), special=ONLY_NAN, denormal=False,
              resizable=True),
]  # fmt: skip
