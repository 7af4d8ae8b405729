"""Mistakes that were made in public. Each is a kernel with the mistake of a report, which the text names.

The list was fixed before the suite was tried on it, and is not to be tuned to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from isthmus.conformance.mutation.kernel import Array, Call, Invocation, Target
from isthmus.conformance.mutation.mutant import Mutant, Wrong
from isthmus.conformance.mutation.results import toward_zero
from isthmus.opset import dtypes as dt
from isthmus.opset.library import HOST

MUTATION = "reported in public"


class Report(NamedTuple):
    """A mistake: operators that are given it, the report (repository and number), what was wrong, the kernel."""

    operators: tuple[str, ...]
    source: str
    text: str
    wrong: Callable[[], Wrong]
    without: int = 0


def mutants(target: Target) -> Iterator[Mutant]:
    """The reports about an operator, as mutants of its kernel."""
    for report in REPORTS:
        if target.name in report.operators:
            yield Mutant(
                target.name, MUTATION, f"{report.source}: {report.text}", report.wrong, report.without
            )


def _computed(function: Callable[..., Any]) -> Callable[[], Wrong]:
    """A kernel that puts what a function of the inputs gives into the first output."""

    def wrong(right: Call, call: Invocation) -> None:
        with np.errstate(all="ignore"):
            call.outputs[0][...] = function(*call.inputs)

    return lambda: wrong


def _after(change: Callable[[Invocation], None]) -> Callable[[], Wrong]:
    """The right kernel, and a change of what it wrote."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        with np.errstate(all="ignore"):
            change(call)

    return lambda: wrong


def _before(change: Callable[[Invocation], Invocation]) -> Callable[[], Wrong]:
    """The right kernel, on a change of what it was given."""
    return lambda: lambda right, call: right(change(call))


def _wide(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) and _is_float(x) else x


def _is_float(x: Array) -> bool:
    return dt.DTYPES[dt.name_of(x.dtype)].kind == "float"


def _as_contiguous(x: Array) -> Array:
    """What lies in memory from the first element on, as far as the tensor reaches."""
    if x.size == 0:
        return x
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) // x.itemsize
    return np.resize(np.lib.stride_tricks.as_strided(x, (span,), (x.itemsize,)), x.shape)


