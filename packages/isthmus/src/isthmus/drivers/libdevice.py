"""Functions of NumPy and the standard library under the names of CUDA's libdevice, for Triton's interpreter."""

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy

lock = threading.RLock()  # the interpreter's state is global


def _elementwise(function: Callable[..., float]) -> Callable[..., Any]:
    """A function of Python floats, for arrays."""

    def value(*args: float) -> float:
        try:
            return function(*args)
        except ValueError:  # outside of the domain
            return math.nan
        except OverflowError:
            return math.inf

    return numpy.vectorize(value, otypes=[numpy.float64])


def _to_integer(x: Any) -> Any:
    return numpy.nan_to_num(x).astype(numpy.int64)


def _to_int32(x: Any) -> Any:
    return numpy.clip(numpy.nan_to_num(x.astype(numpy.float64)), -(2**31), 2**31 - 1).astype(numpy.int32)


# Functions by CUDA's names without `__nv_` and the suffix of float32.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(numpy, name) for name in (
        "ceil copysign cos cosh exp exp2 expm1 fabs floor fmax fmin fmod hypot isinf isnan ldexp log log10 log1p "
        "log2 nextafter rint signbit sin sinh sqrt tan tanh trunc cbrt"
    ).split()},
    **{f"fast_{name}": getattr(numpy, name) for name in "cos exp log log10 log2 sin tan tanh".split()},
    **{f"a{name}": getattr(numpy, f"arc{name}") for name in "cos cosh sin sinh tan tan2 tanh".split()},
    **dict.fromkeys(("div_rn", "fast_fdivide"), numpy.divide),
    **dict.fromkeys(("exp10", "fast_exp10"), lambda x: numpy.power(10.0, x, dtype=x.dtype)),
    **dict.fromkeys(("finite", "isfinited"), numpy.isfinite),
    **dict.fromkeys(("fast_pow", "pow", "powi"), numpy.power),
    "abs": numpy.abs,
    "cospi": lambda x: numpy.cos(x * numpy.pi),
    "erf": _elementwise(math.erf),
    "erfc": _elementwise(math.erfc),
    "fdim": lambda x, y: numpy.maximum(x - y, 0),
    "float2int_rn": lambda x: _to_int32(numpy.rint(x)),
    "float2int_rz": lambda x: _to_int32(numpy.trunc(x)),
    "fma": lambda x, y, z: x * y + z,
    "isinfd": numpy.isinf,
    "isnand": numpy.isnan,
    "lgamma": _elementwise(math.lgamma),
    "llrint": lambda x: _to_integer(numpy.rint(x)),
    "nearbyint": numpy.rint,
    "rcbrt": lambda x: 1 / numpy.cbrt(x),
    "remainder": _elementwise(math.remainder),
    "round": lambda x: numpy.trunc(x) + numpy.copysign(numpy.abs(x - numpy.trunc(x)) >= 0.5, x),
    "rsqrt": lambda x: 1 / numpy.sqrt(x),
    "sinpi": lambda x: numpy.sin(x * numpy.pi),
    "sqrt_rn": numpy.sqrt,
    "tgamma": _elementwise(math.gamma),
}  # fmt: skip
