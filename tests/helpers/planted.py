"""Right kernels of the NumPy library with one planted mistake each, of the kinds that real kernels have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from isthmus.drivers.numpy.operators import library as right
from isthmus.opset.dtypes import ALL
from isthmus.opset.library import Library

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[..., None]
Plant = Callable[[Run, list[Any]], None]

PLANTS: dict[str, tuple[str, Plant]] = {}
TINY = float(np.finfo(np.float32).tiny)


def plant(operator: str) -> Callable[[Plant], Plant]:
    """Register a mistake; it gets the right kernel and the arguments of a call, outputs last."""

    def register(function: Plant) -> Plant:
        PLANTS[function.__name__] = (f"aten::{operator}", function)
        return function

    return register


def library_of(name: str) -> Library:
    """The library with one mistaken kernel."""
    operator, mistake = PLANTS[name]
    function = right.entries[operator].function
    takes_context = "context" in inspect.signature(function).parameters
    wrong = Library(name, "one mistake")

    def kernel(*arguments: Any, context: Any) -> None:
        extra = {"context": context} if takes_context else {}
        with np.errstate(all="ignore"):
            mistake(lambda *given: function(*given, **extra), list(arguments))

    wrong.operator(operator, dtypes=ALL, strided=True)(kernel)
    return wrong


def packed(x: Array) -> Array:
    """Read the memory of a strided tensor as if it were contiguous."""
    return x if x.flags.c_contiguous else np.ravel(x, "K").reshape(x.shape)


# ---- Addresses and strides -----------------------------------------------------------------------------


@plant("abs")
def aligned_load(run: Run, a: list[Any]) -> None:
    off = a[0].ctypes.data % 16 // a[0].itemsize
    run(np.roll(a[0], off) if a[0].ndim else a[0], a[1])


@plant("add.Tensor")
def aligned_store(run: Run, a: list[Any]) -> None:
    run(*a)
    off = a[-1].ctypes.data % 16 // a[-1].itemsize
    if off and a[-1].size > 4:
        a[-1][...] = np.roll(a[-1], -off)


@plant("exp")
def transposed_as_contiguous(run: Run, a: list[Any]) -> None:
    run(packed(a[0]), a[1])


@plant("relu")
def row_pitch_ignored(run: Run, a: list[Any]) -> None:
    x = a[0]
    dense = x.ndim > 1 and x.strides[-1] == x.itemsize and x.strides[-2] > x.shape[-1] * x.itemsize
    run(np.roll(x, 1, -1) if dense else x, a[1])


@plant("mul.Tensor")
def output_strides_ignored(run: Run, a: list[Any]) -> None:
    run(*a)
    if not a[-1].flags.c_contiguous and a[-1].ndim > 1:
        a[-1][...] = np.ravel(a[-1], "F").reshape(a[-1].shape)


@plant("native_layer_norm")
def sequence_first_rows(run: Run, a: list[Any]) -> None:
    swapped = a[0].ndim > 2 and a[0].strides[0] < a[0].strides[1]
    run(a[0][::-1] if swapped else a[0], *a[1:])


@plant("mm")
def both_operands_transposed(run: Run, a: list[Any]) -> None:
    left, right_ = (x.strides[0] < x.strides[1] for x in a[:2])
    run(a[0][::-1] if left and right_ else a[0], *a[1:])


# ---- Ranks and dimensions ------------------------------------------------------------------------------


@plant("sub.Tensor")
def rank_above_four(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[-1].ndim > 4 and a[-1].size:
        a[-1][...] = a[-1][:1]


@plant("cumsum")
def scan_of_three_dimensions(run: Run, a: list[Any]) -> None:
    run(a[0], -1 if a[0].ndim == 3 else a[1], a[2])


@plant("sum.dim_IntList")
def two_of_three_dimensions(run: Run, a: list[Any]) -> None:
    run(*a)
    if isinstance(a[1], list) and len(a[1]) == 3:
        a[-1][...] = a[0].sum(tuple(a[1][:2]), keepdims=True).reshape(-1)[:1]


@plant("mean.dim")
def no_dimension_is_none(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[1] == []:
        a[-1][...] = a[0].reshape(-1)[-1:].reshape((1,) * a[-1].ndim) if a[0].size else 0


@plant("_softmax")
def negative_dimension_is_last(run: Run, a: list[Any]) -> None:
    run(a[0], -1 if a[1] < 0 and a[0].ndim else a[1], *a[2:])


@plant("flip")
def dimensions_given_negative(run: Run, a: list[Any]) -> None:
    run(a[0], [d for d in a[1] if d >= -1], a[2])


@plant("gather")
def gather_beyond_three_dimensions(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[0].ndim > 3:
        a[-1][...] = np.flip(a[-1], -2)


@plant("cat")
def joined_in_front(run: Run, a: list[Any]) -> None:
    run(a[0], a[1], a[2])
    if a[2].ndim == 5 and a[1] not in (0, -5):
        a[2][...] = np.flip(a[2], a[1])


@plant("topk")
def selects_along_last(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[0].ndim > 3 and a[2] % a[0].ndim == 1:
        a[-1][...] += 1


# ---- Sizes ---------------------------------------------------------------------------------------------


@plant("neg")
def index_of_sixteen_bits(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[-1].size > 1 << 16:
        a[-1].reshape(-1)[1 << 16 :] = a[-1].reshape(-1)[: a[-1].size - (1 << 16)]


@plant("mul.Scalar")
def tail_of_many_blocks(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[-1].size > 4200 and a[-1].size % 256:
        a[-1].reshape(-1)[-(a[-1].size % 256) :] = 0


@plant("mean")
def sum_of_2048(run: Run, a: list[Any]) -> None:
    x = a[0].reshape(-1)
    run(x[:2048] if x.size > 2048 else a[0], a[-1])


@plant("amax")
def columns_beyond_the_grid(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[-1].size > 65_535:
        a[-1].reshape(-1)[65_535:] = 0


@plant("bmm")
def row_after_a_tile(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[-1].shape[1] % 64 == 1:
        a[-1][:, -1] = 0


@plant("addmm")
def products_beyond_4096(run: Run, a: list[Any]) -> None:
    run(a[0], a[1][:, :4096], a[2][:4096], *a[3:])


@plant("_log_softmax")
def row_of_one_warp(run: Run, a: list[Any]) -> None:
    run(*a)
    n = a[0].shape[a[1]] if a[0].ndim else 1
    if n == 33:
        np.moveaxis(a[-1], a[1], -1)[..., 32] = 0


@plant("embedding")
def row_index_of_sixteen_bits(run: Run, a: list[Any]) -> None:
    run(a[0], np.asarray(a[1]) & 0xFFFF, *a[2:])


# ---- Values --------------------------------------------------------------------------------------------


@plant("amin")
def starts_at_the_largest_number(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[-1].dtype == np.float32:
        a[-1][...] = np.minimum(a[-1], np.finfo(np.float32).max)


@plant("_safe_softmax")
def softmax_without_maximum(run: Run, a: list[Any]) -> None:
    if a[0].dtype != np.float32:
        return run(*a)
    power = np.exp(a[0])
    a[-1][...] = power / power.sum(a[1], keepdims=True) if a[0].ndim else 1
    return None


@plant("sigmoid")
def exponent_beyond_88(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[0].dtype == np.float32:
        a[-1][a[0] < -88] = np.nan


@plant("exp2")
def overflows_at_127(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[0].dtype == np.float32:
        a[-1][a[0] > 127] = np.inf


@plant("div.Tensor")
def denormal_results_flushed(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[-1].dtype == np.float32:
        a[-1][np.abs(a[-1]) < TINY] = 0


@plant("sqrt")
def denormal_inputs_flushed(run: Run, a: list[Any]) -> None:
    x = a[0]
    run(np.where(np.abs(x) < TINY, np.copysign(0, x), x) if x.dtype == np.float32 else x, a[1])


@plant("max")
def nan_lost_in_the_last_lane(run: Run, a: list[Any]) -> None:
    x = a[0]
    if x.dtype.kind == "f" and x.ndim and x.shape[-1] == 67:
        x = np.where(np.isnan(x) & (np.arange(67) == 66), -np.inf, x)
    run(x, a[1])


@plant("round")
def halves_away_from_zero(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[0].dtype.itemsize > 2:
        a[-1][...] = np.copysign(np.floor(np.abs(a[0]) + 0.5), a[0])


@plant("add.Scalar")
def integers_saturate(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[0].dtype == np.int8:
        a[-1][...] = np.clip(a[0].astype(int) + int(a[1]) * int(a[2]), -128, 127)


@plant("sort.stable")
def descending_by_negation(run: Run, a: list[Any]) -> None:
    x = -a[0] if a[3] and a[0].dtype.kind == "i" else None
    if x is None or not a[0].ndim:
        return run(*a)
    order = np.argsort(x, a[2], kind="stable")
    a[-2][...], a[-1][...] = np.take_along_axis(a[0], order, a[2]), order
    return None


# ---- Arguments -----------------------------------------------------------------------------------------


@plant("sub.Scalar")
def whole_alpha(run: Run, a: list[Any]) -> None:
    run(a[0], a[1], int(a[2]), a[3])


@plant("index_select")
def narrow_indices_misread(run: Run, a: list[Any]) -> None:
    index = a[2] // 2 * 2 if a[2].dtype == np.int32 else a[2]
    run(a[0], a[1], index, a[3])


@plant("native_group_norm")
def bias_needs_a_weight(run: Run, a: list[Any]) -> None:
    run(a[0], a[1], None if a[1] is None else a[2], *a[3:])


@plant("native_layer_norm_backward")
def gradient_of_bias_needs_that_of_weight(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[-1] is not None and a[-2] is None:
        a[-1][...] = 0


@plant("var.correction")
def correction_given_once(run: Run, a: list[Any]) -> None:
    run(a[0], a[1], a[2] if a[1] is None or len(a[1]) < 2 else 1, *a[3:])


@plant("mul.Scalar")
def number_in_the_half(run: Run, a: list[Any]) -> None:
    half = a[0].dtype == np.float16
    run(a[0], np.float16(a[1]).item() if half else a[1], a[2])


@plant("argmin")
def flat_index_in_the_order_of_memory(run: Run, a: list[Any]) -> None:
    run(packed(a[0]) if a[1] is None else a[0], *a[1:])


@plant("sum.dim_IntList")
def second_dimension_after_the_first_is_gone(run: Run, a: list[Any]) -> None:
    dims = a[1] or []
    moved = len(dims) == 2 and dims[1] < 0 and dims[0] % a[0].ndim > dims[1] % a[0].ndim > 0
    run(a[0], [dims[0], dims[1] - 1] if moved else a[1], *a[2:])


@plant("prod")
def product_in_the_width_of_the_input(run: Run, a: list[Any]) -> None:
    run(*a)
    if a[0].dtype == np.int32:
        a[-1][...] = a[-1].astype(np.int32)
