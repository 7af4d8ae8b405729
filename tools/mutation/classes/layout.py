"""A layout is assumed that the tensor does not have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from isthmus.opset.library import STRIDED
from tools.mutation import ranks
from tools.mutation.kernel import Array, Call, Invocation, Target
from tools.mutation.mutant import Made, Mutation, Wrong, each, per_tensor, read_as


def with_strides(x: Array, strides: list[int]) -> Array:
    """Read a tensor with other strides, in elements; beyond its memory lie the inverted bits of its last element."""
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) // x.itemsize
    memory = np.lib.stride_tricks.as_strided(x, (span,), (x.itemsize,))
    beyond = ~memory[-1:] if x.dtype == np.bool_ else (~memory[-1:].view(np.uint8)).view(x.dtype)
    index = np.zeros(x.shape, np.int64)
    for axis, (n, stride) in enumerate(zip(x.shape, strides, strict=True)):
        index += (np.arange(n) * stride).reshape(-1, *(1,) * (x.ndim - axis - 1))
    return np.concatenate([memory, beyond])[np.minimum(index, span)]


def dense(shape: tuple[int, ...]) -> list[int]:
    """Return the strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return strides[::-1]


def _elements(x: Array) -> list[int]:
    return [stride // x.itemsize for stride in x.strides]


def _contiguous(x: Array) -> Array:
    return x if x.flags.c_contiguous else with_strides(x, dense(x.shape))


def _is_expanded(x: Array) -> bool:
    return any(n > 1 and s == 0 for n, s in zip(x.shape, x.strides, strict=True))


def _is_permuted(x: Array) -> bool:
    """Whether the tensor is dense in another order of dimensions."""
    kept = [(n, s) for n, s in zip(x.shape, x.strides, strict=True) if n > 1]
    ordered = sorted(kept, key=lambda pair: -pair[1])
    sizes = tuple(n for n, _ in ordered)
    return ordered != kept and [s // x.itemsize for _, s in ordered] == dense(sizes)


def _has_gaps(x: Array) -> bool:
    return not x.flags.c_contiguous and not _is_expanded(x) and not _is_permuted(x)


def _only(applies: Callable[[Array], bool]) -> Callable[[Array], Array]:
    return lambda x: _contiguous(x) if applies(x) else x


def _last_assumed_one(x: Array) -> Array:
    """Read neighbors in a row as neighbors in memory; only the other strides are used."""
    strides = _elements(x)
    return with_strides(x, [*strides[:-1], 1]) if x.ndim and x.shape[-1] > 1 and strides[-1] != 1 else x


def _outer_assumed(x: Array) -> Array:
    """Read dimensions outside the last two as dense above them, as a batch of matrices with a row pitch."""
    strides = _elements(x)
    for axis in range(x.ndim - 3, -1, -1):
        strides[axis] = strides[axis + 1] * x.shape[axis + 1]
    return x if strides == _elements(x) else with_strides(x, strides)


def _size_one_used(x: Array) -> Array:
    """Take the pitch of the dimensions inside from the stride of a dimension of size 1."""
    strides = _elements(x)
    for axis in range(x.ndim - 1):
        if x.shape[axis] == 1 and strides[axis] != strides[axis + 1] * x.shape[axis + 1]:
            strides[axis + 1] = strides[axis]
    return x if strides == _elements(x) else with_strides(x, strides)


def _ranks_collapsed(rank: int) -> Wrong:
    """Collapse the dimensions beyond a rank into the outermost one kept, whatever their strides."""

    def change(x: Array) -> Array:
        extra = x.ndim - rank
        if extra <= 0:
            return x
        strides = _elements(x)
        for axis in range(extra - 1, -1, -1):
            strides[axis] = strides[axis + 1] * x.shape[axis + 1]
        return x if strides == _elements(x) else with_strides(x, strides)

    return read_as(change)


def _ranks_dropped(rank: int) -> Wrong:
    """Use the strides of the last dimensions alone: those beyond a rank do not move the address."""

    def change(x: Array) -> Array:
        extra = x.ndim - rank
        strides = _elements(x)
        return with_strides(x, [0] * extra + strides[extra:]) if extra > 0 else x

    return read_as(change)


def _matrix_transposed(x: Array) -> Array:
    """Take a matrix whose first stride is 1 for a transposed one, although it has one row or one column."""
    strides = _elements(x)
    if x.ndim < 2 or strides[-2] != 1 or 1 not in x.shape[-2:]:
        return x
    return with_strides(x, [*strides[:-2], 1, x.shape[-2]])


def _strided(target: Target) -> bool:
    return bool(target.flags & STRIDED) and target.operator.strided and target.reads


def _beyond(rows: tuple[int, ...], make: Callable[[int], Wrong]) -> Callable[[Target], Made]:
    """Make a mutant for each rank that a tensor can exceed."""
    return lambda target: each([rank for rank in rows if target.rank_read > rank], make, _strided)(target)


def _written_dense(target: Target) -> Made:
    """Write an argument as if it were contiguous."""

    def writing(index: int) -> Wrong:
        def wrong(right: Call, call: Invocation) -> None:
            x = call.inputs[index]
            if not isinstance(x, np.ndarray) or x.flags.c_contiguous or not x.size or _is_expanded(x):
                return right(call)
            inner = np.array(x, order="C")
            right(call.with_input(index, inner))
            memory = np.lib.stride_tricks.as_strided(x, (x.size,), (x.itemsize,))
            memory[...] = inner.reshape(-1)
            return None

        return wrong

    if target.flags & STRIDED and target.operator.strided:
        for index, argument in enumerate(target.schema.inputs):
            if argument.written and not argument.is_list and ranks.largest_rank(target.name, argument.name):
                yield argument.name, partial(writing, index)


MUTATIONS = (
    Mutation("strides ignored", per_tensor(_contiguous, _strided, 1)),
    Mutation("expanded read as dense", per_tensor(_only(_is_expanded), _strided, 1)),
    Mutation("transposed read as contiguous", per_tensor(_only(_is_permuted), _strided, 2)),
    Mutation("gaps ignored", per_tensor(_only(_has_gaps), _strided, 1)),
    Mutation("last stride assumed 1", per_tensor(_last_assumed_one, _strided, 1)),
    Mutation("outer strides assumed", per_tensor(_outer_assumed, _strided, 3)),
    Mutation("stride of size 1 used", per_tensor(_size_one_used, _strided, 2)),
    Mutation("one row taken for transposed", per_tensor(_matrix_transposed, _strided, 2)),
    Mutation("ranks collapsed", _beyond((2, 3, 4, 5), _ranks_collapsed)),
    Mutation("ranks dropped", _beyond((4, 5, 6), _ranks_dropped)),
    Mutation("argument written as contiguous", _written_dense),
)
