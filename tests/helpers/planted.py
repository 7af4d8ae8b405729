"""Mistakes of single kernels, beside the classes of :mod:`tools.mutation`: each needs a case of a certain form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tools.mutation.kernel import Call, Invocation
from tools.mutation.mutant import Mutant, Wrong
from tools.mutation.reports import after

PLANTED: list[Mutant] = []


def plant(operator: str, kind: str) -> Callable[[Wrong], Wrong]:
    """Register a mistake in the kernel of an operator."""

    def register(wrong: Wrong) -> Wrong:
        PLANTED.append(Mutant(f"aten::{operator}", kind, wrong.__name__, "", lambda: wrong))
        return wrong

    return register


def afterwards(operator: str, kind: str) -> Callable[[Callable[[Invocation], None]], None]:
    """Register a mistake that changes the correct results."""

    def register(change: Callable[[Invocation], None]) -> None:
        PLANTED.append(Mutant(f"aten::{operator}", kind, change.__name__, "", lambda: after(change)))

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
