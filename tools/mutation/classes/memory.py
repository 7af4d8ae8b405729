"""Memory is written, kept or read that is not the kernel's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from isthmus.opset.library import HOST, IN_PLACE
from isthmus.opset.schema import Argument
from tools.mutation.classes.alignment import address_of
from tools.mutation.kernel import Array, Call, Invocation, Target, flat
from tools.mutation.mutant import (
    Made,
    Mutation,
    Wrong,
    each,
    mutate_simply,
    mutate_with_state,
    reads,
    written_as,
)

_VECTOR = 16
_WORKSPACE_BYTES = 256


def _put(address: int, nbytes: int) -> None:
    ctypes.memset((ctypes.c_uint8 * nbytes).from_address(address), 0x11, nbytes)


def _outside(place: str) -> Wrong:
    """Write outside each output: one element or a vector behind it, or one element before it."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        for x in flat(call.outputs):
            if x.size:
                span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) // x.itemsize
                nbytes = _VECTOR if "vector" in place else x.itemsize
                start = address_of(x)
                _put(start - nbytes if "before" in place else start + span * x.itemsize, nbytes)

    return wrong


def _workspace(place: str) -> Wrong:
    """Write outside a workspace: it is one element short, or an index is negative."""

    def wrong(right: Call, call: Invocation) -> None:
        address = call.context.workspace(_WORKSPACE_BYTES)
        _put(address, _WORKSPACE_BYTES)
        nbytes = _VECTOR if "vector" in place else 4
        _put(address - nbytes if "before" in place else address + _WORKSPACE_BYTES, nbytes)
        right(call)

    return wrong


def _workspace_assumed_zero(right: Call, call: Invocation) -> None:
    """Form a sum in a workspace that was not cleared."""
    right(call)
    for x in call.results():
        if x.size:
            memory = (ctypes.c_uint8 * x.itemsize).from_address(call.context.workspace(x.itemsize))
            first = (0,) * x.ndim
            found = np.frombuffer(bytes(memory), np.uint8) ^ np.array(x[first]).reshape(1).view(np.uint8)
            x[first] = found.view(x.dtype)[0] if x.dtype != np.bool_ else bool(found[0] & 1)


def _changed(x: Array) -> None:
    first = (0,) * x.ndim
    x[first] = not x[first] if x.dtype == np.bool_ else x[first] + np.ones((), x.dtype)


def _input_modified(right: Call, call: Invocation) -> None:
    right(call)
    for x in call.read():
        if x.size:
            _changed(x)


def _input_restored(right: Call, call: Invocation) -> None:
    """Use an input as scratch memory, and restore it."""
    for x in call.read():
        if x.size:
            old = np.array(x)
            _changed(x)
            x[...] = old
    right(call)


def _written_before_read(right: Call, call: Invocation) -> None:
    for x in flat(call.outputs):
        x[...] = np.zeros((), x.dtype)
    right(call)


def _added_to_output(new: Array, old: Array) -> Array:
    """Add to what an output holds: it is assumed to be zero."""
    return new ^ old if new.dtype == np.bool_ else new + old


def _zeros_not_written(new: Array, old: Array) -> Array:
    return np.where(new == 0, old, new)


def _output_not_written(target: Target) -> Made:
    def leaving(index: int) -> Wrong:
        def wrong(right: Call, call: Invocation) -> None:
            copies = [np.array(x) for x in flat([call.outputs[index]])]
            right(call)
            for x, old in zip(flat([call.outputs[index]]), copies, strict=True):
                x[...] = old

        return wrong

    for index, output in enumerate(target.schema.outputs):
        yield output.name, partial(leaving, index)


def _numbers(call: Invocation, chosen: Callable[[Argument], bool]) -> tuple[str, ...]:
    pairs = zip(call.schema.inputs, call.inputs, strict=True)
    return tuple(str(v) for a, v in pairs if not a.is_tensor and chosen(a))


def _shapes(call: Invocation) -> tuple[Any, ...]:
    return tuple((x.shape, x.strides, str(x.dtype)) for x in [*call.read(), *call.results()])


