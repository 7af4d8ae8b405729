"""The operators of the numpy chip: a kernel is a function over NumPy arrays that returns its results.

docs/chip-makers/bring-up.md walks through
this file. What holds for all of it is in :func:`operator`: half precision comes in
as float32 and results are rounded once, when they are stored. Sums and transcendental functions use float64,
because NumPy sums pairwise only along the fastest axis and its float32 functions err by several ulp.
"""

# ruff: noqa: D102, D103 (a kernel is documented where its operator is: in the opset)

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from isthmus.opset.dtypes import ALL
from isthmus.opset.library import Context, Library, Unsupported

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Maybe: TypeAlias = Array | None
Function: TypeAlias = Callable[..., Any]

library = Library("numpy", "operators by NumPy")


# ---- How a function becomes a kernel -------------------------------------------------------------------


def wide(value: Any) -> Any:
    """Half precision as float32; lists item by item; the rest as it is."""
    if isinstance(value, list):
        return [wide(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.itemsize == 2 and value.dtype.kind in "fV":
        return value.astype(np.float32)
    return value


def store(out: Any, result: Any) -> None:
    """Write a result, or a list of them, into its output, rounding to the output's dtype."""
    if isinstance(out, list):
        for item, value in zip(out, result, strict=True):
            store(item, value)
    elif out is not None:
        out[...] = result


def operator(*names: str, inputs: int | None = None) -> Callable[[Function], Function]:
    """Register a function of the inputs that returns the results; it may ask for the context too.

    ``inputs`` is needed for functions that do not tell how many arguments they take, such as ufuncs.
    """

    def register(function: Function) -> Function:
        known = [] if inputs else [*inspect.signature(function).parameters]
        count = inputs or len(known) - ("context" in known)

        def kernel(*arguments: Any, context: Context) -> None:
            extra = {"context": context} if "context" in known else {}
            with np.errstate(all="ignore"):  # infinities and NaN are answers here
                results = function(*map(wide, arguments[:count]), **extra)
                outputs = list(arguments[count:])
                store(outputs, results if isinstance(results, tuple) else [results])

        library.operator(*names, dtypes=ALL, strided=True, in_place=True)(kernel)
        return function

    return register


def register(table: dict[str, Function], inputs: int | None = None) -> None:
    for name, function in table.items():
        operator(f"aten::{name}", inputs=inputs)(function)


def writes(*names: str) -> Callable[[Function], Function]:
    """Register a function that writes to its arguments or outputs itself."""

    def register(function: Function) -> Function:
        quiet = np.errstate(all="ignore")(function)
        library.operator(*names, dtypes=ALL, strided=True, in_place=True)(quiet)
        return function

    return register


def double(x: Any) -> Array:
    """As float64."""
    return np.asarray(x, np.float64)


def exact(x: Array) -> Array:
    """Floating point as float64; integers as they are."""
    return double(x) if x.dtype.kind == "f" else x


def like(number: Any, x: Array) -> Array:
    """A scalar in the dtype of x; integers wrap around as in C."""
    return np.asarray(number).astype(x.dtype)


# ---- Pointwise ------------------------------------------------------------------------------------------

erfc = np.vectorize(math.erfc, otypes=[np.float64])


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-double(x)))


def power(base: Any, exponent: Any) -> Any:
    base, exponent = np.asarray(base), np.asarray(exponent)
    if "f" in base.dtype.kind + exponent.dtype.kind:
        return np.power(double(base), double(exponent))
    inverse = np.where(np.abs(base) == 1, np.power(base, np.abs(exponent)), 0)  # NumPy refuses 2 ** -1
    return np.where(exponent < 0, inverse, np.power(base, np.maximum(exponent, 0)))


def divide(x: Array, y: Array, rounding_mode: str | None) -> Any:
    if rounding_mode == "floor":
        return np.floor_divide(x, y)
    if rounding_mode == "trunc" and x.dtype.kind != "f":
        return np.floor_divide(x, y) + ((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)))
    quotient = np.divide(x, y) if x.dtype.kind == "f" else double(x) / y
    return np.trunc(quotient) if rounding_mode == "trunc" else quotient


def addcmul(x: Array, a: Array, b: Array, value: Any) -> Any:
    return x + value * exact(a) * b


def addcdiv(x: Array, a: Array, b: Array, value: Any) -> Any:
    return x + value * exact(a) / b


def lerp(x: Array, end: Array, weight: Any) -> Any:
    return x + weight * (double(end) - x)


