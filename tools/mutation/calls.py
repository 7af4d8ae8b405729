"""Mutations across calls: cached results, missing waits for streams, random seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.library import HOST
from isthmus.opset.schema import Argument
from tools.mutation.kernel import Array, Call, Invocation, Target, flat
from tools.mutation.mutant import Mutation, Wrong, simply


def _shapes(call: Invocation) -> tuple[Any, ...]:
    arrays = [(x.shape, x.strides, str(x.dtype)) for x in [*call.read(), *call.results()]]
    numbers = [str(v) for a, v in zip(call.schema.inputs, call.inputs, strict=True) if not a.is_tensor]
    return (tuple(arrays), tuple(numbers))


def _remembering() -> Wrong:
    remembered: dict[tuple[Any, ...], list[Array]] = {}

    def wrong(right: Call, call: Invocation) -> None:
        key = _shapes(call)
        if key not in remembered:
            right(call)
            remembered[key] = [np.array(x) for x in call.results()]
        for x, old in zip(call.results(), remembered[key], strict=True):
            x[...] = old

    return wrong


def _is_number(argument: Argument) -> bool:
    """Whether a compiled kernel would hold the argument as a constant: alpha, beta, eps, a learning rate."""
    return argument.base in ("Scalar", "float") and not argument.is_list


def _remembering_numbers() -> Wrong:
    """A kernel cache keyed by shapes, dtypes and flags only: a hit uses the numbers of the first call."""
    remembered: dict[Any, list[Any]] = {}

    def wrong(right: Call, call: Invocation) -> None:
        arguments = call.schema.inputs
        flags = [
            str(v) for a, v in zip(arguments, call.inputs, strict=True) if not (a.is_tensor or _is_number(a))
        ]
        first = remembered.setdefault((_shapes(call)[0], tuple(flags)), call.inputs)
        for index, argument in enumerate(arguments):
            if _is_number(argument):
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


def _seeded(seed: Callable[[int], int]) -> Callable[[], Wrong]:
    def wrong(right: Call, call: Invocation) -> None:
        given = call.context.seed
        call.context.seed = seed(given)
        try:
            right(call)
        finally:
            call.context.seed = given

    return lambda: wrong


def _seed_ignored(target: Target) -> Iterator[tuple[str, Callable[[], Wrong]]]:
    if target.random:
        yield "", _seeded(lambda seed: 1234)


def _seed_of_its_own(target: Target) -> Iterator[tuple[str, Callable[[], Wrong]]]:
    def counting() -> Wrong:
        calls = iter(range(1, 1 << 30))
        return _seeded(lambda seed: seed + next(calls))()

    if target.random:
        yield "", counting


def _unevenly(right: Call, call: Invocation) -> None:
    """Draw only half of the random numbers and use them twice."""
    right(call)
    for x in call.results():
        if x.ndim and x.shape[0] > 1:
            half = x.shape[0] // 2
            x[:half] = 0 if dt.name_of(x.dtype) == "bool" else x[half : 2 * half] * x.dtype.type(0.5)


def _stated(mutants: Callable[[], Wrong], applies: Callable[[Target], bool] = lambda t: True) -> Any:
    def made(target: Target) -> Iterator[tuple[str, Callable[[], Wrong]]]:
        if applies(target):
            yield "", mutants

    return made


def _has_tensors(target: Target) -> bool:
    return any(a.is_tensor for a in target.schema.inputs)


def _reads_tensors(target: Target) -> bool:
    return target.reads_tensors and not target.random


def _has_numbers(target: Target) -> bool:
    return any(_is_number(a) for a in target.schema.inputs) and _has_tensors(target) and not target.random


MUTATIONS = (
    Mutation("stale result", "the result of an earlier call with these shapes is returned again",
             _stated(_remembering, _reads_tensors)),
    Mutation("stale numbers", "a cached kernel keeps the alpha, eps or beta of the call that compiled it",
             _stated(_remembering_numbers, _has_numbers)),
    Mutation("stream ignored", "the kernel does not wait for earlier work on its stream",
             simply(lambda right, call: right(call), _has_tensors), HOST),
    Mutation("unsteady", "every second call changes the last bit", _stated(_unsteady)),
    Mutation("seed ignored", "the same random numbers in each call", _seed_ignored),
    Mutation("seed of its own", "other random numbers for the same seed", _seed_of_its_own),
    Mutation("uneven distribution", "half of the random numbers are halved",
             simply(_unevenly, lambda target: target.random)),
)  # fmt: skip
