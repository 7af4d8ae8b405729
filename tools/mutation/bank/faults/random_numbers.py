"""Faults of random numbers: their seeds and their distribution."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tools.mutation.bank.faults.common import after, wide
from tools.mutation.bank.faults.states import shapes_of
from tools.mutation.classes.alignment import address_of
from tools.mutation.kernel import Call, Invocation
from tools.mutation.mutant import Wrong

# State of random numbers.


def seeded(choose: Callable[[Invocation], int]) -> Wrong:
    """Draw with another seed."""

    def wrong(right: Call, call: Invocation) -> None:
        given = call.context.seed
        call.context.seed = choose(call) % 2**63
        try:
            right(call)
        finally:
            call.context.seed = given

    return wrong


def seed_kept(by: str = "shapes") -> Wrong:
    """Draw with the seed of the first call with the same shapes."""
    first: dict[Any, int] = {}
    return seeded(lambda call: first.setdefault(shapes_of(call, by), int(call.context.seed)))


def own_seed() -> Wrong:
    """Draw from a sequence of its own, whatever the seed."""
    calls = itertools.count(20220)
    return seeded(lambda call: next(calls))


def address_as_seed() -> Wrong:
    """Take the address of the seed for the seed."""
    return seeded(lambda call: address_of(call.results()[0]) // 16 + id(call.context))


# Distribution.


@after
def pairs_repeated(call: Invocation) -> None:
    """Give the second two of each four numbers the values of the first two, in float32."""
    x = call.inputs[0]
    if x.dtype == np.float32:
        values = np.array(x).reshape(-1)
        count = values.size // 4 * 4
        values[2:count:4], values[3:count:4] = values[0:count:4], values[1:count:4]
        x[...] = values.reshape(x.shape)


@after
def even_numbers(call: Invocation) -> None:
    x = call.inputs[0]
    if x.dtype.kind in "iu":
        x[...] = np.bitwise_and(x, np.array(-2).astype(x.dtype))


@after
def sorted_runs(call: Invocation) -> None:
    """Permute by sorting keys that are only 0 or 1: two ascending runs."""
    out = call.outputs[0]
    keys = np.array(out) & 1 if out.dtype.kind in "iu" else np.array(out).astype(np.int64) & 1
    out[...] = np.argsort(keys, kind="stable")


@after
def upper_bound_included(call: Invocation) -> None:
    """Exclude the lower bound and include the upper one."""
    x, low, high = call.inputs
    x[...] = low + (high - wide(x))


@after
def always_zero(call: Invocation) -> None:
    for x in call.results():
        x[...] = np.zeros((), x.dtype)


def zero_beyond(count: int) -> Wrong:
    """Draw nothing for elements beyond the states of the generator."""

    @after
    def wrong(call: Invocation) -> None:
        x = call.results()[0]
        if x.size > count:
            values = np.array(x).reshape(-1)
            values[count:] = 0
            x[...] = values.reshape(x.shape)

    return wrong


def zero_without_inner(right: Call, call: Invocation) -> None:
    """Set the result to zero, whatever beta, if a product is empty."""
    right(call)
    _, a, b = call.inputs[:3]
    if not a.size or not b.size:
        call.outputs[0][...] = 0
