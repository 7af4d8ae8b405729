"""A mutant: a kernel with one mistake, and the common forms of mistakes around a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.schema import Argument
from tools.mutation import ranks
from tools.mutation.kernel import Array, Call, Invocation, Target, is_read

Wrong: TypeAlias = Callable[[Call, Invocation], None]
Made: TypeAlias = Iterator[tuple[str, Callable[[], Wrong]]]
CLASSES = (
    "indexing",
    "tiling",
    "tail",
    "alignment",
    "accumulation",
    "saturation",
    "special values",
    "arguments ignored",
    "layout assumed",
    "memory",
    "formula",
    "state",
)


@dataclass(frozen=True)
class Mutant:
    """One mistake in one kernel.

    Attributes:
        kernel: the operator, or the source file of a mistake in source text.
        kind: class of mistakes, one of ``CLASSES``.
        mutation: name of the mutation operator.
        detail: the changed part: an argument, a width, a line of source, a report; "" if there is only one.
        wrong: makes the call, given the correct kernel. Created for each trial, since some keep state. None for a
            mistake in source text.
        without: flags that the mutant does not declare.
        site: number of a mistake in source text.
    """

    kernel: str
    kind: str
    mutation: str
    detail: str
    wrong: Callable[[], Wrong] | None = None
    without: int = 0
    site: int = -1

    @property
    def name(self) -> str:
        """Identifies the mutant across revisions of the suite."""
        return f"{self.kernel}: {self.mutation}" + (f" ({self.detail})" if self.detail else "")


class Mutation(NamedTuple):
    """A mutation operator: its name, the function that creates its mutants, and flags that they do not declare."""

    name: str
    mutants: Callable[[Target], Made]
    without: int = 0

    def apply(self, target: Target, kind: str) -> Iterator[Mutant]:
        """Yield the mutants of a kernel; none if the mistake does not apply."""
        for detail, wrong in self.mutants(target):
            yield Mutant(target.name, kind, self.name, detail, wrong, self.without)


def always(target: Target) -> bool:
    """Apply to every kernel."""
    return True


def reads(target: Target) -> bool:
    """Apply to kernels that compute on the values of tensors."""
    return target.reads


def reads_floats(target: Target) -> bool:
    """Apply to kernels that compute on the values of floating-point tensors."""
    return target.reads and target.has_floats


def reads_many(target: Target) -> bool:
    """Apply to kernels that compute on the values of tensors with dimensions."""
    return target.reads and target.rank_read > 0


def reads_rows(target: Target) -> bool:
    """Apply to kernels that compute on the values of tensors with rows."""
    return target.reads and target.rank_read > 1


def has_many(target: Target) -> bool:
    """Apply to kernels whose results can have more than one element."""
    return target.rank_written > 0


def has_rows(target: Target) -> bool:
    """Apply to kernels whose results can have rows."""
    return target.rank_written > 1


def mutate_simply(wrong: Wrong, applies: Callable[[Target], bool] = always) -> Callable[[Target], Made]:
    """Make one mutant of a stateless mistake where it applies."""
    return mutate_with_state(lambda: wrong, applies)


def mutate_with_state(
    make: Callable[[], Wrong], applies: Callable[[Target], bool] = always
) -> Callable[[Target], Made]:
    """Make one mutant of a mistake that keeps state."""

    def mutants(target: Target) -> Made:
        if applies(target):
            yield "", make

    return mutants


def each(
    values: Iterable[Any], make: Callable[..., Wrong], applies: Callable[[Target], bool] = always
) -> Callable[[Target], Made]:
    """Make one mutant of ``make(value)`` for each value, such as a width."""
    rows = list(values)

    def mutants(target: Target) -> Made:
        if applies(target):
            for value in rows:
                yield str(value), partial(make, value)

    return mutants


def per_input(
    applies: Callable[[Target, Argument], bool], change: Callable[[Argument, Any], Any]
) -> Callable[[Target], Made]:
    """Make one mutant for each input to which it applies, which the kernel reads as ``change(argument, value)``."""

    def reading(index: int, argument: Argument) -> Wrong:
        return lambda right, call: right(call.with_input(index, change(argument, call.inputs[index])))

    def mutants(target: Target) -> Made:
        for index, argument in enumerate(target.schema.inputs):
            if applies(target, argument):
                yield argument.name, partial(reading, index, argument)

    return mutants


def per_tensor(
    change: Callable[[Array], Array], applies: Callable[[Target], bool] = reads, least: int = 0
) -> Callable[[Target], Made]:
    """Make one mutant for each tensor input of some rank or more, which the kernel reads as ``change(array)``."""

    def fits(target: Target, argument: Argument) -> bool:
        return (
            applies(target) and is_read(argument) and ranks.largest_rank(target.name, argument.name) >= least
        )

    return per_input(fits, lambda _, x: x if x is None or not x.size else change(x))


def read_as(change: Callable[[Array], Array]) -> Wrong:
    """Make a kernel that reads every tensor as ``change(array)``."""
    return lambda right, call: right(call.with_inputs(lambda _, x: change(x) if x.size else x))


def written_as(change: Callable[[Array, Array], Array]) -> Wrong:
    """Make a kernel that writes ``change(result, content before the call)`` to each result, both row-major."""

    def wrong(right: Call, call: Invocation) -> None:
        before = [np.array(x, order="C") for x in call.results()]
        right(call)
        with np.errstate(all="ignore"):
            for x, old in zip(call.results(), before, strict=True):
                if x.size:
                    x[...] = change(np.array(x, order="C"), old).reshape(x.shape)

    return wrong


def leaves(start: Callable[[int], int]) -> Wrong:
    """Make a kernel that does not write the elements from ``start(number of elements)`` on."""

    def change(new: Array, old: Array) -> Array:
        first = start(new.size)
        new.reshape(-1)[first:] = old.reshape(-1)[first:]
        return new

    return written_as(change)


def leaves_along(axis: int, start: Callable[[int], int]) -> Wrong:
    """Make a kernel that does not write what is at ``start(size)`` and beyond along an axis, -1 or -2."""

    def change(new: Array, old: Array) -> Array:
        if new.ndim >= -axis:
            index: tuple[Any, ...] = (..., slice(start(new.shape[axis]), None), *[slice(None)] * (-axis - 1))
            new[index] = old[index]
        return new

    return written_as(change)


def count_in_whole_blocks(n: int, block: int) -> int:
    """Return how many of n elements are in whole blocks; all of them if there is not a whole one."""
    return n - n % block or n


def is_float(x: Array) -> bool:
    """Whether an array is floating-point."""
    return dt.name_of(x.dtype) in dt.FLOATS


def floats_as(change: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Apply a change to floating-point arrays only."""

    def changed(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return change(x) if is_float(x) else x

    return changed
