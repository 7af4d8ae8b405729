"""Kernels with the mistakes of the public reports in :mod:`.reports`, derived from the correct kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from tools.mutation.classes.accumulation import toward_zero
from tools.mutation.kernel import Array, Call, Invocation
from tools.mutation.mutant import Wrong, is_float


def computed(function: Callable[..., Any]) -> Callable[[], Wrong]:
    """Make a kernel that writes a function of the inputs to the first output."""

    def wrong(right: Call, call: Invocation) -> None:
        with np.errstate(all="ignore"):
            call.outputs[0][...] = function(*call.inputs)

    return lambda: wrong


def after(change: Callable[[Invocation], None]) -> Callable[[], Wrong]:
    """Make a kernel that changes the correct results."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        with np.errstate(all="ignore"):
            change(call)

    return lambda: wrong


def before(change: Callable[[Invocation], Invocation]) -> Callable[[], Wrong]:
    """Make a kernel that computes on changed inputs."""
    return lambda: lambda right, call: right(change(call))


def wide(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) and is_float(x) else x


def as_contiguous(x: Array) -> Array:
    """Read the tensor's memory contiguously from its first element."""
    if x.size == 0:
        return x
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) // x.itemsize
    return np.resize(np.lib.stride_tricks.as_strided(x, (span,), (x.itemsize,)), x.shape)


