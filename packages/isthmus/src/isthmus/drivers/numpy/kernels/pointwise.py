"""Pointwise operators."""

# ruff: noqa: D103, PLR0124 (a kernel is documented where its operator is: in the opset; NaN differs from itself)

import math
from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import (
    Array,
    Function,
    double,
    exact,
    fitting,
    like,
    number,
    register,
)

erfc = np.vectorize(math.erfc, otypes=[np.float64])


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-double(x)))


def power(base: Any, exponent: Any) -> Any:
    base, exponent = np.asarray(base), np.asarray(exponent)
    if "f" in base.dtype.kind + exponent.dtype.kind:
        return np.power(double(base), double(exponent))
    inverse = np.where(np.abs(base) == 1, np.power(base, exponent & 1), 0)  # NumPy rejects 2 ** -1
    return np.where(exponent < 0, inverse, np.power(base, np.maximum(exponent, 0)))


def divide(x: Array, y: Array, rounding_mode: str | None) -> Any:
    if rounding_mode == "floor":
        return np.floor_divide(x, y)
    if rounding_mode == "trunc" and x.dtype.kind != "f":
        return np.floor_divide(x, y) + ((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)))
    quotient = np.divide(x, y) if x.dtype.kind == "f" else double(x) / y
    return np.trunc(quotient) if rounding_mode == "trunc" else quotient


def remainder(x: Array, y: Any) -> Any:
    """Return the remainder, of the sign of y; a zero has that of x, as on the CPU."""
    if x.dtype.kind != "f":
        return np.remainder(x, y)
    left = np.fmod(x, y)
    return np.where((left != 0) & ((left < 0) != (y < 0)), left + y, left)


def addcmul(x: Array, a: Array, b: Array, value: Any) -> Any:
    return x + value * exact(a) * b


def addcdiv(x: Array, a: Array, b: Array, value: Any) -> Any:
    return x + value * exact(a) / b


def lerp(x: Array, end: Array, weight: Any) -> Any:
    end = double(end)
    return np.where(np.abs(weight) < 0.5, x + weight * (end - x), end - (end - x) * (1 - weight))


def maximum(x: Array, y: Any) -> Array:
    """The first of two equal numbers, so that a clamp keeps the sign of a zero; NaN if either is."""
    return np.where((y > x) | (y != y), y, x)


def minimum(x: Array, y: Any) -> Array:
    return np.where((y < x) | (y != y), y, x)


def clamp(x: Array, low: Any, high: Any) -> Array:
    x = x if low is None else maximum(x, low if isinstance(low, np.ndarray) else fitting(low, x))
    return x if high is None else minimum(x, high if isinstance(high, np.ndarray) else fitting(high, x))


def gelu_cdf(x: Array, approximate: str) -> Any:
    """Return gelu(x) / x in float64."""
    if approximate == "tanh":
        return 1 / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * erfc(-x / math.sqrt(2))


def gelu_backward(grad: Array, x: Array, approximate: str) -> Any:
    x = double(x)
    cdf = gelu_cdf(x, approximate)
    if approximate == "tanh":
        slope = 2 * cdf * (1 - cdf) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    else:
        slope = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return grad * (cdf + x * slope)


def left_shift(x: Array, by: Any) -> Array:
    """0 beyond the bits."""
    return np.where((by < 0) | (by >= 8 * x.itemsize), like(0, x), np.left_shift(x, by, dtype=x.dtype))


def right_shift(x: Array, by: Any) -> Array:
    """The sign beyond the bits."""
    last = 8 * x.itemsize - (x.dtype.kind == "i")
    return np.right_shift(x, np.where((by < 0) | (by > last), last, by).astype(x.dtype))


