"""Mistakes of single kernels, beside the classes of :mod:`tools.mutation`: each needs a case of a certain form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tools.mutation.bank.faults.common import after
from tools.mutation.kernel import Call, Invocation
from tools.mutation.mutant import Mutant, Wrong, is_float

PLANTED: list[Mutant] = []


def _full_name(operator: str) -> str:
    return operator if "::" in operator else f"aten::{operator}"


def plant(operator: str, kind: str) -> Callable[[Wrong], Wrong]:
    """Register a mistake in the kernel of an operator."""

    def register(wrong: Wrong) -> Wrong:
        PLANTED.append(Mutant(_full_name(operator), kind, wrong.__name__, "", lambda: wrong))
        return wrong

    return register


def plant_with_state(operator: str, kind: str) -> Callable[[Callable[[], Wrong]], None]:
    """Register a mistake that keeps state between calls, made anew for each trial."""

    def register(make: Callable[[], Wrong]) -> None:
        PLANTED.append(Mutant(_full_name(operator), kind, make.__name__, "", make))

    return register


def afterwards(operator: str, kind: str) -> Callable[[Callable[[Invocation], None]], None]:
    """Register a mistake that changes the correct results."""

    def register(change: Callable[[Invocation], None]) -> None:
        PLANTED.append(Mutant(_full_name(operator), kind, change.__name__, "", lambda: after(change)))

    return register


# ---- Strides, ranks and dimensions ---------------------------------------------------------------------


@afterwards("mul.Tensor", "layout assumed")
def output_strides_ignored(call: Invocation) -> None:
    out = call.outputs[0]
    if not out.flags.c_contiguous and out.ndim > 1:
        out[...] = np.ravel(out, "F").reshape(out.shape)


@plant("mm", "layout assumed")
def both_operands_transposed(right: Call, call: Invocation) -> None:
    both = all(x.strides[0] < x.strides[1] for x in call.inputs[:2])
    right(call.with_input(0, call.inputs[0][::-1]) if both else call)


@plant("argmin", "layout assumed")
def flat_index_in_the_order_of_memory(right: Call, call: Invocation) -> None:
    x, dim = call.inputs[:2]
    if dim is None and not x.flags.c_contiguous:
        call = call.with_input(0, np.ravel(x, "K").reshape(x.shape))
    right(call)


@plant("cumsum", "arguments ignored")
def scan_of_three_dimensions(right: Call, call: Invocation) -> None:
    right(call.with_input(1, -1) if call.inputs[0].ndim == 3 else call)


@afterwards("sum.dim_IntList", "arguments ignored")
def two_of_three_dimensions(call: Invocation) -> None:
    x, dims = call.inputs[:2]
    if isinstance(dims, list) and len(dims) == 3:
        call.outputs[0][...] = x.sum(tuple(dims[:2]), keepdims=True).reshape(-1)[:1]


@plant("sum.dim_IntList", "arguments ignored")
def second_dimension_after_the_first_is_gone(right: Call, call: Invocation) -> None:
    dims, rank = call.inputs[1] or [], call.inputs[0].ndim
    moved = len(dims) == 2 and dims[1] < 0 and dims[0] % rank > dims[1] % rank > 0
    right(call.with_input(1, [dims[0], dims[1] - 1]) if moved else call)


@afterwards("mean.dim", "arguments ignored")
def no_dimension_is_none(call: Invocation) -> None:
    x, out = call.inputs[0], call.outputs[0]
    if call.inputs[1] == []:
        out[...] = x.reshape(-1)[-1:].reshape((1,) * out.ndim) if x.size else 0


@plant("flip", "arguments ignored")
def dimensions_given_negative(right: Call, call: Invocation) -> None:
    right(call.with_input(1, [d for d in call.inputs[1] if d >= -1]))


@afterwards("cat", "arguments ignored")
def joined_in_front(call: Invocation) -> None:
    dim, out = call.inputs[1], call.outputs[0]
    if out.ndim == 5 and dim not in (0, -5):
        out[...] = np.flip(out, dim)


@afterwards("topk", "arguments ignored")
def selects_along_last(call: Invocation) -> None:
    rank = call.inputs[0].ndim
    if rank > 3 and call.inputs[2] % rank == 1:
        call.outputs[-1][...] += 1


# ---- Sizes ---------------------------------------------------------------------------------------------


@afterwards("mul.Scalar", "tail")
def tail_of_many_blocks(call: Invocation) -> None:
    out = call.outputs[0]
    if out.size > 4200 and out.size % 256:
        out.reshape(-1)[-(out.size % 256) :] = 0


@afterwards("bmm", "tiling")
def row_after_a_tile(call: Invocation) -> None:
    if call.outputs[0].shape[1] % 64 == 1:
        call.outputs[0][:, -1] = 0


@afterwards("_log_softmax", "tail")
def row_of_one_warp(call: Invocation) -> None:
    x, dim = call.inputs[:2]
    if x.ndim and x.shape[dim] == 33:
        np.moveaxis(call.outputs[0], dim, -1)[..., 32] = 0


# ---- Values --------------------------------------------------------------------------------------------


@afterwards("sigmoid", "special values")
def exponent_beyond_88(call: Invocation) -> None:
    if call.inputs[0].dtype == np.float32:
        call.outputs[0][call.inputs[0] < -88] = np.nan


@afterwards("exp2", "special values")
def overflows_at_127(call: Invocation) -> None:
    if call.inputs[0].dtype == np.float32:
        call.outputs[0][call.inputs[0] > 127] = np.inf


@plant("max", "special values")
def nan_lost_in_the_last_lane(right: Call, call: Invocation) -> None:
    x = call.inputs[0]
    if x.dtype.kind == "f" and x.ndim and x.shape[-1] == 67:
        call = call.with_input(0, np.where(np.isnan(x) & (np.arange(67) == 66), -np.inf, x))
    right(call)


@afterwards("round", "formula")
def halves_away_from_zero(call: Invocation) -> None:
    x = call.inputs[0]
    if x.dtype.itemsize > 2:
        call.outputs[0][...] = np.copysign(np.floor(np.abs(x) + 0.5), x)


@afterwards("sort.stable", "saturation")
def descending_by_negation(call: Invocation) -> None:
    x, _, dim, descending = call.inputs
    if descending and x.dtype.kind == "i" and x.ndim:
        order = np.argsort(-x, dim, kind="stable")
        call.outputs[0][...], call.outputs[1][...] = np.take_along_axis(x, order, dim), order


@afterwards("prod", "saturation")
def product_in_the_width_of_the_input(call: Invocation) -> None:
    if call.inputs[0].dtype == np.int32:
        call.outputs[0][...] = call.outputs[0].astype(np.int32)


# ---- Arguments -----------------------------------------------------------------------------------------


@afterwards("native_layer_norm_backward", "memory")
def gradient_of_bias_needs_that_of_weight(call: Invocation) -> None:
    *_, weight, bias = call.outputs
    if bias is not None and weight is None:
        bias[...] = 0


@plant("var.correction", "arguments ignored")
def correction_given_once(right: Call, call: Invocation) -> None:
    dims = call.inputs[1]
    right(call if dims is None or len(dims) < 2 else call.with_input(2, 1))


@plant("mul.Scalar", "arguments ignored")
def number_in_the_half(right: Call, call: Invocation) -> None:
    half = call.inputs[0].dtype == np.float16
    right(call.with_input(1, np.float16(call.inputs[1]).item()) if half else call)


# ---- Threads -------------------------------------------------------------------------------------------


@plant_with_state("add.Tensor", "memory")
def one_buffer_for_all_threads() -> Wrong:
    buffers: dict[Any, Any] = {}

    def wrong(right: Call, call: Invocation) -> None:
        x = call.inputs[0]
        key = (x.dtype, min(x.size, 1) and 1 << (x.size - 1).bit_length())
        buffer = buffers.setdefault(key, np.zeros(key[1], x.dtype))
        buffer[: x.size] = x.reshape(-1)
        right(call.with_input(0, buffer[: x.size].reshape(x.shape)))

    return wrong


@plant_with_state("mm", "memory")
def parameters_in_a_global() -> Wrong:
    current: list[Invocation] = []

    def wrong(right: Call, call: Invocation) -> None:
        current[:] = [call]
        for _ in range(20):  # time in which another thread may write it
            pass
        right(current[0])

    return wrong


@plant_with_state("_softmax", "memory")
def results_through_one_row() -> Wrong:
    rows: dict[Any, Any] = {}

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        out = call.outputs[0]
        if out.ndim > 1:
            row = rows.setdefault((out.dtype, out.shape[-1]), np.empty(out.shape[-1], out.dtype))
            for index in np.ndindex(out.shape[:-1]):
                row[...] = out[index]
                out[index] = row

    return wrong


# ---- Many calls ----------------------------------------------------------------------------------------


@plant_with_state("silu", "memory")
def wrong_in_every_400th_call() -> Wrong:
    calls: Counter[str] = Counter()

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        calls["all"] += 1
        if calls["all"] % 400 == 0:
            call.outputs[0][...] = 0

    return wrong


def cached(key: Callable[[Invocation], Any]) -> Wrong:
    """Make a kernel that answers from a cache."""
    answers: dict[Any, Any] = {}

    def wrong(right: Call, call: Invocation) -> None:
        known = (key(call), *[(x.shape, x.dtype) for x in call.outputs])
        if known not in answers:
            right(call)
            answers[known] = call.outputs[0].copy()
        call.outputs[0][...] = answers[known]

    return wrong


def _read(call: Invocation) -> list[tuple[Any, ...]]:
    return [(x.dtype, x.shape) for x in call.read()]


@plant_with_state("sum.dim_IntList", "memory")
def cached_by_address_shape_and_first_element() -> Wrong:
    return cached(
        lambda call: repr(
            ([(x.ctypes.data, x.dtype, x.shape, x.flat[:1]) for x in call.read()], call.inputs[1:])
        )
    )


@plant_with_state("mul.Tensor", "memory")
def cached_by_shape() -> Wrong:
    return cached(lambda call: repr(_read(call)))


@plant_with_state("leaky_relu", "memory")
def cached_by_shape_and_numbers() -> Wrong:
    return cached(lambda call: repr((_read(call), call.inputs[1])))


@plant_with_state("mul.Scalar", "arguments ignored")
def number_of_the_first_call_compiled_in() -> Wrong:
    numbers: dict[Any, Any] = {}

    def wrong(right: Call, call: Invocation) -> None:
        x = call.inputs[0]
        right(call.with_input(1, numbers.setdefault((x.shape, x.dtype), call.inputs[1])))

    return wrong


@plant_with_state("cumsum", "memory")
def dtype_of_the_first_call_of_a_shape() -> Wrong:
    dtypes: dict[Any, Any] = {}

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        out = call.outputs[0]
        first = dtypes.setdefault(out.shape, out.dtype) if is_float(out) else out.dtype
        if first.itemsize < out.dtype.itemsize:
            out[...] = out.astype(first)

    return wrong


@plant_with_state("sigmoid", "memory")
def tunes_itself_in_the_first_call() -> Wrong:
    known: set[Any] = set()

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        key = call.outputs[0].dtype, call.outputs[0].shape
        if key not in known:  # the last of the variants that it tries is another one
            call.outputs[0][...] = 0
        known.add(key)

    return wrong


@plant_with_state("relu", "layout assumed")
def strides_of_the_first_call() -> Wrong:
    plans: dict[Any, Any] = {}

    def wrong(right: Call, call: Invocation) -> None:
        x = call.inputs[0]
        planned = plans.setdefault((x.dtype, x.shape), x.strides)
        right(call if planned == x.strides else call.with_input(0, np.ravel(x, "K").reshape(x.shape)))

    return wrong


@plant_with_state("max", "memory")
def buffer_of_the_call_before() -> Wrong:
    buffer = np.zeros(1 << 16, np.float32)

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        x = call.inputs[0]
        if x.dtype == np.float32 and 0 < x.size < 1 << 15 and not np.isnan(x).any():
            buffer[: x.size] = x.reshape(-1)
            call.outputs[0][...] = buffer[: -(-x.size // 64) * 64].max()

    return wrong


# ---- Indices out of range ------------------------------------------------------------------------------


@plant("gather", "indexing")
def wraps_around(right: Call, call: Invocation) -> None:
    x, dim, index = call.inputs[:3]
    right(call.with_input(2, index % x.shape[dim] if x.ndim and x.shape[dim] else index * 0))


@plant("embedding", "indexing")
def clamps(right: Call, call: Invocation) -> None:
    right(call.with_input(1, np.clip(call.inputs[1], 0, len(call.inputs[0]) - 1)))


@plant("index_select", "indexing")
def checks_the_upper_end_only(right: Call, call: Invocation) -> None:
    right(call.with_input(2, np.maximum(call.inputs[2], 0)))


@plant("nll_loss_forward", "indexing")
def class_below_zero_is_the_first(right: Call, call: Invocation) -> None:
    target, ignored = call.inputs[1], call.inputs[4]
    right(call.with_input(1, np.where((target < 0) & (target != ignored), 0, target)))


@plant("scatter_add", "indexing")
def skips_the_last_beyond_the_end(right: Call, call: Invocation) -> None:
    x, dim, index, source = call.inputs
    beyond = np.asarray(index == (x.shape[dim] if x.ndim else 1))
    if not beyond.any():
        right(call)
    elif source.shape == index.shape:
        source = np.where(beyond, 0, source).astype(source.dtype)
        right(call.with_input(2, np.where(beyond, 0, index)).with_input(3, source))
    else:
        raise IndexError


@plant("index_add", "memory")
def clears_the_source_before_it_refuses(right: Call, call: Invocation) -> None:
    index, source = call.inputs[2:4]
    if index.size and index.min() < 0:
        source[...] = 0
    right(call)


# ---- Long rows and many duplicates ---------------------------------------------------------------------


@afterwards("_log_softmax", "tail")
def row_beyond_a_million(call: Invocation) -> None:
    dim, out = call.inputs[1], call.outputs[0]
    if out.ndim and out.shape[dim] > 1 << 20:
        np.moveaxis(out, dim, -1)[..., 1 << 20 :] = 0


@afterwards("sum", "tail")
def sum_of_a_million(call: Invocation) -> None:
    x, out = call.inputs[0].reshape(-1), call.outputs[0]
    if x.size > 1 << 20:
        out[...] -= x[1 << 20 :].sum().astype(out.dtype)


@afterwards("mv", "tail")
def products_beyond_a_million(call: Invocation) -> None:
    x, y, out = call.inputs[0], call.inputs[1], call.outputs[0]
    if y.size > 1 << 20:
        out[...] = x[:, : 1 << 20] @ y[: 1 << 20]


@plant("index_put", "accumulation")
def at_most_70_001_places(right: Call, call: Invocation) -> None:
    indices, values = call.inputs[1:3]
    many = call.inputs[3] and len(indices) == 1 and indices[0].size > 70_001
    if many:
        call = call.with_input(1, [indices[0][:70_001]]).with_input(2, values[:70_001])
    right(call)


# ---- More than 2^24 elements ----------------------------------------------------------------------------


@afterwards("add.Tensor", "indexing")
def places_kept_in_float32(call: Invocation) -> None:
    out = call.outputs[0]
    flat = np.array(out).reshape(-1)
    places = np.arange(flat.size).astype(np.float32).astype(np.int64)
    out[...] = flat[np.minimum(places, flat.size - 1)].reshape(out.shape)


@afterwards("argmax", "indexing")
def place_of_the_largest_in_float32(call: Invocation) -> None:
    call.outputs[0][...] = call.outputs[0].astype(np.float32)


@plant("index_select", "indexing")
def indices_through_float32(right: Call, call: Invocation) -> None:
    index = call.inputs[2]
    near = np.abs(index) < 1 << 25  # no others reach an element
    right(call.with_input(2, np.where(near, index.astype(np.float32), index).astype(index.dtype)))


@afterwards("tril", "tiling")
def row_by_a_division_in_float32(call: Invocation) -> None:
    x, diagonal, out = call.inputs[0], call.inputs[1], call.outputs[0]
    if x.size:
        places, (rows, columns) = np.arange(x.size), x.shape[-2:]
        row = (places.astype(np.float32) / np.float32(columns)).astype(np.int64)
        kept = places - row * columns - row % rows <= diagonal
        out[...] = np.where(kept.reshape(x.shape), x, np.zeros((), x.dtype))


@plant("sum", "accumulation")
def a_counter_of_16_million(right: Call, call: Invocation) -> None:
    x = call.inputs[0]
    right(call.with_input(0, np.array(x).reshape(-1)[: 1 << 24]) if x.size > 1 << 24 else call)


# ---- Laws ----------------------------------------------------------------------------------------------


@afterwards("exp", "formula")
def step_between_two_tables(call: Invocation) -> None:
    x, out = call.inputs[0], call.outputs[0]
    if x.dtype == np.float32:
        out[(x > 0.7031) & (x < 0.7059)] *= np.float32(1.01)


@plant("silu_backward", "saturation")
def large_gradients_clipped(right: Call, call: Invocation) -> None:
    grad = call.inputs[0]
    right(call.with_input(0, np.clip(grad, -6, 6).astype(grad.dtype)) if grad.dtype == np.float32 else call)


@afterwards("tanh_backward", "formula")
def steeper_near_zero(call: Invocation) -> None:
    y, out = call.inputs[1], call.outputs[0]
    if y.dtype == np.float32:
        out[np.abs(y) < 0.5] *= np.float32(1.03)


@afterwards("topk", "formula")
def unsorted_values_beside_sorted_places(call: Invocation) -> None:
    values, dim = call.outputs[0], call.inputs[2]
    if not call.inputs[4] and values.ndim:
        values[...] = np.flip(np.array(values), dim)


@afterwards("isthmus::rms_norm_backward", "formula")
def gradient_of_a_row_without_its_sum(call: Invocation) -> None:
    grad, weight, rstd = call.given("grad", "weight", "rstd")
    if grad.dtype == np.float32:
        call.outputs[0][...] = grad * (1 if weight is None else weight) * rstd


@afterwards("isthmus::swiglu_backward", "formula")
def gradient_of_the_gate_without_its_slope(call: Invocation) -> None:
    grad, gate, up = call.given("grad", "gate", "up")
    if grad.dtype == np.float32 and up is not None:
        call.outputs[0][...] = grad * up / (1 + np.exp(-gate))
