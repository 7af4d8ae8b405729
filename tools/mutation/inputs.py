"""Mutations of inputs: strides, broadcasting, operands, optional arguments, numbers, precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.conformance.golden import Tensor
from isthmus.opset import dtypes as dt
from isthmus.opset.library import STRIDED
from isthmus.opset.schema import Argument
from tools.mutation.kernel import Array, Call, Invocation, Target
from tools.mutation.mutant import Mutation, Wrong

Mutants = Iterator[tuple[str, Callable[[], Wrong]]]


def _of_input(
    target: Target, index: int, change: Callable[[Invocation, Any], Any]
) -> tuple[str, Callable[[], Wrong]]:
    """Make a mutant that changes one input if it is present."""

    def wrong(right: Call, call: Invocation) -> None:
        value = call.inputs[index]
        right(call if value is None else call.with_input(index, change(call, value)))

    return target.schema.inputs[index].name, lambda: wrong


def _strides_ignored(target: Target) -> Mutants:
    def change(_: Invocation, x: Array) -> Array:
        if x.size == 0 or x.flags.c_contiguous:
            return x
        # Only within the tensor's own memory: what lies beyond may not be mapped.
        span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) // x.itemsize
        memory = np.lib.stride_tricks.as_strided(x, (span,), (x.itemsize,))
        return np.resize(memory, x.shape)

    if target.flags & STRIDED and target.strided:
        for index in _with_rows(target):
            yield _of_input(target, index, change)


def _broadcast_wrong(target: Target) -> Mutants:
    def change(call: Invocation, x: Array) -> Array:
        shape = np.broadcast_shapes(*(other.shape for other in call.read()))
        return np.resize(x, shape) if x.shape != shape and x.size else x

    if target.broadcasts and len(target.tensors()) > 1:
        for index in target.tensors():
            yield _of_input(target, index, change)


def _operands_swapped(target: Target) -> Mutants:
    def swapped(left: int, right_index: int) -> Wrong:
        def wrong(right: Call, call: Invocation) -> None:
            a, b = call.inputs[left], call.inputs[right_index]
            alike = a is not None and b is not None and (a.shape, a.dtype) == (b.shape, b.dtype)
            right(call.with_input(left, b).with_input(right_index, a) if alike else call)

        return wrong

    tensors = target.tensors()
    names = [a.name for a in target.schema.inputs]
    for left, other in pairwise(tensors):
        if target.alike(left, other):
            yield f"{names[left]}, {names[other]}", partial(swapped, left, other)


def _optional_ignored(target: Target) -> Mutants:
    for index in target.tensors():
        if target.schema.inputs[index].optional:
            yield _of_input(target, index, lambda call, value: None)


_WORDS = {"True": True, "False": False, "None": None, "Mean": 1}


def _default(argument: Argument, value: Any) -> Any:
    """Return the value assumed by a kernel that ignores the argument: its default, or the most common value."""
    text = argument.default
    if argument.is_list:
        return [0] * len(value)
    if text in _WORDS:
        return _WORDS[text]
    if text is not None:
        if argument.base == "str":
            return text.strip("'\"")
        return type(value)(float(text))
    if argument.base == "bool":
        return False
    return type(value)(value != 1) if argument.base in ("Scalar", "float") else 0


def _defaulted(argument: Argument, _: Invocation, value: Any) -> Any:
    return _default(argument, value)


def _number_ignored(target: Target) -> Mutants:
    for index, argument in enumerate(target.schema.inputs):
        if not argument.is_tensor and not (argument.is_list and argument.base != "int"):
            yield _of_input(target, index, partial(_defaulted, argument))


def _last_list_item_ignored(target: Target) -> Mutants:
    def change(_: Invocation, values: list[Any]) -> list[Any]:
        return [*values[:-1], values[-2]] if len(values) > 1 else values

    for index, argument in enumerate(target.schema.inputs):
        if argument.is_list and not argument.written and not argument.is_tensor:
            yield _of_input(target, index, change)


def _wrong_list_item(target: Target) -> Mutants:
    """Replace the last tensor of a list by the one before it, where their shapes and dtypes match."""

    def change(_: Invocation, values: list[Any]) -> list[Any]:
        if len(values) < 2 or values[-1] is None or values[-2] is None:
            return values
        alike = values[-1].shape == values[-2].shape
        return [*values[:-1], values[-2] if alike else np.resize(values[-2], values[-1].shape)]

    for index, argument in enumerate(target.schema.inputs):
        if argument.is_list and argument.is_tensor and not argument.written:
            yield _of_input(target, index, change)


def _last_element_lost(target: Target) -> Mutants:
    """Replace the last element along the last dimension by the one before it."""

    def change(_: Invocation, x: Array) -> Array:
        if x.ndim == 0 or x.shape[-1] < 2:
            return x
        copy = np.array(x)
        copy[..., -1] = copy[..., -2]
        return copy

    for index in _with_rows(target):
        yield _of_input(target, index, change)


def _with_rows(target: Target) -> list[int]:
    """Return positions of tensor inputs with more than one element along their last dimension in some case."""

    def long(index: int) -> bool:
        return target.some(
            lambda given: isinstance(given[index], Tensor) and (given[index].shape or (0,))[-1] > 1
        )

    return [index for index in target.tensors() if long(index)]


def _in_lower_precision(target: Target) -> Mutants:
    def change(argument: Argument, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return x.astype(ml_dtypes.bfloat16).astype(x.dtype) if x.dtype in (np.float32, np.float64) else x

    if target.reads_floats and not target.random:
        yield "", lambda: lambda right, call: right(call.with_inputs(change))


def _integers_as_float32(target: Target) -> Mutants:
    def change(argument: Argument, x: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return x.astype(np.float32).astype(x.dtype) if x.dtype in (np.int64, np.int32) else x

    if {"int32", "int64"} & target.dtypes and target.reads_tensors:
        yield "", lambda: lambda right, call: right(call.with_inputs(change))


def _nan_read_as_zero(target: Target) -> Mutants:
    """Read NaN inputs as zero."""

    def change(argument: Argument, x: Array) -> Array:
        if dt.name_of(x.dtype) not in dt.FLOATS:
            return x
        return np.where(np.isnan(x), np.zeros((), x.dtype), x)

    if target.reads_floats and target.special and not target.random:
        yield "", lambda: lambda right, call: right(call.with_inputs(change))


MUTATIONS = (
    Mutation("strides ignored", "a strided tensor is read as if it were contiguous", _strides_ignored),
    Mutation("wrong broadcast", "a broadcast tensor is repeated in memory order", _broadcast_wrong),
    Mutation("swapped operands", "two tensors of equal shape are swapped", _operands_swapped),
    Mutation("optional tensor ignored", "bias, weight, mask or running mean is left out", _optional_ignored),
    Mutation("number ignored", "a number, flag or list (alpha, eps, dim, stride) is ignored", _number_ignored),
    Mutation("last list item ignored", "the last number of a list is replaced by the one before",
             _last_list_item_ignored),
    Mutation("wrong tensor of a list", "the last tensor of a list is replaced by the one before",
             _wrong_list_item),
    Mutation("last element of a row lost", "the last element of each row, or of a reduction, is not read",
             _last_element_lost),
    Mutation("computed in lower precision", "float32 and float64 inputs are rounded to bfloat16",
             _in_lower_precision),
    Mutation("integers by way of float32", "int32 and int64 inputs are rounded to 24 bits", _integers_as_float32),
    Mutation("NaN read as zero", "a fast path that drops NaN", _nan_read_as_zero),
)  # fmt: skip
