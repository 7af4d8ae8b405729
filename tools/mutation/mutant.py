"""A mutant: a kernel with one mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tools.mutation.kernel import Call, Invocation, Target

Wrong: TypeAlias = Callable[[Call, Invocation], None]


@dataclass(frozen=True)
class Mutant:
    """One mistake in one kernel.

    Attributes:
        operator: whose kernel it is.
        mutation: name of the mutation operator.
        detail: the changed part of the kernel: an argument, a line of source, a report; "" if there is only one.
        wrong: makes the call, given the correct kernel. Created for each trial, since some keep state.
        without: flags that the mutant does not declare.
    """

    operator: str
    mutation: str
    detail: str
    wrong: Callable[[], Wrong]
    without: int = 0

    @property
    def title(self) -> str:
        """For messages."""
        return f"{self.operator}: {self.mutation}" + (f" ({self.detail})" if self.detail else "")


class Mutation(NamedTuple):
    """A mutation operator: its name, the mistake it models, and the function that creates its mutants."""

    name: str
    text: str
    mutants: Callable[[Target], Iterator[tuple[str, Callable[[], Wrong]]]]
    without: int = 0

    def apply(self, target: Target) -> Iterator[Mutant]:
        """Yield the mutants of a kernel; none if the mistake does not apply."""
        for detail, wrong in self.mutants(target):
            yield Mutant(target.name, self.name, detail, wrong, self.without)


def simply(wrong: Wrong, applies: Callable[[Target], bool] = lambda target: True) -> Any:
    """Return a mutation function for a stateless mistake: one mutant where it applies."""

    def mutants(target: Target) -> Iterator[tuple[str, Callable[[], Wrong]]]:
        if applies(target):
            yield "", lambda: wrong

    return mutants