UNARY: dict[str, Function] = {
    "abs": np.abs,
    "neg": np.negative,
    "sign": lambda x: np.subtract(x > 0, x < 0, dtype=np.int8),  # 0 for NaN
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "logical_not", "isnan", "isinf")},
    "round": lambda x: np.rint(x) if x.dtype.kind == "f" else x,
    "bitwise_not": np.invert,
    "relu": lambda x: np.where(x < 0, like(0, x), x),
    "frac": lambda x: x - np.trunc(x),
}
FLOATING: dict[str, Function] = {  # functions of one tensor, as float64
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{"a" + name: getattr(np, "arc" + name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}
BINARY: dict[str, Function] = {
    "maximum": maximum,
    "minimum": minimum,
    "floor_divide": np.floor_divide,
    **{name: getattr(np, name) for name in ("logical_and", "logical_or", "logical_xor")},
    **{f"{name}.Tensor": getattr(np, name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "bitwise_left_shift.Tensor": left_shift,
    "bitwise_right_shift.Tensor": right_shift,
    "mul.Tensor": np.multiply,
    "div.Tensor": lambda x, y: divide(x, y, None),
    "remainder.Tensor": remainder,
    "fmod.Tensor": np.fmod,
}
WITH_NUMBER: dict[str, Function] = {
    "fmod": np.fmod,
    "remainder": remainder,
    **{f"bitwise_{name}": getattr(np, f"bitwise_{name}") for name in ("and", "or", "xor")},
}
COMPARISONS: dict[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


register(UNARY, inputs=1)
register({name: lambda x, f=f: f(double(x)) for name, f in FLOATING.items()}, inputs=1)
register(BINARY, inputs=2)
register({f"{name}.Tensor": f for name, f in COMPARISONS.items()}, inputs=2)
register({f"{name}.Scalar": f for name, f in COMPARISONS.items()}, inputs=2, numbers="rounded")
register(
    {f"{name}.Scalar": lambda x, y, f=f: f(exact(x), number(y, x)) for name, f in WITH_NUMBER.items()},
    inputs=2,
    numbers="rounded",
)
register(
    {
        "add.Scalar": lambda x, y, alpha: exact(x) + number(alpha, x) * number(y, x),
        "sub.Scalar": lambda x, y, alpha: exact(x) - number(alpha, x) * number(y, x),
        "rsub.Scalar": lambda x, y, alpha: number(y, x) - number(alpha, x) * exact(x),
        "add.Tensor": lambda x, y, alpha: np.add(x, y if alpha == 1 else number(alpha, x) * exact(y)),
        "sub.Tensor": lambda x, y, alpha: np.subtract(x, y if alpha == 1 else number(alpha, x) * exact(y)),
    },
    numbers="rounded",
)
register(
    {
        "mul.Scalar": lambda x, y: np.multiply(x, like(y, x)),
        "div.Scalar": lambda x, y: divide(x, like(y, x), None),
        "div.Scalar_mode": lambda x, y, rounding_mode: divide(x, like(y, x), rounding_mode),
        "addcmul": addcmul,
        "addcdiv": addcdiv,
        "threshold_backward": lambda grad, x, bound: np.where(x <= bound, like(0, grad), grad),
        "leaky_relu": lambda x, slope: np.where(x > 0, x, double(x) * slope),
        "elu": lambda x, alpha, scale, input_scale: np.where(
            x > 0, double(x) * scale, np.expm1(double(x) * input_scale) * alpha * scale
        ),
        "softplus": lambda x, beta, threshold: np.where(
            x * beta > threshold, x, np.log1p(np.exp(double(x) * beta)) / beta
        ),
    },
    numbers="wide",
)
register(
    {
        "div.Tensor_mode": divide,
        "pow.Tensor_Tensor": power,
        "pow.Tensor_Scalar": power,
        "pow.Scalar": power,
        "lerp.Scalar": lerp,
        "atan2": lambda x, y: np.arctan2(double(x), double(y)),
        "lerp.Tensor": lerp,
        "clamp": clamp,
        "clamp.Tensor": clamp,
        "clamp_min": lambda x, low: clamp(x, low, None),
        "clamp_max": lambda x, high: clamp(x, None, high),
        "hardtanh": clamp,
        "where.self": lambda condition, x, y: np.where(condition.astype(bool), x, y),
        "sigmoid_backward": lambda grad, y: grad * (1 - double(y)) * y,
        "tanh_backward": lambda grad, y: grad * (1 - double(y) * y),
        "silu_backward": lambda grad, x: grad * sigmoid(x) * (1 + x * (1 - sigmoid(x))),
        "gelu": lambda x, approximate: x * gelu_cdf(double(x), approximate),
        "gelu_backward": gelu_backward,
    }
)