def beta_zero(x: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Array:
    return beta * wide(x) + alpha * np.matmul(wide(a), wide(b))


def prior_content(right: Call, call: Invocation) -> None:
    out = np.array(call.outputs[0])
    right(call)
    if is_float(out) and call.inputs[3] == 0:
        call.outputs[0][...] = 0 * out + call.outputs[0]


def put_without_adding(right: Call, call: Invocation) -> None:
    x, indices, values, accumulate = call.inputs
    if not accumulate:
        return right(call)
    result = np.array(x)
    index = tuple(slice(None) if i is None else i for i in indices)
    result[index] = result[index] + values  # the last of equal indices wins
    call.outputs[0][...] = result
    return None


def uniform_where_masked(call: Invocation) -> None:
    x, dim = call.inputs[:2]
    if x.ndim and x.size:
        masked = (np.asarray(wide(x)) == -np.inf).all(axis=dim, keepdims=True)
        out = call.outputs[0]
        out[...] = np.where(masked, np.ones((), out.dtype) / out.dtype.type(x.shape[dim]), out)


def without_nan(function: Any) -> Callable[..., Any]:
    return lambda x, y: function(wide(x), wide(y)) if is_float(x) or is_float(y) else function(x, y)


def clamp(x: Array, low: Any, high: Any) -> Any:
    x = x if low is None else np.fmax(wide(x), low)
    return x if high is None else np.fmin(x, high)


def reduced_without_nan(function: Any, x: Array, dim: Any = None, keepdim: bool = False) -> Any:
    axes = None if dim is None or dim == [] else tuple(dim) if isinstance(dim, list) else dim
    return function(wide(x), axis=axes, keepdims=keepdim) if x.ndim else x


def padding_row_kept(call: Invocation) -> Invocation:
    return call.with_input(3, -1)


def stored_truncated(right: Call, call: Invocation) -> None:
    out = call.outputs[0]
    if dt.name_of(out.dtype) != "bfloat16":
        return right(call)
    exact = np.zeros(out.shape)
    right(Invocation(call.schema, call.inputs, [exact], call.context))
    out[...] = toward_zero(exact, "bfloat16")
    return None


def truncating_division(x: Array, y: Array) -> Any:
    if is_float(x):
        return np.trunc(wide(x) / wide(y))
    safe = np.where(y == 0, 1, y)
    return np.where(y == 0, 0, np.sign(x).astype(np.int64) * np.sign(safe) * (np.abs(x) // np.abs(safe)))


def floor_of_quotient(right: Call, call: Invocation) -> None:
    x, y, mode = call.inputs
    if mode != "floor" or not is_float(call.outputs[0]):
        return right(call)
    with np.errstate(all="ignore"):
        call.outputs[0][...] = np.floor(wide(x) / wide(y))
    return None


def decoupled(right: Call, call: Invocation) -> None:
    """Adam with decoupled weight decay, as in AdamW."""
    names = [a.name for a in call.schema.inputs]
    decay, lr = (float(call.inputs[names.index(name)]) for name in ("weight_decay", "lr"))
    for param in call.inputs[0]:
        param[...] = wide(param) * (1 - lr * decay)
    right(call.with_input(names.index("weight_decay"), 0.0))


def mean_by_count(call: Invocation) -> None:
    _, target, weight, reduction, ignore = call.inputs
    if reduction == 1 and weight is not None and target.size:
        loss, total = call.outputs
        loss[...] = wide(loss) * wide(total) / max(int((target != ignore).sum()), 1)


def ignored_are_counted(call: Invocation) -> None:
    _, target, weight, reduction, _ = call.inputs
    if reduction == 1 and weight is None and target.size:
        loss, total = call.outputs
        loss[...] = wide(loss) * wide(total) / target.size


def last_of_equal(x: Array, dim: int | None, keepdim: bool) -> Any:
    if x.ndim == 0 or x.size == 0:
        return 0
    if dim is None:
        return x.size - 1 - np.argmax(x.reshape(-1)[::-1])
    found = x.shape[dim] - 1 - np.argmax(np.flip(x, dim), axis=dim)
    return np.expand_dims(found, dim) if keepdim else found


def variance_in_one_pass(right: Call, call: Invocation) -> None:
    x, shape, weight, bias, eps = call.inputs
    if x.dtype == np.float64 or x.size == 0:
        return right(call)
    axes, narrow = tuple(range(x.ndim - len(shape), x.ndim)), x.astype(np.float32)
    mean = narrow.mean(axes, keepdims=True, dtype=np.float32)
    variance = (narrow * narrow).mean(axes, keepdims=True, dtype=np.float32) - mean * mean
    rstd = 1 / np.sqrt(np.maximum(variance, np.float32(0)) + np.float32(eps))
    y = (narrow - mean) * rstd
    y = y if weight is None else y * weight
    results = (y if bias is None else y + bias, mean, rstd)
    for out, result in zip(call.outputs, results, strict=True):
        out[...] = result
    return None


def biased_running_variance(right: Call, call: Invocation) -> None:
    x, _, _, _, running, training, momentum = call.inputs[:7]
    old = None if running is None else np.array(running)
    right(call)
    if old is not None and training and x.size:
        variance = wide(x).var((0, *range(2, x.ndim)))
        running[...] = (1 - momentum) * wide(old) + momentum * variance


def padded_with_zero(call: Invocation) -> None:
    """Pool windows that reach beyond the border as if padded with 0."""
    if not any(call.inputs[3]):
        return
    out = call.outputs[0]
    edge = np.zeros(out.shape, np.bool_)
    edge[..., 0, :] = edge[..., :, 0] = True
    out[...] = np.where(edge & (wide(out) < 0), np.zeros((), out.dtype), out)


def negative_nan_first(right: Call, call: Invocation) -> None:
    """Sort by the sign first: a NaN with the sign bit set is the smallest."""
    x = call.inputs[0]
    if not x.ndim or not is_float(x):
        return right(call)
    names = [a.name for a in call.schema.inputs]
    dim, descending = (call.inputs[names.index(n)] for n in ("dim", "descending"))
    key = np.where(np.isnan(x) & np.signbit(x), -np.inf, np.where(np.isnan(x), np.inf, wide(x)))
    order = np.argsort(-key if descending else key, axis=dim, kind="stable")
    call.outputs[0][...], call.outputs[1][...] = np.take_along_axis(x, order, dim), order
    return None


def empty_index_returns_early(right: Call, call: Invocation) -> None:
    names = [a.name for a in call.schema.inputs]
    if call.inputs[names.index("index")].size:
        right(call)


def constant_seed(right: Call, call: Invocation) -> None:
    call.context.seed = 0
    right(call)


def last_tap_of_groups(call: Invocation) -> None:
    names = [a.name for a in call.schema.inputs]
    groups, stride = (call.inputs[names.index(n)] for n in ("groups", "stride"))
    gradient = call.outputs[1]
    if gradient is not None and groups > 1 and max(stride) > 1 and gradient.shape[-1] > 1:
        gradient[..., -1, :] = gradient[..., 0, :]


def gelu_with_cancellation(right: Call, call: Invocation) -> None:
    x, approximate = call.inputs
    if approximate != "tanh" or x.dtype == np.float64:
        return right(call)
    narrow = x.astype(np.float32)
    inner = np.float32(math.sqrt(2 / math.pi)) * (narrow + np.float32(0.044715) * narrow**3)
    call.outputs[0][...] = np.float32(0.5) * narrow * (1 + np.tanh(inner))
    return None


def norm_in_half(right: Call, call: Invocation) -> None:
    right(call)
    tensors = call.inputs[0] if isinstance(call.inputs[0], list) else [call.inputs[0]]
    outputs = call.outputs[0] if isinstance(call.outputs[0], list) else [call.outputs[0]]
    for x, out in zip(tensors, outputs, strict=True):
        if x.dtype == np.float16 and out.size == 1 and call.inputs[1] == 2:
            out[...] = np.sqrt(np.sum(np.square(np.array(x)), dtype=np.float16))


def summed_in_half(right: Call, call: Invocation) -> None:
    x, dim = call.inputs[:2]
    if x.dtype != np.float16 or not x.ndim:
        return right(call)
    with np.errstate(over="ignore"):
        call.outputs[0][...] = np.cumsum(x, dim, dtype=np.float16)
    return None


def index_as_contiguous(call: Invocation) -> Invocation:
    names = [a.name for a in call.schema.inputs]
    index = names.index("index")
    return call.with_input(index, as_contiguous(call.inputs[index]))


def never_tanh(call: Invocation) -> Invocation:
    return call.with_input(len(call.inputs) - 1, "none")


def sum_in_float64(right: Call, call: Invocation) -> None:
    x, dim, keepdim = call.inputs
    if x.dtype != np.int64 or not x.ndim:
        return right(call)
    axes = tuple(dim) if dim else None
    call.outputs[0][...] = np.sum(x.astype(np.float64), axis=axes, keepdims=keepdim).astype(np.int64)
    return None


def variance_cancels(right: Call, call: Invocation) -> None:
    """Compute batch statistics as E[x^2] - E[x]^2 in float32."""
    x, training = call.inputs[0], call.inputs[5]
    right(call)
    if training and x.size and x.dtype != np.float64:
        rows, narrow = (0, *range(2, x.ndim)), x.astype(np.float32)
        mean = narrow.mean(rows, dtype=np.float32)
        variance = (narrow * narrow).mean(rows, dtype=np.float32) - mean * mean
        call.outputs[2][...] = 1 / np.sqrt(np.maximum(variance, 0) + call.inputs[7])
