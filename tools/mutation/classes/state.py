"""Results depend on earlier calls or on concurrent ones; the bank plants the reported ones of these mistakes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from isthmus.opset.library import STRIDED
from isthmus.opset.schema import Argument
from tools.mutation.classes.alignment import address_of
from tools.mutation.kernel import Array, Call, Invocation, Target
from tools.mutation.mutant import (
    Made,
    Mutation,
    Wrong,
    each,
    has_many,
    has_rows,
    is_float,
    leaves,
    mutate_with_state,
    reads,
    reads_floats,
    reads_rows,
)

_CALLS = (50, 400)  # a call among so many is wrong
_SECONDS = 0.01  # a scratch result is found again for so long


def _dtypes(call: Invocation) -> tuple[Any, ...]:
    return tuple((str(x.dtype), x.ndim) for x in [*call.read(), *call.results()])


def _shapes(call: Invocation) -> tuple[Any, ...]:
    return tuple((str(x.dtype), x.shape) for x in [*call.read(), *call.results()])


def _numbers(call: Invocation, without: int = -1) -> tuple[str, ...]:
    """Return the arguments that are no tensors, without the one at a position."""
    pairs = enumerate(zip(call.schema.inputs, call.inputs, strict=True))
    return tuple(str(v) for i, (a, v) in pairs if not a.is_tensor and i != without)


def _firsts(call: Invocation) -> tuple[bytes, ...]:
    """Return the first element of each tensor that is read."""
    return tuple(np.array(x[(0,) * x.ndim]).tobytes() if x.size else b"" for x in call.read())


def _copies(call: Invocation) -> list[Array]:
    return [np.array(x) for x in call.results()]


def _write(call: Invocation, values: list[Array]) -> None:
    for x, value in zip(call.results(), values, strict=True):
        x[...] = value


def _one_of(count: int) -> Wrong:
    """Give the last element of each result another value in one of so many calls."""
    calls = 0

    def wrong(right: Call, call: Invocation) -> None:
        nonlocal calls
        right(call)
        calls += 1
        for x in call.results():
            if calls % count == 0 and x.size:
                last = (-1,) * x.ndim
                x[last] = not x[last] if x.dtype == np.bool_ else x[last] + np.ones((), x.dtype)

    return wrong


def _answered_from(key: Callable[[Invocation], Any]) -> Callable[[], Wrong]:
    """Give the results of the first call with the same key."""

    def make() -> Wrong:
        answers: dict[Any, list[Array]] = {}

        def wrong(right: Call, call: Invocation) -> None:
            known = key(call)  # before the call, which may modify its tensors
            if known in answers:
                return _write(call, answers[known])
            right(call)
            answers[known] = _copies(call)
            return None

        return wrong

    return make


def _kept(index: int) -> Wrong:
    """Compile the first value of an argument into the kernel of these shapes."""
    first: dict[Any, Any] = {}

    def wrong(right: Call, call: Invocation) -> None:
        key = _shapes(call), _numbers(call, index)
        right(call.with_input(index, first.setdefault(key, call.inputs[index])))

    return wrong


def _is_compiled_in(argument: Argument) -> bool:
    return not argument.is_tensor and not argument.is_list and argument.base != "ScalarType"


def _argument_kept(target: Target) -> Made:
    for index, argument in enumerate(target.schema.inputs):
        if _is_compiled_in(argument) and target.reads:
            yield argument.name, partial(_kept, index)


def _first_size() -> Wrong:
    """Write as many elements as the first call of these dtypes and ranks had: a large call after a small one."""
    first: dict[Any, int] = {}

    def wrong(right: Call, call: Invocation) -> None:
        size = max((x.size for x in call.results()), default=0)
        count = first.setdefault((_dtypes(call), _numbers(call)), size)
        leaves(lambda n: min(n, count))(right, call)

    return wrong


def _first_of_shapes() -> Wrong:
    """Try other code in the first call of these shapes, as a kernel does that tunes itself, and keep its results."""
    known: set[Any] = set()

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        key = _shapes(call)
        for x in call.results() if key not in known else ():
            x[...] = np.zeros((), x.dtype)
        known.add(key)

    return wrong


def _first_strides() -> Wrong:
    """Read a tensor of other strides than in the first call of these shapes in the order of memory."""
    first: dict[Any, tuple[int, ...]] = {}

    def wrong(right: Call, call: Invocation) -> None:
        def planned(argument: Argument, x: Array) -> Array:
            strides = first.setdefault((argument.name, _shapes(call), _numbers(call)), x.strides)
            return x if x.strides == strides or not x.size else np.ravel(x, "K").reshape(x.shape)

        right(call.with_inputs(planned))

    return wrong


def _first_dtype() -> Wrong:
    """Round the results to the dtype of the first call of these sizes, if it is narrower."""
    first: dict[Any, np.dtype[Any]] = {}

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        for number, x in enumerate(call.results()):
            if is_float(x):
                kind = first.setdefault((number, x.shape, _numbers(call)), x.dtype)
                with np.errstate(all="ignore"):
                    x[...] = x.astype(kind) if kind.itemsize < x.dtype.itemsize else x

    return wrong


def _largest_size() -> Wrong:
    """Read what a larger call left in a scratch buffer behind the elements of a small one."""
    scratch: dict[Any, Array] = {}

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        for number, x in enumerate(call.results()):
            key = str(x.dtype), x.ndim, number
            flat, left = np.array(x).reshape(-1), scratch.get(key)
            if left is None or left.size <= flat.size:
                scratch[key] = flat
            elif flat.size:
                x[(-1,) * x.ndim] = left[flat.size]

    return wrong


def _soon_again() -> Wrong:
    """Give the scratch result of the last call if one of the same shapes follows soon."""
    last: dict[Any, tuple[float, list[Array]]] = {}

    def wrong(right: Call, call: Invocation) -> None:
        key = _shapes(call), _numbers(call)
        then, values = last.get(key, (0.0, []))
        if time.monotonic() - then < _SECONDS and values:
            _write(call, values)
        else:
            right(call)
        last[key] = time.monotonic(), _copies(call)

    return wrong


def _two_buffers() -> Wrong:
    """Alternate two scratch buffers, and give the result of the wrong one in every third call of the same shapes."""
    calls: dict[Any, int] = {}
    last: dict[Any, list[Array]] = {}

    def wrong(right: Call, call: Invocation) -> None:
        key = _shapes(call), _numbers(call)
        right(call)
        calls[key] = calls.get(key, 0) + 1
        now = _copies(call)
        if calls[key] % 3 == 0:
            _write(call, last[key])
        last[key] = now

    return wrong


def _arguments_shared() -> Wrong:
    """Keep the arguments of a launch where the next one, perhaps of another thread, puts its own."""
    buffer: list[Invocation] = []

    def wrong(right: Call, call: Invocation) -> None:
        buffer[:] = [call]
        time.sleep(0)
        right(buffer[0])

    return wrong


def _is_certain(target: Target) -> bool:
    return not target.random


def _places(call: Invocation) -> Any:
    return tuple(address_of(x) for x in [*call.read(), *call.results()])


def _sizes(call: Invocation) -> Any:
    return tuple((str(x.dtype), x.shape) for x in call.read()), tuple(x.shape for x in call.results())


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("one of many calls", each(_CALLS, _one_of, _is_certain)),
    Mutation(
        "answered by address and first element",
        mutate_with_state(
            _answered_from(lambda call: (_places(call), _shapes(call), _firsts(call), _numbers(call))), reads
        ),
    ),
    Mutation(
        "answered by shape and first element",
        mutate_with_state(_answered_from(lambda call: (_shapes(call), _firsts(call), _numbers(call))), reads),
    ),
    Mutation(
        "answered by shape and numbers",
        mutate_with_state(_answered_from(lambda call: (_sizes(call), _numbers(call))), reads),
    ),
    Mutation("argument of the first call", _argument_kept),
    Mutation("first call of these shapes", mutate_with_state(_first_of_shapes, reads)),
    Mutation(
        "strides of the first call",
        mutate_with_state(
            _first_strides, lambda t: reads_rows(t) and has_rows(t) and bool(t.flags & STRIDED)
        ),
    ),
    Mutation(
        "dtype of the first call",
        mutate_with_state(_first_dtype, lambda t: reads_floats(t) and t.float_results),
    ),
    Mutation("size of the first call", mutate_with_state(_first_size, has_many)),
    Mutation(
        "rest of a larger call", mutate_with_state(_largest_size, lambda t: has_many(t) and _is_certain(t))
    ),
    Mutation("scratch result found again", mutate_with_state(_soon_again, reads)),
    Mutation("wrong scratch buffer", mutate_with_state(_two_buffers, reads)),
    Mutation("arguments shared by concurrent calls", mutate_with_state(_arguments_shared)),
)