def clamp(x: Array, low: Any, high: Any) -> Array:
    x = x if low is None else np.maximum(x, np.asarray(low))
    return x if high is None else np.minimum(x, np.asarray(high))


def gelu_cdf(x: Array, approximate: str) -> Any:
    """The factor of x in gelu(x), of float64."""
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


UNARY: dict[str, Function] = {
    "abs": np.abs,
    "neg": np.negative,
    "sign": lambda x: np.subtract(x > 0, x < 0, dtype=np.int8),  # 0 for NaN
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "logical_not", "isnan", "isinf")},
    "round": np.rint,
    "bitwise_not": np.invert,
    "relu": lambda x: np.maximum(x, 0),
}
FLOATING: dict[str, Function] = {  # of one tensor, as float64
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
    **{name: getattr(np, name) for name in ("maximum", "minimum", "floor_divide")},
    **{name: getattr(np, name) for name in ("logical_and", "logical_or", "logical_xor")},
    **{f"{name}.Tensor": getattr(np, name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "mul.Tensor": np.multiply,
    "div.Tensor": lambda x, y: divide(x, y, None),
    "remainder.Tensor": np.remainder,
    "fmod.Tensor": np.fmod,
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
register({f"{name}.Scalar": f for name, f in COMPARISONS.items()}, inputs=2)
register(
    {
        "add.Tensor": lambda x, y, alpha: np.add(x, y if alpha == 1 else like(alpha, x) * y),
        "sub.Tensor": lambda x, y, alpha: np.subtract(x, y if alpha == 1 else like(alpha, x) * y),
        "div.Tensor_mode": divide,
        "pow.Tensor_Tensor": power,
        "pow.Tensor_Scalar": power,
        "pow.Scalar": power,
        "atan2": lambda x, y: np.arctan2(double(x), double(y)),
        "addcmul": addcmul,
        "addcdiv": addcdiv,
        "lerp.Tensor": lerp,
        "lerp.Scalar": lerp,
        "clamp": clamp,
        "clamp.Tensor": clamp,
        "clamp_min": lambda x, low: clamp(x, low, None),
        "clamp_max": lambda x, high: clamp(x, None, high),
        "hardtanh": clamp,
        "where.self": lambda condition, x, y: np.where(condition.astype(bool), x, y),
        "masked_fill.Scalar": lambda x, mask, value: np.where(mask.astype(bool), like(value, x), x),
        "threshold_backward": lambda grad, x, bound: np.where(x <= bound, like(0, grad), grad),
        "sigmoid_backward": lambda grad, y: grad * (1 - double(y)) * y,
        "tanh_backward": lambda grad, y: grad * (1 - double(y) * y),
        "silu_backward": lambda grad, x: grad * sigmoid(x) * (1 + x * (1 - sigmoid(x))),
        "gelu": lambda x, approximate: x * gelu_cdf(double(x), approximate),
        "gelu_backward": gelu_backward,
        "leaky_relu": lambda x, slope: np.where(x > 0, x, double(x) * slope),
        "elu": lambda x, alpha, scale, input_scale: np.where(
            x > 0, double(x) * scale, np.expm1(double(x) * input_scale) * alpha * scale
        ),
        "softplus": lambda x, beta, threshold: np.where(
            x * beta > threshold, x, np.log1p(np.exp(double(x) * beta)) / beta
        ),
    }
)


# ---- Reductions ----------------------------------------------------------------------------------------

Dims: TypeAlias = Sequence[int] | int | None


def reduce(f: Function, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    """f over dimensions of x; none given means all, and a 0-dim tensor has none, whatever is asked."""
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
    """f is argmax or argmin."""
    return np.asarray(f(x) if dim is None or x.ndim == 0 else f(x, axis=dim, keepdims=keepdim))


def var(x: Array, dim: Dims, correction: float | None, keepdim: bool = False) -> Array:
    ddof = 1 if correction is None else correction
    return reduce(functools.partial(np.var, ddof=ddof), double(x), dim, keepdim)


def vector_norm(x: Array, order: float, dim: Dims, keepdim: bool) -> Array:
    size = np.abs(double(x))
    if math.isinf(order):
        return top(size, dim, keepdim) if order > 0 else bottom(size, dim, keepdim)
    if order == 0:
        return total(size != 0, dim, keepdim)
    return np.power(total(size**order, dim, keepdim), 1 / order)


register(
    {
        "sum.dim_IntList": total,
        "mean.dim": mean,
        "prod": lambda x: reduce(np.prod, exact(x)),
        "prod.dim_int": lambda x, dim, keepdim: reduce(np.prod, exact(x), dim, keepdim),
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
        "any.dims": lambda x, dim, keepdim: reduce(np.any, x, dim, keepdim),
        "var.correction": var,
        "linalg_vector_norm": vector_norm,
        "cumsum": lambda x, dim: np.cumsum(exact(x), dim) if x.ndim else x,
    }
)


# ---- Matrix products: half precision is multiplied in float32 ------------------------------------------


@operator("aten::mm", "aten::bmm", "aten::mv", "aten::dot")
def matmul(a: Array, b: Array) -> Array:
    return np.asarray(np.matmul(a, b))


@operator("aten::addmm", "aten::baddbmm")
def addmm(x: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Any:
    product = matmul(a, b) if alpha == 1 else alpha * matmul(a, b)
    return product if beta == 0 else (x if beta == 1 else beta * x) + product  # 0 ignores NaN in x


# ---- Softmax, normalisation, losses --------------------------------------------------------------------


def log_softmax(x: Array, dim: int) -> Any:
    shifted = double(x) - top(x, dim, True)
    return shifted - np.log(total(np.exp(shifted), dim, True))


def softmax_backward(grad: Array, y: Array, dim: int) -> Any:
    return double(grad) * y - y * total(double(grad) * y, dim, True)


def log_softmax_backward(grad: Array, y: Array, dim: int) -> Any:
    return grad - np.exp(double(y)) * total(grad, dim, True)


def affine(x: Array, weight: Maybe, bias: Maybe = None) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def normalize_backward(grad: Array, normal: Array, dim: Dims) -> Any:
    """Gradient of x / rms(x), but for the factor rstd."""
    return grad - normal * mean(grad * normal, dim, True)


def split(x: Array, shape: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The leading dimensions and those of a normalized shape."""
    return tuple(range(x.ndim - len(shape))), tuple(range(x.ndim - len(shape), x.ndim))


@operator("aten::native_layer_norm")
def layer_norm(x: Array, shape: list[int], weight: Maybe, bias: Maybe, eps: float) -> tuple[Array, ...]:
    _, dim = split(x, shape)
    center, rstd = mean(x, dim, True), 1 / np.sqrt(var(x, dim, 0, True) + eps)
    return affine((x - center) * rstd, weight, bias), center, rstd


@operator("aten::native_layer_norm_backward")
def layer_norm_backward(
    grad: Array, x: Array, shape: list[int], center: Array, rstd: Array, weight: Maybe, bias: Maybe, mask: Any
) -> tuple[Array, ...]:
    rows, dim = split(x, shape)
    grad, normal = double(grad), (double(x) - center) * rstd
    scaled = affine(grad, weight)
    dx = (normalize_backward(scaled, normal, dim) - mean(scaled, dim, True)) * rstd
    return dx, np.sum(grad * normal, rows), np.sum(grad, rows)


@operator("isthmus::rms_norm")
def rms_norm(x: Array, weight: Maybe, eps: float) -> tuple[Array, ...]:
    rstd = 1 / np.sqrt(mean(np.square(double(x)), (-1,), True) + eps)
    return affine(double(x) * rstd, weight), rstd


def hidden(queries: int, keys: int, left: int | None, right: int | None, top_left: bool) -> Array:
    """Which keys a query does not see: bool [queries, keys]."""
    column = np.arange(keys)
    row = np.arange(queries)[:, None] + (0 if top_left else keys - queries)
    before = column < row - left if left is not None else np.zeros((queries, keys), bool)
    return before if right is None else before | (column > row + right)


@operator("isthmus::attention")
def attention(
    query: Array, key: Array, value: Array, bias: Maybe, mask: Maybe, alibi_slopes: Maybe, cu_seqlens_q: Maybe,
    cu_seqlens_k: Maybe, rng: Maybe, max_seqlen_q: int, max_seqlen_k: int, scale: float, left: int | None,
    right: int | None, top_left: bool, softcap: float, dropout_p: float,
) -> tuple[Array, ...]:  # fmt: skip
    if softcap or alibi_slopes is not None or cu_seqlens_q is not None or rng is not None:
        raise Unsupported
    groups = query.shape[2] // key.shape[2]
    q, k, v = (np.moveaxis(double(each), 1, 2) for each in (query, key, value))
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    scores = q @ k.swapaxes(2, 3) * scale + (0 if bias is None else bias)
    unseen = hidden(max_seqlen_q, max_seqlen_k, left, right, top_left) | (False if mask is None else mask)
    scores = np.where(unseen, -np.inf, scores)
    lse = np.logaddexp.reduce(scores, -1, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(lse), 0, lse)[..., None])
    return np.moveaxis(weights @ v, 1, 2), lse


def per_channel(value: Any, x: Array) -> Any:
    return None if value is None else double(value).reshape((-1,) + (1,) * (x.ndim - 2))


@writes("aten::native_batch_norm", "aten::_native_batch_norm_legit")
def batch_norm(
    x: Array, weight: Maybe, bias: Maybe, running_mean: Any, running_var: Any, training: bool, momentum: float,
    eps: float, out: Array, save_mean: Array, save_rstd: Array,
) -> None:  # fmt: skip
    rows, x = (0, *range(2, x.ndim)), double(x)
    center, spread = (
        (mean(x, rows), var(x, rows, 0)) if training else map(double, (running_mean, running_var))
    )
    if training and running_mean is not None:
        running_mean[...] = (1 - momentum) * double(running_mean) + momentum * center
        running_var[...] = (1 - momentum) * double(running_var) + momentum * var(x, rows, 1)
    save_mean[...], save_rstd[...] = center, 1 / np.sqrt(spread + eps)
    y = (x - per_channel(center, x)) / np.sqrt(per_channel(spread, x) + eps)
    out[...] = affine(y, per_channel(weight, x), per_channel(bias, x))


@operator("aten::native_batch_norm_backward")
def batch_norm_backward(
    grad: Array, x: Array, weight: Maybe, running_mean: Any, running_var: Any, save_mean: Any, save_rstd: Any,
    training: bool, eps: float, mask: Any,
) -> tuple[Array, ...]:  # fmt: skip
    rows, grad = (0, *range(2, x.ndim)), double(grad)
    center = save_mean if training else running_mean
    rstd = per_channel(save_rstd if training else 1 / np.sqrt(double(running_var) + eps), x)
    normal, dx = (x - per_channel(center, x)) * rstd, affine(grad, per_channel(weight, x))
    dx = normalize_backward(dx, normal, rows) - mean(dx, rows, True) if training else dx
    return dx * rstd, np.sum(grad * normal, rows), np.sum(grad, rows)


def class_weights(target: Array, weight: Maybe, ignore_index: int) -> tuple[Array, Array, Array]:
    """Of each sample: whether it counts, the class to look at (0 if it does not), its weight (0 if it does not)."""
    kept = target != ignore_index
    classes = np.where(kept, target, 0)
    return kept, classes[..., None], np.where(kept, 1.0 if weight is None else double(weight)[classes], 0)


@operator("aten::nll_loss_forward")
def nll_loss(
    log_p: Array, target: Array, weight: Maybe, reduction: int, ignore_index: int
) -> tuple[Any, ...]:
    kept, classes, scale = class_weights(target, weight, ignore_index)
    picked = np.take_along_axis(double(log_p), classes, -1)[..., 0]
    losses = np.where(kept, -picked * scale, 0)
    if reduction == 0 and target.ndim:
        return losses, 0
    return losses.sum() / (scale.sum() if reduction == 1 else 1), scale.sum()


@operator("aten::nll_loss_backward")
def nll_loss_backward(
    grad: Array, log_p: Array, target: Array, weight: Maybe, reduction: int, ignore_index: int, total_weight: Array
) -> Array:  # fmt: skip
    kept, classes, scale = class_weights(target, weight, ignore_index)
    each = np.where(kept, -grad * scale / (double(total_weight) if reduction == 1 else 1), 0)
    result = np.zeros(log_p.shape)
    np.put_along_axis(result, classes, each[..., None], -1)
    return result


def reduced(losses: Array, reduction: int) -> Array:
    return losses if reduction == 0 else mean(losses) if reduction == 1 else total(losses)


register(
    {
        "_softmax": lambda x, dim, half_to_float: np.exp(log_softmax(x, dim)),
        "_log_softmax": lambda x, dim, half_to_float: log_softmax(x, dim),
        "_softmax_backward_data": softmax_backward,
        "_log_softmax_backward_data": log_softmax_backward,
        "mse_loss": lambda x, target, reduction: reduced((double(x) - target) ** 2, reduction),
        "mse_loss_backward": lambda grad, x, target, reduction: (
            2 * grad * (double(x) - target) / (x.size if reduction == 1 else 1)
        ),
    }
)


# ---- Convolution and pooling ---------------------------------------------------------------------------


def taps(x: Any, kernel: Any, stride: Any, dilation: Any, out: Any) -> Iterator[tuple[Any, Any]]:
    """Each position of a kernel, and the view (..., *out) that it meets of a padded x (..., *space)."""
    for offset in np.ndindex(*kernel):
        spots = zip(offset, dilation, stride, out, strict=True)
        yield offset, x[(..., *(slice(o * d, o * d + (n - 1) * s + 1, s) for o, d, s, n in spots))]


def padded(x: Array, padding: Sequence[int], extra: Sequence[int], fill: float = 0) -> Array:
    around = [(p, p + e) for p, e in zip(padding, extra, strict=True)]
    return np.pad(x, [*[(0, 0)] * (x.ndim - len(around)), *around], constant_values=fill)


def grouped(x: Array, groups: int, dim: int) -> Array:
    return x.reshape(*x.shape[:dim], groups, x.shape[dim] // groups, *x.shape[dim + 1 :])


class Geometry(NamedTuple):
    """What a convolution moves over: x is (N, C, *space), w is (O, C / groups, *kernel), y is (N, O, *out)."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    def around(self, x: Array, w: Array, out: Sequence[int]) -> tuple[Any, list[tuple[Any, Any]]]:
        """x padded and split into groups, and its taps."""
        space = grouped(padded(x, self.padding, [0] * len(out)), self.groups, 1)
        return space, list(taps(space, w.shape[2:], self.stride, self.dilation, out))

    def forward(self, x: Array, w: Array) -> Array:
        sizes = zip(x.shape[2:], w.shape[2:], self.stride, self.padding, self.dilation, strict=True)
        out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes]
        y, w_g = np.zeros((len(x), self.groups, len(w) // self.groups, *out)), grouped(w, self.groups, 0)
        for k, met in self.around(x, w, out)[1]:
            y += np.einsum("ngi...,goi->ngo...", met, w_g[(..., *k)], optimize=True)
        return y.reshape(len(x), len(w), *out)

    def input_gradient(self, y: Array, w: Array, space: Sequence[int]) -> Array:
        zeros = np.zeros((len(y), w.shape[1] * self.groups, *space))
        x, met_by = self.around(zeros, w, y.shape[2:])
        y, w_g = grouped(y, self.groups, 1), grouped(w, self.groups, 0)
        for k, met in met_by:
            met[...] += np.einsum("ngo...,goi->ngi...", y, w_g[(..., *k)], optimize=True)
        inside = tuple(slice(p, p + n) for p, n in zip(self.padding, space, strict=True))
        return np.asarray(x[(..., *inside)]).reshape(zeros.shape)

    def weight_gradient(self, x: Array, y: Array, w: Array) -> Array:
        gradient = np.zeros_like(grouped(w, self.groups, 0))
        for k, met in self.around(x, w, y.shape[2:])[1]:
            gradient[(..., *k)] = np.einsum(
                "ngi...,ngo...->goi", met, grouped(y, self.groups, 1), optimize=True
            )
        return gradient.reshape(w.shape)


@operator("aten::convolution")
def convolution(
    x: Array, w: Array, bias: Maybe, stride: list[int], padding: list[int], dilation: list[int], transposed: bool,
    output_padding: list[int], groups: int,
) -> Any:  # fmt: skip
    x, w, geometry = double(x), double(w), Geometry(stride, padding, dilation, groups)
    sizes = zip(x.shape[2:], w.shape[2:], stride, padding, dilation, output_padding, strict=True)
    space = [(n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, d, extra in sizes]
    y = geometry.input_gradient(x, w, space) if transposed else geometry.forward(x, w)
    return affine(y, None, per_channel(bias, y))


@operator("aten::convolution_backward")
def convolution_backward(
    grad: Array, x: Array, w: Array, bias_sizes: Any, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int, mask: list[bool],
) -> tuple[Any, ...]:  # fmt: skip
    grad, x, w, geometry = double(grad), double(x), double(w), Geometry(stride, padding, dilation, groups)
    dx = geometry.forward(grad, w) if transposed else geometry.input_gradient(grad, w, x.shape[2:])
    dw = geometry.weight_gradient(grad, x, w) if transposed else geometry.weight_gradient(x, grad, w)
    return dx, dw, total(grad, (0, *range(2, grad.ndim)))


@writes("aten::max_pool2d_with_indices")
def max_pool(
    x: Array, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], ceil_mode: bool,
    out: Array, indices: Array,
) -> None:  # fmt: skip
    kernel, stride, padding, dilation = (
        spread(sizes) for sizes in (kernel, stride or kernel, padding, dilation)
    )
    numbers = np.arange(x.shape[-2] * x.shape[-1]).reshape(x.shape[-2:])  # what the indices say
    shape, geometry = out.shape[-2:], (kernel, stride, dilation)
    values = taps(padded(wide(x), padding, stride, -np.inf), *geometry, shape)  # ceil_mode looks further
    places = taps(padded(numbers, padding, stride, -1), *geometry, shape)
    best, found = np.full(out.shape, -np.inf), np.full(out.shape, -1)
    for (_, value), (_, number) in zip(values, places, strict=True):
        wins = (number >= 0) & ((value > best) | np.isnan(value) | (found < 0))
        best, found = np.where(wins, value, best), np.where(wins, number, found)
    out[...], indices[...] = best, found


def spread(sizes: list[int]) -> list[int]:
    """One size for both dimensions, or two."""
    return sizes * 2 if len(sizes) == 1 else sizes


@operator("aten::max_pool2d_with_indices_backward")
def max_pool_backward(
    grad: Array, x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Array
) -> Array:  # fmt: skip
    planes = math.prod(x.shape[:-2])
    result = np.zeros((planes, x.shape[-2] * x.shape[-1]))
    flat = indices.reshape(planes, -1)
    np.add.at(result, (np.arange(planes)[:, None], flat), grad.reshape(flat.shape))
    return result.reshape(x.shape)


# ---- Indexing, sorting, moving -------------------------------------------------------------------------


def at(x: Array, dim: int, index: Array) -> tuple[Any, ...]:
    """What to index x with so that ``index`` applies along ``dim``."""
    grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    if grid:
        grid[dim] = index
    return tuple(grid)


def along(x: Array, dim: int, index: Array) -> tuple[Any, ...]:
    """What to index x with so that a 1-dim ``index`` selects along ``dim``."""
    return (*[slice(None)] * (dim % max(x.ndim, 1)), index) if x.ndim else ()


def changed(x: Array, index: Any, values: Any, add: bool = False) -> Array:
    """A copy of x with values written or added at an index."""
    result = np.array(exact(x) if add else x)
    if add:
        np.add.at(result, index, values)
    else:
        result[index] = values
    return result


def part(source: Array, index: Array) -> Array:
    return source[tuple(slice(n) for n in index.shape)]


def index_of(indices: list[Maybe]) -> tuple[Any, ...]:
    return tuple(slice(None) if index is None else index for index in indices)


@operator("aten::embedding_dense_backward")
def embedding_backward(grad: Array, index: Array, rows: int, padding_idx: int, by_frequency: bool) -> Array:
    index, grad = index.reshape(-1), double(grad).reshape(index.size, grad.shape[-1])
    if by_frequency:
        grad = grad / np.bincount(index, minlength=rows)[index][:, None]
    result = changed(np.zeros((rows, grad.shape[1])), index, grad, add=True)
    if padding_idx >= 0:
        result[padding_idx] = 0
    return result


def sort(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    """Stable; NaN counts as the largest."""
    if not x.ndim:
        return x, np.zeros((), np.int64)
    if descending:  # equal elements stay in their order when the reversed array is sorted and reversed
        order = np.flip(x.shape[dim] - 1 - np.argsort(np.flip(x, dim), dim, kind="stable"), dim)
    else:
        order = np.argsort(x, dim, kind="stable")
    return np.take_along_axis(x, order, dim), order


@operator("aten::topk")
def topk(x: Array, k: int, dim: int, largest: bool, is_sorted: bool) -> tuple[Array, Array]:
    values, order = sort(x, dim, largest)
    return (values, order) if not x.ndim else (np.split(values, [k], dim)[0], np.split(order, [k], dim)[0])


@operator("aten::histc")
def histogram(x: Array, bins: int, low: float, high: float) -> Array:
    if low == high:
        low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 1.0)
    low, high = (low - 1, high + 1) if low == high else (low, high)
    return np.histogram(x, bins, (low, high))[0]


@writes("aten::copy_")
def copy(x: Array, source: Array) -> None:
    x[...] = source


@writes("aten::fill_.Scalar", "aten::fill_.Tensor")
def fill(x: Array, value: Any) -> None:
    x[...] = like(value, x)


@writes("aten::zero_")
def zero(x: Array) -> None:
    x[...] = 0


@writes("aten::arange.start_step")
def arange(start: Any, end: Any, step: Any, out: Array) -> None:
    out[...] = start + step * np.arange(out.size)


register(
    {
        "embedding": lambda weight, index, padding_idx, by_frequency, sparse: weight[index],
        "index_select": lambda x, dim, index: x[along(x, dim, index)],
        "gather": lambda x, dim, index, sparse: x[at(x, dim, index)],
        "scatter.src": lambda x, dim, index, src: changed(x, at(x, dim, index), part(src, index)),
        "scatter.value": lambda x, dim, index, value: changed(x, at(x, dim, index), like(value, x)),
        "scatter_add": lambda x, dim, index, src: changed(x, at(x, dim, index), part(src, index), True),
        "index_add": lambda x, dim, i, y, alpha: changed(x, along(x, dim, i), alpha * y, True),
        "index.Tensor": lambda x, indices: x[index_of(indices)],
        "index_put": lambda x, indices, values, add: changed(x, index_of(indices), values, add),
        "sort": sort,
        "sort.stable": lambda x, stable, dim, descending: sort(x, dim, descending),
        "cat": lambda parts, dim: np.concatenate([p for p in parts if p.shape != (0,)] or parts, dim),
        "roll": lambda x, shifts, dims: np.roll(x, shifts, dims or None),
    }
)


register({"tril": np.tril, "triu": np.triu, "flip": np.flip}, inputs=2)


# ---- Random numbers: the seed is fresh for each call and follows manual_seed() --------------------------


def draws(context: Context) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(context.seed))


@writes("aten::uniform_")
def uniform(x: Array, low: float, high: float, context: Context) -> None:
    x[...] = low + (high - low) * draws(context).random(x.shape)


@writes("aten::normal_")
def normal(x: Array, center: float, std: float, context: Context) -> None:
    x[...] = center + std * draws(context).standard_normal(x.shape)


@writes("aten::bernoulli_.float")
def bernoulli_(x: Array, p: Any, context: Context) -> None:
    x[...] = draws(context).random(x.shape) < p


@writes("aten::random_.from")
def random_from(x: Array, low: int, high: int | None, context: Context) -> None:
    x[...] = draws(context).integers(low, np.iinfo(np.int64).max if high is None else high, x.shape)


@operator("aten::bernoulli")
def bernoulli(p: Array, context: Context) -> Array:
    return draws(context).random(p.shape) < p


@operator("aten::native_dropout")
def dropout(x: Array, p: float, train: bool | None, context: Context) -> tuple[Array, Any]:
    kept = draws(context).random(x.shape) >= (p if train is not False else 0)
    return np.where(kept, x / (1 - p) if p < 1 and train is not False else x, 0), kept


@operator("aten::randperm")
def randperm(n: int, context: Context) -> Array:
    return draws(context).permutation(n)


# ---- Lists of tensors and optimizers -------------------------------------------------------------------


def each(f: Function) -> Function:
    return lambda xs: [f(x) for x in xs]


def with_one(f: Function) -> Function:
    return lambda xs, y: [f(x, y) for x in xs]


def with_each(f: Function) -> Function:
    return lambda xs, ys: [f(x, y) for x, y in zip(xs, ys, strict=True)]


def quotient(x: Array, y: Any) -> Any:
    return divide(x, np.asarray(y), None)


ARITHMETIC: dict[str, Function] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": quotient}
PAIRS: dict[str, Function] = {
    "mul": np.multiply,
    "div": quotient,
    "maximum": np.maximum,
    "minimum": np.minimum,
}

register({f"_foreach_{name}": each(UNARY[name]) for name in ("abs", "neg", "sign")})
register({f"_foreach_{name}": each(FLOATING[name]) for name in ("exp", "sqrt", "rsqrt", "reciprocal")})
register({f"_foreach_{name}.Scalar": with_one(f) for name, f in ARITHMETIC.items()})
register({f"_foreach_{name}.ScalarList": with_each(f) for name, f in ARITHMETIC.items()})
register({f"_foreach_{name}.List": with_each(f) for name, f in PAIRS.items()})
register(
    {
        "_foreach_add.List": lambda xs, ys, a: [x + like(a, x) * y for x, y in zip(xs, ys, strict=True)],
        "_foreach_sub.List": lambda xs, ys, a: [x - like(a, x) * y for x, y in zip(xs, ys, strict=True)],
        "_foreach_add.Tensor": lambda xs, y, alpha: [x + like(alpha, x) * y for x in xs],
        "_foreach_mul.Tensor": with_one(np.multiply),
        "_foreach_div.Tensor": with_one(quotient),
        "_foreach_pow.Scalar": with_one(power),
        "_foreach_norm.Scalar": lambda xs, order: [vector_norm(x, order, None, False) for x in xs],
        "_foreach_lerp.Scalar": lambda xs, ys, w: [lerp(x, y, w) for x, y in zip(xs, ys, strict=True)],
        "_foreach_lerp.List": lambda xs, ys, ws: [lerp(*xyw) for xyw in zip(xs, ys, ws, strict=True)],
        "_foreach_addcmul.Scalar": lambda xs, a, b, c: list(map(addcmul, xs, a, b, [c] * len(xs))),
        "_foreach_addcmul.ScalarList": lambda xs, a, b, c: list(map(addcmul, xs, a, b, c)),
        "_foreach_addcdiv.Scalar": lambda xs, a, b, c: list(map(addcdiv, xs, a, b, [c] * len(xs))),
        "_foreach_addcdiv.ScalarList": lambda xs, a, b, c: list(map(addcdiv, xs, a, b, c)),
    }
)


@writes("aten::_foreach_copy_")
def copy_each(xs: list[Array], sources: list[Array]) -> None:
    for x, source in zip(xs, sources, strict=True):
        x[...] = source


@writes("aten::_foreach_zero_")
def zero_each(xs: list[Array]) -> None:
    for x in xs:
        x[...] = 0


def scaled_gradient(grad: Array, scale: Maybe, maximize: bool) -> Any:
    """The gradient as float32 or wider, freed of the scale of a GradScaler, which is written back."""
    if scale is not None:
        grad[...] = wide(grad) / scale
    return -wide(grad) if maximize else wide(grad)


def fused_adam(decoupled: bool) -> Function:
    """Adam, with the weight decay of AdamW (https://arxiv.org/abs/1711.05101) if decoupled."""

    def step(
        params: list[Array], grads: list[Array], firsts: list[Array], seconds: list[Array], largest: list[Array],
        steps: list[Array], lr: Any, beta1: float, beta2: float, decay: float, eps: float, amsgrad: bool,
        maximize: bool, scale: Maybe, found_inf: Maybe,
    ) -> None:  # fmt: skip
        if found_inf is not None and found_inf:
            return
        lr = float(lr)
        for i, (param, grad, m, v) in enumerate(zip(params, grads, firsts, seconds, strict=True)):
            p, g, t = wide(param), scaled_gradient(grad, scale, maximize), float(steps[i])
            p, g = (p * (1 - lr * decay), g) if decoupled else (p, g + decay * p)
            m[...] = new_m = wide(m) + (1 - beta1) * (g - wide(m))
            v[...] = new_v = beta2 * wide(v) + (1 - beta2) * g * g
            if amsgrad:
                largest[i][...] = new_v = np.maximum(wide(largest[i]), new_v)
            denominator = np.sqrt(new_v) / math.sqrt(1 - beta2**t) + eps
            param[...] = p - lr / (1 - beta1**t) * new_m / denominator

    return step


writes("aten::_fused_adam_")(fused_adam(decoupled=False))
writes("aten::_fused_adamw_")(fused_adam(decoupled=True))


@writes("aten::_fused_sgd_")
def fused_sgd(
    params: list[Array], grads: list[Array], momenta: list[Array], decay: float, momentum: float, lr: float,
    dampening: float, nesterov: bool, maximize: bool, is_first_step: bool, scale: Maybe, found_inf: Maybe,
) -> None:  # fmt: skip
    if found_inf is not None and found_inf:
        return
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        g = scaled_gradient(grad, scale, maximize) + decay * wide(param)
        if momentum:
            momenta[i][...] = b = g if is_first_step else momentum * wide(momenta[i]) + (1 - dampening) * g
            g = g + momentum * b if nesterov else b
        param[...] = wide(param) - lr * g


@writes("aten::_amp_foreach_non_finite_check_and_unscale_")
def unscale(grads: list[Array], found_inf: Array, inverse_scale: Array) -> None:
    for grad in grads:
        if not np.isfinite(wide(grad)).all():
            found_inf[...] = 1
        grad[...] = wide(grad) * inverse_scale


@writes("aten::_amp_update_scale_")
def update_scale(
    scale: Array, tracker: Array, found_inf: Array, growth: float, backoff: float, interval: int
) -> None:
    grows = not found_inf and tracker + 1 == interval
    tracker[...] = 0 if found_inf or grows else tracker + 1
    scale[...] = scale * (backoff if found_inf else growth if grows else 1)
