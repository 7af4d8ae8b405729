"""Gated activations of large language models."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, double, operator
from isthmus.drivers.numpy.kernels.pointwise import sigmoid


def halves(gate: Array, up: Maybe, dim: int) -> list[Any]:
    """Return the gate and what it scales; without ``up`` they are the halves of ``gate``."""
    return [double(gate), double(up)] if up is not None else np.split(double(gate), 2, dim)


@operator("isthmus::swiglu")
def swiglu(gate: Array, up: Maybe, dim: int) -> Any:
    first, second = halves(gate, up, dim)
    return first * sigmoid(first) * second


@operator("isthmus::swiglu_backward")
def swiglu_backward(grad: Array, gate: Array, up: Maybe, dim: int) -> tuple[Any, Any]:
    first, second = halves(gate, up, dim)
    s = sigmoid(first)
    grads = grad * second * s * (1 + first * (1 - s)), grad * first * s
    return (np.concatenate(grads, dim), None) if up is None else grads
