"""Integers and indices have too few bits, or stop at their limits instead of wrapping around."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from tools.mutation.kernel import Array, Call, Invocation, Target, flat, mapped
from tools.mutation.mutant import Made, Mutation, Wrong, mutate_simply, per_input, read_as

_INDICES = ("index", "indices", "target", "rows", "positions", "cu_seqlens_q", "cu_seqlens_k")
_ANY_INDEX_DTYPE = (
    "aten::embedding",
    "aten::embedding_dense_backward",
    "aten::index_select",
    "aten::index_add",
)
# Operators on integers whose results can exceed the dtype.
_OVERFLOWS = re.compile(
    r"aten::(_foreach_)?(add|sub|rsub|mul|neg|abs|square|sum|cumsum|prod|pow|scatter_add|index_add|index_put|addmm"
    r"|mm|bmm|baddbmm|dot|mv)(\.|$)"
)


def _by_way_of(dtype: Any) -> Wrong:
    def change(x: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return x.astype(dtype).astype(x.dtype) if x.dtype in (np.int64, np.int32) else x

    return read_as(change)


def _cut(dtype: Any) -> Wrong:
    wider = np.dtype(dtype).itemsize
    return read_as(
        lambda x: x.astype(dtype).astype(x.dtype) if x.dtype.kind == "i" and x.itemsize > wider else x
    )


def _per_index(change: Callable[[Array], Array]) -> Callable[[Target], Made]:
    """Change the values of index tensors."""

    def changed(x: Array) -> Array:
        return change(x) if x.dtype.kind == "i" and x.size else x

    return per_input(
        lambda target, a: a.name in _INDICES and a.is_tensor and "mse_loss" not in target.name,
        lambda _, value: mapped(changed, value),
    )


def _index_dtype_assumed(assumed: Any) -> Callable[[Target], Made]:
    """Read indices as another integer dtype: the first half of the memory, or every other word."""

    def change(x: Array) -> Array:
        words = np.frombuffer(x.tobytes()[: x.nbytes // 8 * 8], assumed)
        return np.resize(words, x.shape) if x.dtype != assumed and words.size else x

    return lambda target: _per_index(change)(target) if target.name in _ANY_INDEX_DTYPE else iter(())


def _saturating(right: Call, call: Invocation) -> None:
    """Compute integers in 64 bits, and clip them to the limits of the result."""

    def widened(x: Array) -> Array:
        return x.astype(np.int64) if x.dtype.kind in "iu" and x.dtype != np.int64 else x

    outputs = mapped(widened, call.outputs)
    inputs = call.with_inputs(lambda a, x: x if a.name in _INDICES else widened(x)).inputs
    right(replace(call, inputs=inputs, outputs=outputs))
    for x, values in zip(flat(call.outputs), flat(outputs), strict=True):
        if values is not x:
            limits = np.iinfo(x.dtype)
            x[...] = np.clip(values, limits.min, limits.max)


def _sums_saturate(right: Call, call: Invocation) -> None:
    """Clip 64-bit results to the limits of 32 bits."""
    right(call)
    for x in call.results():
        if x.dtype == np.int64:
            x[...] = np.clip(x, -(2**31), 2**31 - 1)


def _conversion_clamps(target: Target) -> Made:
    """Clip integers to the limits of a narrower dtype where they would wrap around."""

    def wrong(right: Call, call: Invocation) -> None:
        written = next(iter(call.results()))

        def change(_: Any, x: Array) -> Array:
            narrower = written.dtype.kind in "iu" and x.dtype.kind in "iu" and x.itemsize > written.itemsize
            limits = np.iinfo(written.dtype) if narrower else None
            return x if limits is None else np.clip(x, limits.min, limits.max)

        right(call.with_inputs(change))

    if target.name in ("aten::copy_", "aten::_foreach_copy_"):
        yield "", lambda: wrong


def _overflows(target: Target) -> bool:
    return target.has_integers and bool(_OVERFLOWS.match(target.name))


def _narrow_overflows(target: Target) -> bool:
    narrow = target.dtypes & set(dt.INTEGERS) - {"int64"}
    summed = target.operator.dtype.startswith("summed")
    return _overflows(target) and bool(narrow) and not summed and bool(target.schema.outputs)


def _reads_integers(dtypes: set[str]) -> Callable[[Target], bool]:
    return lambda target: target.reads and bool(dtypes & target.dtypes)


MUTATIONS = (
    Mutation("integers cut to 32 bits", mutate_simply(_cut(np.int32), _reads_integers({"int64"}))),
    Mutation("integers cut to 16 bits", mutate_simply(_cut(np.int16), _reads_integers({"int32", "int64"}))),
    Mutation(
        "integers by way of float32",
        mutate_simply(_by_way_of(np.float32), _reads_integers({"int32", "int64"})),
    ),
    Mutation("integers by way of float64", mutate_simply(_by_way_of(np.float64), _reads_integers({"int64"}))),
    Mutation("integers saturate", mutate_simply(_saturating, _narrow_overflows)),
    Mutation(
        "int64 saturates at 32 bits",
        mutate_simply(_sums_saturate, lambda target: _overflows(target) and bool({"int64"} & target.dtypes)),
    ),
    Mutation("conversion clamps", _conversion_clamps),
    Mutation("indices cut to 16 bits", _per_index(lambda x: x.astype(np.int16).astype(x.dtype))),
    Mutation("indices cut to 8 bits", _per_index(lambda x: x.astype(np.uint8).astype(x.dtype))),
    Mutation("int32 indices read as int64", _index_dtype_assumed(np.int64)),
    Mutation("int64 indices read as int32", _index_dtype_assumed(np.int32)),
)
