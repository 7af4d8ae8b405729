"""Publicly reported mistakes: kernels with the mistake of a report, derived from the correct kernels.

The list was fixed before the suite was tried on it; do not tune it to the suite. Reports of mistakes that a class
plants in every kernel are cited in ``threads.toml`` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tools.mutation.kernel import Array, Call, Invocation, Target
from tools.mutation.mutant import Mutant, Wrong, is_float

MUTATION = "reported in public"


class Report(NamedTuple):
    """A mistake: its report (repository#number), class, what was wrong, operators to plant it in, the kernel."""

    source: str
    kind: str
    text: str
    operators: tuple[str, ...]
    wrong: Wrong


REPORTS: list[Report] = []


def mutants(target: Target) -> Iterator[Mutant]:
    """Yield the mutants of an operator's kernel that have its reported mistakes."""
    for report in REPORTS:
        if target.name in report.operators:
            detail = f"{report.source}: {report.text}"
            yield Mutant(target.name, report.kind, MUTATION, detail, partial(getattr, report, "wrong"))


def reported(source: str, kind: str, text: str, operators: str) -> Callable[[Wrong], Wrong]:
    """Register a kernel with a reported mistake of operators, named without aten:: and separated by spaces."""

    def register(wrong: Wrong) -> Wrong:
        REPORTS.append(
            Report(source, kind, text, tuple(f"aten::{name}" for name in operators.split()), wrong)
        )
        return wrong

    return register


def after(change: Callable[[Invocation], None]) -> Wrong:
    """Make a kernel that changes the correct results."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        with np.errstate(all="ignore"):
            change(call)

    return wrong


def computed(function: Callable[..., Any]) -> Wrong:
    """Make a kernel that writes a function of the inputs to the first output."""

    def wrong(right: Call, call: Invocation) -> None:
        with np.errstate(all="ignore"):
            call.outputs[0][...] = function(*call.inputs)

    return wrong


def wide(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) and is_float(x) else x


@reported("pytorch/pytorch#187521", "special values", "beta = 0 propagates NaN of the input", "baddbmm addmm")
@computed
def beta_zero(x: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Array:
    return beta * wide(x) + alpha * np.matmul(wide(a), wide(b))


@reported("pytorch/pytorch#96037", "memory", "beta = 0 multiplies the prior output", "baddbmm")
def prior_content(right: Call, call: Invocation) -> None:
    out = np.array(call.outputs[0])
    right(call)
    if is_float(out) and call.inputs[3] == 0:
        call.outputs[0][...] = 0 * out + call.outputs[0]


@reported("torch-spyre/torch-spyre#4411", "indexing", "only one of equal indices is accumulated", "index_put")
def put_without_adding(right: Call, call: Invocation) -> None:
    x, indices, values, accumulate = call.inputs
    if not accumulate:
        return right(call)
    result = np.array(x)
    index = tuple(slice(None) if i is None else i for i in indices)
    result[index] = result[index] + values  # the last of equal indices wins
    call.outputs[0][...] = result
    return None


@reported(
    "tenstorrent/tt-metal#56056", "special values", "a row of -inf becomes uniform instead of NaN", "_softmax"
)
@after
def uniform_where_masked(call: Invocation) -> None:
    x, dim = call.inputs[:2]
    if x.ndim and x.size:
        masked = (np.asarray(wide(x)) == -np.inf).all(axis=dim, keepdims=True)
        out = call.outputs[0]
        out[...] = np.where(masked, np.ones((), out.dtype) / out.dtype.type(x.shape[dim]), out)


@reported("pytorch/pytorch#120899", "special values", "NaN becomes the bound", "clamp")
@computed
def clamp(x: Array, low: Any, high: Any) -> Any:
    x = x if low is None else np.fmax(wide(x), low)
    return x if high is None else np.fmin(x, high)


@reported(
    "pytorch/pytorch#26302", "indexing", "the row of padding_idx gets a gradient", "embedding_dense_backward"
)
def padding_row_kept(right: Call, call: Invocation) -> None:
    right(call.with_input(3, -1))


@reported("pytorch/pytorch#43874", "formula", "the quotient is truncated", "floor_divide")
@computed
def truncating_division(x: Array, y: Array) -> Any:
    if is_float(x):
        return np.trunc(wide(x) / wide(y))
    safe = np.where(y == 0, 1, y)
    return np.where(y == 0, 0, np.sign(x).astype(np.int64) * np.sign(safe) * (np.abs(x) // np.abs(safe)))


@reported("pytorch/pytorch#189243", "special values", "inf // 1 is inf instead of NaN", "div.Tensor_mode")
def floor_of_quotient(right: Call, call: Invocation) -> None:
    x, y, mode = call.inputs
    if mode != "floor" or not is_float(call.outputs[0]):
        return right(call)
    with np.errstate(all="ignore"):
        call.outputs[0][...] = np.floor(wide(x) / wide(y))
    return None


@reported(
    "flagos-ai/FlagGems#4988",
    "formula",
    "weight decay of _fused_adam follows the rule of AdamW",
    "_fused_adam_",
)
def decoupled(right: Call, call: Invocation) -> None:
    """Adam with decoupled weight decay, as in AdamW."""
    decay, lr = map(float, call.given("weight_decay", "lr"))
    for param in call.inputs[0]:
        param[...] = wide(param) * (1 - lr * decay)
    right(call.with_input([a.name for a in call.schema.inputs].index("weight_decay"), 0.0))


@reported(
    "pytorch/pytorch#31295",
    "formula",
    "a weighted mean is divided by the number of samples",
    "nll_loss_forward",
)
@after
def mean_by_count(call: Invocation) -> None:
    _, target, weight, reduction, ignore = call.inputs
    if reduction == 1 and weight is not None and target.size:
        loss, total = call.outputs
        loss[...] = wide(loss) * wide(total) / max(int((target != ignore).sum()), 1)


@reported("pytorch/xla#896", "formula", "ignored samples are counted in the mean", "nll_loss_forward")
@after
def ignored_are_counted(call: Invocation) -> None:
    _, target, weight, reduction, _ = call.inputs
    if reduction == 1 and weight is None and target.size:
        loss, total = call.outputs
        loss[...] = wide(loss) * wide(total) / target.size


@reported("pytorch/pytorch#41998", "indexing", "the last of equal elements is found", "argmax")
@computed
def last_of_equal(x: Array, dim: int | None, keepdim: bool) -> Any:
    if x.ndim == 0 or x.size == 0:
        return 0
    if dim is None:
        return x.size - 1 - np.argmax(x.reshape(-1)[::-1])
    found = x.shape[dim] - 1 - np.argmax(np.flip(x, dim), axis=dim)
    return np.expand_dims(found, dim) if keepdim else found


@reported(
    "pytorch/pytorch#190491", "accumulation", "variance as E[x^2] - E[x]^2 in float32", "native_layer_norm"
)
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


@reported(
    "tenstorrent/tt-metal#55438", "formula", "running_var takes the biased variance", "native_batch_norm"
)
def biased_running_variance(right: Call, call: Invocation) -> None:
    x, _, _, _, running, training, momentum = call.inputs[:7]
    old = None if running is None else np.array(running)
    right(call)
    if old is not None and training and x.size:
        variance = wide(x).var((0, *range(2, x.ndim)))
        running[...] = (1 - momentum) * wide(old) + momentum * variance


@reported("pytorch/pytorch#33384", "formula", "padding counts as zero", "max_pool2d_with_indices")
@after
def padded_with_zero(call: Invocation) -> None:
    """Pool windows that reach beyond the border as if padded with 0."""
    if not any(call.inputs[3]):
        return
    out = call.outputs[0]
    edge = np.zeros(out.shape, np.bool_)
    edge[..., 0, :] = edge[..., :, 0] = True
    out[...] = np.where(edge & (wide(out) < 0), np.zeros((), out.dtype), out)


@reported(
    "pytorch/pytorch#116567", "special values", "a NaN with the sign bit set sorts first", "sort sort.stable"
)
def negative_nan_first(right: Call, call: Invocation) -> None:
    """Sort by the sign first: a NaN with the sign bit set is the smallest."""
    x = call.inputs[0]
    if not x.ndim or not is_float(x):
        return right(call)
    dim, descending = call.given("dim", "descending")
    key = np.where(np.isnan(x) & np.signbit(x), -np.inf, np.where(np.isnan(x), np.inf, wide(x)))
    order = np.argsort(-key if descending else key, axis=dim, kind="stable")
    call.outputs[0][...], call.outputs[1][...] = np.take_along_axis(x, order, dim), order
    return None


@reported(
    "intel/intel-extension-for-pytorch#682",
    "memory",
    "an empty index returns before the input is copied",
    "scatter.src scatter.value",
)
def empty_index_returns_early(right: Call, call: Invocation) -> None:
    if call.given("index")[0].size:
        right(call)


@reported(
    "pytorch/pytorch#50042", "tail", "the last taps of strided groups are wrong", "convolution_backward"
)
@after
def last_tap_of_groups(call: Invocation) -> None:
    groups, stride = call.given("groups", "stride")
    gradient = call.outputs[1]
    if gradient is not None and groups > 1 and max(stride) > 1 and gradient.shape[-1] > 1:
        gradient[..., -1, :] = gradient[..., 0, :]


@reported("tenstorrent/tt-metal#56517", "accumulation", "1 + tanh(u) cancels for negative x", "gelu")
def gelu_with_cancellation(right: Call, call: Invocation) -> None:
    x, approximate = call.inputs
    if approximate != "tanh" or x.dtype == np.float64:
        return right(call)
    narrow = x.astype(np.float32)
    inner = np.float32(math.sqrt(2 / math.pi)) * (narrow + np.float32(0.044715) * narrow**3)
    call.outputs[0][...] = np.float32(0.5) * narrow * (1 + np.tanh(inner))
    return None


@reported(
    "facebookresearch/fairscale#263",
    "accumulation",
    "squares are summed in float16",
    "linalg_vector_norm _foreach_norm.Scalar",
)
def norm_in_half(right: Call, call: Invocation) -> None:
    right(call)
    tensors = call.inputs[0] if isinstance(call.inputs[0], list) else [call.inputs[0]]
    outputs = call.outputs[0] if isinstance(call.outputs[0], list) else [call.outputs[0]]
    for x, out in zip(tensors, outputs, strict=True):
        if x.dtype == np.float16 and out.size == 1 and call.inputs[1] == 2:
            out[...] = np.sqrt(np.sum(np.square(np.array(x)), dtype=np.float16))


@reported(
    "tenstorrent/tt-metal#45968",
    "accumulation",
    "variance as E[x^2] - E[x]^2 in float32",
    "native_batch_norm",
)
def variance_cancels(right: Call, call: Invocation) -> None:
    """Compute batch statistics as E[x^2] - E[x]^2 in float32."""
    x, training = call.inputs[0], call.inputs[5]
    right(call)
    if training and x.size and x.dtype != np.float64:
        rows, narrow = (0, *range(2, x.ndim)), x.astype(np.float32)
        mean = narrow.mean(rows, dtype=np.float32)
        variance = (narrow * narrow).mean(rows, dtype=np.float32) - mean * mean
        call.outputs[2][...] = 1 / np.sqrt(np.maximum(variance, 0) + call.inputs[7])