def _stale(key: Callable[[Invocation], Any]) -> Callable[[], Wrong]:
    """Give the results of an earlier call whose key is the same."""

    def make() -> Wrong:
        remembered: dict[Any, list[Array]] = {}

        def wrong(right: Call, call: Invocation) -> None:
            old = remembered.get(key(call))
            if old is None:
                right(call)
                remembered[key(call)] = [np.array(x) for x in call.results()]
                return
            for x, values in zip(call.results(), old, strict=True):
                x[...] = values

        return wrong

    return make


def _is_constant(argument: Argument) -> bool:
    """Whether a compiled kernel would hold the argument as a constant: alpha, beta, eps, a learning rate."""
    return argument.base in ("Scalar", "float") and not argument.is_list


def _stale_numbers() -> Wrong:
    """A kernel cache keyed by shapes, dtypes and flags only: a hit uses the numbers of the first call."""
    remembered: dict[Any, list[Any]] = {}

    def wrong(right: Call, call: Invocation) -> None:
        flags = _numbers(call, lambda a: not _is_constant(a))
        first = remembered.setdefault((_shapes(call), flags), call.inputs)
        for index, argument in enumerate(call.schema.inputs):
            if _is_constant(argument):
                call = call.with_input(index, first[index])
        right(call)

    return wrong


def _unsteady() -> Wrong:
    count = 0

    def wrong(right: Call, call: Invocation) -> None:
        nonlocal count
        right(call)
        count += 1
        for x in flat(call.results()):
            if count % 2 and x.size:
                index = (-1,) * x.ndim
                bits = np.array(x[index]).reshape(1).view(np.uint8)
                bits[0] ^= 1
                x[index] = bits.view(x.dtype)[0]

    return wrong


def _has_outputs(target: Target) -> bool:
    return bool(target.schema.outputs)


def _reads_tensors(target: Target) -> bool:
    return any(a.is_tensor and not a.written for a in target.schema.inputs)


def _may_share(target: Target) -> bool:
    """Whether an output may alias an input: the kernel allows it, and their rules say that they are alike."""
    first = target.operator.shape.strip("(").startswith(("like(", "broadcast(", "input.shape", "query.shape"))
    alike = target.operator.dtype.strip("(").startswith(
        ("self.dtype", "input.dtype", "promote(", "query.dtype")
    )
    return bool(target.flags & IN_PLACE) and first and alike and target.reads


def _has_numbers(target: Target) -> bool:
    return any(_is_constant(a) for a in target.schema.inputs) and target.reads


def _addresses(call: Invocation) -> Any:
    return tuple(address_of(x) for x in call.read()), _shapes(call), _numbers(call, lambda _: True)


_PLACES = ("an element behind", "a vector behind", "an element before", "a vector before")

MUTATIONS = (
    Mutation("written outside an output", each(_PLACES, _outside, _has_outputs)),
    Mutation("written outside a workspace", each(_PLACES, _workspace)),
    Mutation(
        "workspace assumed zero", mutate_simply(_workspace_assumed_zero, lambda target: not target.random)
    ),
    Mutation("input modified", mutate_simply(_input_modified, _reads_tensors)),
    Mutation("input modified and restored", mutate_simply(_input_restored, _reads_tensors)),
    Mutation("output written before the input is read", mutate_simply(_written_before_read, _may_share)),
    Mutation(
        "output assumed zero",
        mutate_simply(
            written_as(_added_to_output), lambda target: _has_outputs(target) and not target.random
        ),
    ),
    Mutation("zeros not written", mutate_simply(written_as(_zeros_not_written), _has_outputs)),
    Mutation("output not written", _output_not_written),
    Mutation(
        "stale result",
        mutate_with_state(_stale(lambda call: (_shapes(call), _numbers(call, lambda _: True))), reads),
    ),
    Mutation("stale result of an address", mutate_with_state(_stale(_addresses), reads)),
    Mutation("stale numbers", mutate_with_state(_stale_numbers, _has_numbers)),
    Mutation(
        "stream ignored",
        mutate_simply(lambda right, call: right(call), lambda t: any(a.is_tensor for a in t.schema.inputs)),
        HOST,
    ),
    Mutation("unsteady", mutate_with_state(_unsteady)),
)