def _beta_zero(x: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Array:
    return beta * _wide(x) + alpha * np.matmul(_wide(a), _wide(b))


def _prior_content(right: Call, call: Invocation) -> None:
    out = np.array(call.outputs[0])
    right(call)
    if _is_float(out) and call.inputs[3] == 0:
        call.outputs[0][...] = 0 * out + call.outputs[0]


def _put_without_adding(right: Call, call: Invocation) -> None:
    x, indices, values, accumulate = call.inputs
    if not accumulate:
        return right(call)
    result = np.array(x)
    index = tuple(slice(None) if i is None else i for i in indices)
    result[index] = result[index] + values  # the last of equal indices wins
    call.outputs[0][...] = result
    return None


def _uniform_where_masked(call: Invocation) -> None:
    x, dim = call.inputs[:2]
    if x.ndim and x.size:
        masked = (np.asarray(_wide(x)) == -np.inf).all(axis=dim, keepdims=True)
        out = call.outputs[0]
        out[...] = np.where(masked, np.ones((), out.dtype) / out.dtype.type(x.shape[dim]), out)


def _without_nan(function: Any) -> Callable[..., Any]:
    return lambda x, y: function(_wide(x), _wide(y)) if _is_float(x) or _is_float(y) else function(x, y)


def _clamp(x: Array, low: Any, high: Any) -> Any:
    x = x if low is None else np.fmax(_wide(x), low)
    return x if high is None else np.fmin(x, high)


def _reduced_without_nan(function: Any, x: Array, dim: Any = None, keepdim: bool = False) -> Any:
    axes = None if dim is None or dim == [] else tuple(dim) if isinstance(dim, list) else dim
    return function(_wide(x), axis=axes, keepdims=keepdim) if x.ndim else x


def _padding_row_kept(call: Invocation) -> Invocation:
    return call.with_input(3, -1)


def _stored_truncated(right: Call, call: Invocation) -> None:
    out = call.outputs[0]
    if dt.name_of(out.dtype) != "bfloat16":
        return right(call)
    exact = np.zeros(out.shape)
    right(Invocation(call.schema, call.inputs, [exact], call.context))
    out[...] = toward_zero(exact, "bfloat16")
    return None


def _truncating_division(x: Array, y: Array) -> Any:
    if _is_float(x):
        return np.trunc(_wide(x) / _wide(y))
    safe = np.where(y == 0, 1, y)
    return np.where(y == 0, 0, np.sign(x).astype(np.int64) * np.sign(safe) * (np.abs(x) // np.abs(safe)))


def _floor_of_quotient(right: Call, call: Invocation) -> None:
    x, y, mode = call.inputs
    if mode != "floor" or not _is_float(call.outputs[0]):
        return right(call)
    with np.errstate(all="ignore"):
        call.outputs[0][...] = np.floor(_wide(x) / _wide(y))
    return None


def _decoupled(right: Call, call: Invocation) -> None:
    """Adam whose weight decay acts on the parameters."""
    names = [a.name for a in call.schema.inputs]
    decay, lr = (float(call.inputs[names.index(name)]) for name in ("weight_decay", "lr"))
    for param in call.inputs[0]:
        param[...] = _wide(param) * (1 - lr * decay)
    right(call.with_input(names.index("weight_decay"), 0.0))


def _mean_by_count(call: Invocation) -> None:
    x, target, weight, reduction, ignore = call.inputs
    if reduction == 1 and weight is not None and target.size:
        loss, total = call.outputs
        loss[...] = _wide(loss) * _wide(total) / max(int((target != ignore).sum()), 1)


def _ignored_are_counted(call: Invocation) -> None:
    _, target, weight, reduction, ignore = call.inputs
    if reduction == 1 and weight is None and target.size:
        loss, total = call.outputs
        loss[...] = _wide(loss) * _wide(total) / target.size


def _last_of_equal(x: Array, dim: int | None, keepdim: bool) -> Any:
    if x.ndim == 0 or x.size == 0:
        return 0
    if dim is None:
        return x.size - 1 - np.argmax(x.reshape(-1)[::-1])
    found = x.shape[dim] - 1 - np.argmax(np.flip(x, dim), axis=dim)
    return np.expand_dims(found, dim) if keepdim else found


def _variance_in_one_pass(right: Call, call: Invocation) -> None:
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


def _biased_running_variance(right: Call, call: Invocation) -> None:
    x, _, _, _, running, training, momentum = call.inputs[:7]
    old = None if running is None else np.array(running)
    right(call)
    if old is not None and training and x.size:
        variance = _wide(x).var((0, *range(2, x.ndim)))
        running[...] = (1 - momentum) * _wide(old) + momentum * variance


def _padded_with_zero(call: Invocation) -> None:
    """Windows that reach beyond the border have at least 0."""
    x, kernel, stride, padding = call.inputs[:4]
    if not any(padding):
        return
    out = call.outputs[0]
    edge = np.zeros(out.shape, np.bool_)
    edge[..., 0, :] = edge[..., :, 0] = True
    out[...] = np.where(edge & (_wide(out) < 0), np.zeros((), out.dtype), out)


def _negative_nan_first(right: Call, call: Invocation) -> None:
    """Sorted by the sign first: a NaN whose sign bit is set is the smallest."""
    x = call.inputs[0]
    if not x.ndim or not _is_float(x):
        return right(call)
    names = [a.name for a in call.schema.inputs]
    dim, descending = (call.inputs[names.index(n)] for n in ("dim", "descending"))
    key = np.where(np.isnan(x) & np.signbit(x), -np.inf, np.where(np.isnan(x), np.inf, _wide(x)))
    order = np.argsort(-key if descending else key, axis=dim, kind="stable")
    call.outputs[0][...], call.outputs[1][...] = np.take_along_axis(x, order, dim), order
    return None


def _empty_index_returns_early(right: Call, call: Invocation) -> None:
    names = [a.name for a in call.schema.inputs]
    if call.inputs[names.index("index")].size:
        right(call)


def _constant_seed(right: Call, call: Invocation) -> None:
    call.context.seed = 0
    right(call)


def _last_tap_of_groups(call: Invocation) -> None:
    names = [a.name for a in call.schema.inputs]
    groups, stride = (call.inputs[names.index(n)] for n in ("groups", "stride"))
    gradient = call.outputs[1]
    if gradient is not None and groups > 1 and max(stride) > 1 and gradient.shape[-1] > 1:
        gradient[..., -1, :] = gradient[..., 0, :]


def _gelu_with_cancellation(right: Call, call: Invocation) -> None:
    x, approximate = call.inputs
    if approximate != "tanh" or x.dtype == np.float64:
        return right(call)
    narrow = x.astype(np.float32)
    inner = np.float32(math.sqrt(2 / math.pi)) * (narrow + np.float32(0.044715) * narrow**3)
    call.outputs[0][...] = np.float32(0.5) * narrow * (1 + np.tanh(inner))
    return None


def _norm_in_half(right: Call, call: Invocation) -> None:
    right(call)
    tensors = call.inputs[0] if isinstance(call.inputs[0], list) else [call.inputs[0]]
    outputs = call.outputs[0] if isinstance(call.outputs[0], list) else [call.outputs[0]]
    for x, out in zip(tensors, outputs, strict=True):
        if x.dtype == np.float16 and out.size == 1 and call.inputs[1] == 2:
            out[...] = np.sqrt(np.sum(np.square(np.array(x)), dtype=np.float16))


def _summed_in_half(right: Call, call: Invocation) -> None:
    x, dim = call.inputs[:2]
    if x.dtype != np.float16 or not x.ndim:
        return right(call)
    with np.errstate(over="ignore"):
        call.outputs[0][...] = np.cumsum(x, dim, dtype=np.float16)
    return None


def _index_as_contiguous(call: Invocation) -> Invocation:
    names = [a.name for a in call.schema.inputs]
    index = names.index("index")
    return call.with_input(index, _as_contiguous(call.inputs[index]))


def _never_tanh(call: Invocation) -> Invocation:
    return call.with_input(len(call.inputs) - 1, "none")


def _sum_in_float64(right: Call, call: Invocation) -> None:
    x, dim, keepdim = call.inputs
    if x.dtype != np.int64 or not x.ndim:
        return right(call)
    axes = tuple(dim) if dim else None
    call.outputs[0][...] = np.sum(x.astype(np.float64), axis=axes, keepdims=keepdim).astype(np.int64)
    return None


def _variance_cancels(right: Call, call: Invocation) -> None:
    """Batch statistics as E[x^2] - E[x]^2 in float32."""
    x, training = call.inputs[0], call.inputs[5]
    right(call)
    if training and x.size and x.dtype != np.float64:
        rows, narrow = (0, *range(2, x.ndim)), x.astype(np.float32)
        mean = narrow.mean(rows, dtype=np.float32)
        variance = (narrow * narrow).mean(rows, dtype=np.float32) - mean * mean
        call.outputs[2][...] = 1 / np.sqrt(np.maximum(variance, 0) + call.inputs[7])


_ADAM = "weight decay of _fused_adam follows the rule of AdamW"
REPORTS = (
    Report(("aten::neg", "aten::abs", "aten::sqrt"), "pytorch/pytorch#100764", "a strided input is read as contiguous",
           _before(lambda c: c.with_input(0, _as_contiguous(c.inputs[0])))),
    Report(("aten::baddbmm", "aten::addmm"), "pytorch/pytorch#187521", "beta = 0 propagates NaN of the input",
           _computed(_beta_zero)),
    Report(("aten::baddbmm",), "pytorch/pytorch#96037", "beta = 0 multiplies what is in the output",
           lambda: _prior_content),
    Report(("aten::index_put",), "torch-spyre/torch-spyre#4411", "of equal indices one is accumulated",
           lambda: _put_without_adding),
    Report(("aten::_softmax",), "tenstorrent/tt-metal#56056", "a row of -inf gives equal shares instead of NaN",
           _after(_uniform_where_masked)),
    Report(("aten::maximum",), "pytorch/pytorch#143976", "NaN is not propagated", _computed(_without_nan(np.fmax))),
    Report(("aten::minimum",), "pytorch/pytorch#143976", "NaN is not propagated", _computed(_without_nan(np.fmin))),
    Report(("aten::amax", "aten::max"), "pytorch/pytorch#130295", "NaN is not propagated",
           _computed(lambda x, *a: _reduced_without_nan(np.fmax.reduce, x, *a))),
    Report(("aten::clamp",), "pytorch/pytorch#120899", "NaN becomes the bound", _computed(_clamp)),
    Report(("aten::embedding_dense_backward",), "pytorch/pytorch#26302", "the row of padding_idx gets a gradient",
           _before(_padding_row_kept)),
    Report(("aten::exp", "aten::sqrt", "aten::sigmoid"), "tenstorrent/tt-metal#57408", "bfloat16 is truncated",
           lambda: _stored_truncated),
    Report(("aten::floor_divide",), "pytorch/pytorch#43874", "the quotient is truncated", _computed(_truncating_division)),
    Report(("aten::div.Tensor_mode",), "pytorch/pytorch#189243", "inf // 1 is inf instead of NaN",
           lambda: _floor_of_quotient),
    Report(("aten::_fused_adam_",), "flagos-ai/FlagGems#4988", _ADAM, lambda: _decoupled),
    Report(("aten::nll_loss_forward",), "pytorch/pytorch#31295", "a weighted mean is divided by the number of samples",
           _after(_mean_by_count)),
    Report(("aten::nll_loss_forward",), "pytorch/xla#896", "ignored samples are counted in the mean",
           _after(_ignored_are_counted)),
    Report(("aten::argmax",), "pytorch/pytorch#41998", "of equal elements the last is found", _computed(_last_of_equal)),
    Report(("aten::native_layer_norm",), "pytorch/pytorch#190491", "variance as E[x^2] - E[x]^2 in float32",
           lambda: _variance_in_one_pass),
    Report(("aten::native_batch_norm",), "tenstorrent/tt-metal#45968", "variance as E[x^2] - E[x]^2 in float32",
           lambda: _variance_cancels),
    Report(("aten::native_batch_norm",), "tenstorrent/tt-metal#55438", "running_var takes the biased variance",
           lambda: _biased_running_variance),
    Report(("aten::max_pool2d_with_indices",), "pytorch/pytorch#33384", "padding counts as zero",
           _after(_padded_with_zero)),
    Report(("aten::sort", "aten::sort.stable"), "pytorch/pytorch#116567", "NaN with a sign is the smallest",
           lambda: _negative_nan_first),
    Report(("aten::scatter.src", "aten::scatter.value"), "intel/intel-extension-for-pytorch#682",
           "an empty index returns before the input is copied", lambda: _empty_index_returns_early),
    Report(("aten::native_dropout",), "PaddlePaddle/Paddle#7796", "the same seed for every mask", lambda: _constant_seed),
    Report(("aten::convolution_backward",), "pytorch/pytorch#50042", "the last taps of strided groups are wrong",
           _after(_last_tap_of_groups)),
    Report(("aten::gelu",), "tenstorrent/tt-metal#56517", "1 + tanh(u) cancels for negative x", lambda: _gelu_with_cancellation),
    Report(("aten::gelu", "aten::gelu_backward"), "pytorch/pytorch#94529", "approximate is not part of the kernel's key",
           _before(_never_tanh)),
    Report(("aten::linalg_vector_norm", "aten::_foreach_norm.Scalar"), "facebookresearch/fairscale#263",
           "squares are summed in float16", lambda: _norm_in_half),
    Report(("aten::cumsum",), "numpy/numpy#24443", "float16 is summed in float16", lambda: _summed_in_half),
    Report(("aten::gather",), "flagos-ai/FlagGems#5746", "an expanded index is read as contiguous",
           _before(_index_as_contiguous)),
    Report(("aten::mse_loss",), "pytorch/pytorch#125696", "a strided input is read as contiguous",
           _before(lambda c: c.with_input(0, _as_contiguous(c.inputs[0])))),
    Report(("aten::sum.dim_IntList",), "kszucs/marrow#112", "int64 is summed in float64", lambda: _sum_in_float64),
    Report(("aten::copy_", "aten::mm"), "ROCm/MIOpen#3299", "works on the null stream, beside the caller's",
           lambda: lambda right, call: right(call), HOST),
)  # fmt: skip
