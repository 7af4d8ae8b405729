"""Faults of single operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tools.mutation.bank.faults.common import after, computed, to_float32, when, wide, with_copies, with_given
from tools.mutation.kernel import Array, Call, Invocation
from tools.mutation.mutant import Wrong, is_float


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


@after
def uniform_where_masked(call: Invocation) -> None:
    x, dim = call.inputs[:2]
    if x.ndim and x.size:
        masked = (np.asarray(wide(x)) == -np.inf).all(axis=dim, keepdims=True)
        out = call.outputs[0]
        out[...] = np.where(masked, np.ones((), out.dtype) / out.dtype.type(x.shape[dim]), out)


@computed
def clamp(x: Array, low: Any, high: Any) -> Any:
    x = x if low is None else np.fmax(wide(x), low)
    return x if high is None else np.fmin(x, high)


def padding_row_kept(right: Call, call: Invocation) -> None:
    right(call.with_input(3, -1))


@computed
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
    decay, lr = map(float, call.given("weight_decay", "lr"))
    for param in call.inputs[0]:
        param[...] = wide(param) * (1 - lr * decay)
    right(call.with_input([a.name for a in call.schema.inputs].index("weight_decay"), 0.0))


@after
def mean_by_count(call: Invocation) -> None:
    _, target, weight, reduction, ignore = call.inputs
    if reduction == 1 and weight is not None and target.size:
        loss, total = call.outputs
        loss[...] = wide(loss) * wide(total) / max(int((target != ignore).sum()), 1)


@after
def ignored_are_counted(call: Invocation) -> None:
    _, target, weight, reduction, _ = call.inputs
    if reduction == 1 and weight is None and target.size:
        loss, total = call.outputs
        loss[...] = wide(loss) * wide(total) / target.size


@computed
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


@after
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
    dim, descending = call.given("dim", "descending")
    key = np.where(np.isnan(x) & np.signbit(x), -np.inf, np.where(np.isnan(x), np.inf, wide(x)))
    order = np.argsort(-key if descending else key, axis=dim, kind="stable")
    call.outputs[0][...], call.outputs[1][...] = np.take_along_axis(x, order, dim), order
    return None


def empty_index_returns_early(right: Call, call: Invocation) -> None:
    if call.given("index")[0].size:
        right(call)


@after
def last_tap_of_groups(call: Invocation) -> None:
    groups, stride = call.given("groups", "stride")
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


def variance_cancels(right: Call, call: Invocation) -> None:
    """Compute batch statistics as E[x^2] - E[x]^2 in float32."""
    x, training = call.inputs[0], call.inputs[5]
    right(call)
    if training and x.size and x.dtype != np.float64:
        rows, narrow = (0, *range(2, x.ndim)), x.astype(np.float32)
        mean = narrow.mean(rows, dtype=np.float32)
        variance = (narrow * narrow).mean(rows, dtype=np.float32) - mean * mean
        call.outputs[2][...] = 1 / np.sqrt(np.maximum(variance, 0) + call.inputs[7])


# Pooling, padding and shapes.


def _counts(n: int, m: int, k: int, s: int, p: int) -> Array:
    """Return how many elements of each window are inside the tensor and its padding."""
    start = np.arange(m) * s - p
    return np.asarray(np.minimum(start + k, n + p) - start)


@after
def overhang_counted(call: Invocation) -> None:
    """Count the elements that windows of ceil_mode reach beyond the padding."""
    x, kernel, stride, padding, _, count_include_pad, divisor = call.inputs
    out = call.outputs[0]
    if not count_include_pad or divisor is not None or not is_float(out) or not out.size:
        return
    stride = stride or kernel
    rank = len(kernel)
    factor: Any = 1.0
    for axis in range(rank):
        place = axis - rank
        counted = _counts(x.shape[place], out.shape[place], kernel[axis], stride[axis], padding[axis])
        factor = factor * (counted / kernel[axis]).reshape(-1, *[1] * (rank - 1 - axis))
    out[...] = wide(out) * factor


@after
def nan_for_single_pixel(call: Invocation) -> None:
    """Divide by the size of the image less 1."""
    x, _, align = call.inputs[:3]
    if align and 1 in x.shape[-2:] and is_float(x):
        call.outputs[0][...] = np.nan


def pooled_gradient_assigned(right: Call, call: Invocation) -> None:
    """Assign the gradients of windows with the same maximum, rather than add them."""
    grad, indices, out = call.inputs[0], call.given("indices")[0], call.outputs[0]
    result = np.zeros(out.shape, out.dtype)
    planes = int(np.prod(out.shape[:-2]))
    np.put_along_axis(
        result.reshape(planes, -1), indices.reshape(planes, -1), grad.reshape(planes, -1), axis=-1
    )
    out[...] = result


def flip_without_ones(right: Call, call: Invocation) -> None:
    """Drop the dimensions of size 1, but not from the numbers of the dimensions to flip."""
    x, dims = call.inputs
    squeezed = np.squeeze(x)
    if squeezed.ndim == x.ndim or not squeezed.ndim or not x.size:
        return right(call)
    axes = {min(dim % x.ndim, squeezed.ndim - 1) for dim in dims}
    call.outputs[0][...] = np.flip(squeezed, tuple(axes)).reshape(x.shape)
    return None


def column_padded_as_row(right: Call, call: Invocation) -> None:
    """Pad a matrix of one column as if it were a row."""
    x, pad, value = call.inputs
    if x.ndim != 2 or x.shape[1] != 1 or len(pad) != 4 or min(pad) < 0 or not x.size:
        return right(call)
    out = call.outputs[0]
    out[...] = value
    row = np.array(x).reshape(-1)[: out.shape[1] - pad[0]]
    out[pad[2], pad[0] : pad[0] + row.size] = row
    return None


@after
def output_padding_is_zero(call: Invocation) -> None:
    """Append zeros to a transposed convolution for its output padding."""
    transposed, extra = call.given("transposed", "output_padding")
    out = call.outputs[0]
    if transposed and out.size:
        for axis, count in enumerate(extra, 2):
            if count:
                np.moveaxis(out, axis, 0)[-count:] = 0


def filter_of_first_group(right: Call, call: Invocation) -> None:
    """Read the filters of the first group for each group of a depthwise convolution."""
    weight, groups = call.given("weight", "groups")
    if groups == 1 or weight.shape[1] != 1:
        return right(call)
    each = len(weight) // groups
    return right(with_given(call, weight=np.concatenate([weight[:each]] * groups)))


# Normalization.


def mean_subtracted_twice(right: Call, call: Invocation) -> None:
    """Subtract the mean of the gradient twice from that of the input."""
    grad, x, shape, _, rstd, weight = call.inputs[:6]
    dx = call.outputs[0]
    if dx is None or not x.size:
        return right(call)
    scaled = wide(grad) if weight is None else wide(grad) * wide(weight)
    excess = scaled.mean(tuple(range(x.ndim - len(shape), x.ndim)), keepdims=True) * wide(rstd)
    right(call)
    dx[...] = wide(dx) - excess
    return None


def training_formula_in_eval(right: Call, call: Invocation) -> None:
    """Use the statistics of the batch and their gradients in evaluation mode."""
    x, eps = call.given("input", "eps")
    if call.given("train")[0] or not x.size:
        return right(call)
    rows = (0, *range(2, x.ndim))
    rstd = 1 / np.sqrt(wide(x).var(rows) + eps)
    return right(with_given(call, train=True, save_mean=wide(x).mean(rows), save_invstd=rstd))


@after
def variance_saved(call: Invocation) -> None:
    saved = call.outputs[2]
    if call.given("training")[0] and saved is not None and saved.size:
        saved[...] = 1 / np.square(wide(saved)) - call.given("eps")[0]


def rstd_without_eps(right: Call, call: Invocation) -> None:
    """Form the deviations anew from the input, without eps."""
    x, rstd, groups = call.given("input", "rstd", "group")
    if not x.size:
        return right(call)
    with np.errstate(all="ignore"):
        anew = 1 / np.sqrt(wide(x).reshape(x.shape[0], groups, -1).var(-1))
    return right(with_given(call, rstd=anew.reshape(rstd.shape)))


def weight_in_first_row(right: Call, call: Invocation) -> None:
    """Read the weight as zero in all rows of a tile of 32 but the first."""
    grad, weight = call.given("grad", "weight")
    if weight is None or not grad.size:
        return right(call)
    bare = with_copies(with_given(call, weight=np.zeros_like(weight)))
    right(bare)
    right(call)
    dx, other = (each.outputs[0].reshape(-1, grad.shape[-1]) for each in (call, bare))
    first = (np.arange(len(dx)) % 32 == 0)[:, None]
    call.outputs[0][...] = np.where(first, dx, other).reshape(grad.shape)
    return None


def sum_of_even_warps(width: int) -> Wrong:
    """Sum a row only over the first of each two warps."""

    @after
    def wrong(call: Invocation) -> None:
        dim, out = call.inputs[1], call.outputs[0]
        if out.ndim and out.size and out.shape[dim] > width:
            rows = np.moveaxis(np.array(wide(out)), dim, -1)
            chosen = np.arange(rows.shape[-1]) // width % 2 == 0
            rows = rows / rows[..., chosen].sum(-1, keepdims=True)
            out[...] = np.moveaxis(rows, -1, dim)

    return wrong


# Optimizers.


def coupled(right: Call, call: Invocation) -> None:
    """AdamW with the weight decay of Adam."""
    params, grads = call.inputs[:2]
    decay, maximize, scale, found = call.given("weight_decay", "maximize", "grad_scale", "found_inf")
    if found is not None and found:
        return right(call)
    if scale is not None:
        for grad in grads:
            grad[...] = wide(grad) / wide(scale)
    sign = -1 if maximize else 1
    decayed = [(wide(g) + sign * decay * wide(p)).astype(g.dtype) for p, g in zip(params, grads, strict=True)]
    return right(with_given(call, grads=decayed, grad_scale=None, weight_decay=0.0))


def momentum_on_overflow(right: Call, call: Invocation) -> None:
    """Advance the momentum in a step that is skipped for an overflow."""
    found, momentum, dampening = call.given("found_inf", "momentum", "dampening")
    if found is None or not found or not momentum:
        return right(call)
    with np.errstate(all="ignore"):
        for buffer, grad in zip(call.inputs[2], call.inputs[1], strict=True):
            buffer[...] = momentum * wide(buffer) + (1 - dampening) * wide(grad)
    return None


@after
def rest_is_zero(call: Invocation) -> None:
    """Write only the first element of int32 results; the others are 0."""
    out = call.outputs[0]
    if out.dtype == np.int32 and out.size:
        values = np.array(out)
        values.reshape(-1)[1:] = 0
        out[...] = values


@after
def first_for_largest(call: Invocation) -> None:
    """Take the first element for the largest one, if one is asked for."""
    x, k, dim = call.inputs[:3]
    if k == 1 and x.ndim and x.size:
        call.outputs[0][...] = np.take(np.array(x), [0], dim)
        call.outputs[1][...] = 0


@after
def place_of_integers_lost(call: Invocation) -> None:
    """Convert the place of an extreme of int32 from NaN."""
    if call.inputs[0].dtype == np.int32:
        call.outputs[0][...] = np.iinfo(np.int64).min


@computed
def largest_magnitude(x: Array, dim: int | None, keepdim: bool) -> Any:
    """Find the place of the largest magnitude."""
    size = np.abs(wide(x))
    return np.argmax(size) if dim is None or not x.ndim else np.argmax(size, dim, keepdims=keepdim)


@after
def everything_dropped(call: Invocation) -> None:
    """Apply a mask that was never drawn."""
    if call.given("train")[0]:
        for x in call.outputs:
            x[...] = 0


@after
def log_of_large_sum(call: Invocation) -> None:
    """Sum exponentials in float32 without subtracting the largest number."""
    x, dim = call.inputs[:2]
    if x.size and x.dtype.itemsize < 8:
        given = to_float32(x)
        out = given - np.log(np.exp(given).sum(dim if x.ndim else None, keepdims=True))
        call.outputs[0][...] = out.reshape(x.shape)


@after
def reflected_as_zeros(call: Invocation) -> None:
    """Pad with zeros."""
    padding, out = call.given("padding")[0], call.outputs[0]
    values = np.array(out)
    out[...] = 0
    inside = [slice(None)] * (out.ndim - len(padding) // 2)
    for axis in range(len(padding) // 2)[::-1]:
        low, high = padding[2 * axis : 2 * axis + 2]
        size = out.shape[-1 - axis]
        inside.append(slice(max(low, 0), size - max(high, 0)))
    out[tuple(inside)] = values[tuple(inside)]


@after
def padded_rows_reversed(call: Invocation) -> None:
    """Reverse the columns of the rows above an image that is padded by rows only."""
    left, right, top, _ = call.given("padding")[0]
    if left == right == 0 < top:
        out = call.outputs[0]
        out[..., :top, :] = np.array(out[..., :top, ::-1])


@after
def gelu_by_chords(call: Invocation) -> None:
    """Interpolate between -5.5 and -2.5."""
    x = np.asarray(wide(call.inputs[0]))
    out = call.outputs[0]
    inside = (x > -5.5) & (x < -2.5)
    out[...] = np.where(inside, (x + 5.5) / 3 * -0.0155, wide(np.array(out)))


def padding_row_kept_beyond(limit: int) -> Wrong:
    """Give the row of padding_idx a gradient where there are many indices."""
    return when(lambda call: call.given("indices")[0].size > limit, padding_row_kept)


def correction_as_integer(right: Call, call: Invocation) -> None:
    """Truncate the correction."""
    correction = call.given("correction")[0]
    right(call if correction is None else with_given(call, correction=int(correction)))
