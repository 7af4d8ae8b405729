"""Reductions and matrix products; half precision is multiplied in float32."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

import functools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Function, double, exact, like, operator, register

Dims: TypeAlias = Sequence[int] | int | None


def reduce(f: Function, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    """Reduce x over dimensions with f; None means all. The dimensions of a 0-dim tensor are ignored."""
    every = tuple(range(x.ndim))
    axes = every if dim is None or dim == [] or x.ndim == 0 else dim if isinstance(dim, int) else tuple(dim)
    return np.asarray(f(x, axis=axes, keepdims=keepdim))


def total(x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    return reduce(np.sum, exact(x), dim, keepdim)


def mean(x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    return reduce(np.mean, double(x), dim, keepdim)


def top(x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    return reduce(np.amax, x, dim, keepdim)


def bottom(x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    return reduce(np.amin, x, dim, keepdim)


def position(f: Function, x: Array, dim: int | None, keepdim: bool) -> Array:
    """Return the index of an extremum; f is argmax or argmin."""
    return np.asarray(f(x) if dim is None or x.ndim == 0 else f(x, axis=dim, keepdims=keepdim))


def var(x: Array, dim: Dims, correction: float | None, keepdim: bool = False) -> Array:
    ddof = 1 if correction is None else correction
    result = reduce(functools.partial(np.var, ddof=ddof), double(x), dim, keepdim)
    # NaN for an empty tensor, whatever the correction.
    return result if x.size else np.full_like(result, np.nan)


def vector_norm(x: Array, order: float, dim: Dims, keepdim: bool) -> Array:
    size = np.abs(double(x))
    if math.isinf(order):
        return top(size, dim, keepdim) if order > 0 else bottom(size, dim, keepdim)
    if order == 0:
        return total(size != 0, dim, keepdim)
    return np.power(total(size**order, dim, keepdim), 1 / order)


register({"sum": total, "mean": mean}, inputs=1, cast=True)
register(
    {
        "sum.dim_IntList": total,
        "mean.dim": mean,
        "prod": lambda x: reduce(np.prod, exact(x)),
        "prod.dim_int": lambda x, dim, keepdim: reduce(np.prod, exact(x), dim, keepdim),
        "cumsum": lambda x, dim: np.cumsum(exact(x), dim) if x.ndim else x,
    },
    cast=True,
)
register(
    {
        "amax": top,
        "amin": bottom,
        "max": lambda x: reduce(np.amax, x),
        "min": lambda x: reduce(np.amin, x),
        "max.dim": lambda x, d, keep: (top(x, d, keep), position(np.argmax, x, d, keep)),
        "min.dim": lambda x, d, keep: (bottom(x, d, keep), position(np.argmin, x, d, keep)),
        "argmax": lambda x, dim, keepdim: position(np.argmax, x, dim, keepdim),
        "argmin": lambda x, dim, keepdim: position(np.argmin, x, dim, keepdim),
        "any": lambda x: reduce(np.any, x),
        "all": lambda x: reduce(np.all, x),
        "any.dim": lambda x, dim, keepdim: reduce(np.any, x, dim, keepdim),
        "any.dims": lambda x, dim, keepdim: x != 0 if dim == [] else reduce(np.any, x, dim, keepdim),
        "var.correction": var,
        "linalg_vector_norm": vector_norm,
    }
)


@operator("aten::mm", "aten::bmm", "aten::mv", "aten::dot")
def matmul(a: Array, b: Array) -> Array:
    return np.asarray(np.matmul(a, b))


@operator("aten::addmm", "aten::baddbmm")
def addmm(x: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Any:
    beta, alpha = (n if x.dtype.kind == "f" else like(n, x) for n in (beta, alpha))
    if alpha == 0:  # ignores NaN in the product, as beta does in x
        product = np.zeros((*a.shape[:-1], b.shape[-1]), x.dtype)
    else:
        product = matmul(a, b) if alpha == 1 else alpha * matmul(a, b)
    return product if beta == 0 else (x if beta == 1 else beta * x) + product
