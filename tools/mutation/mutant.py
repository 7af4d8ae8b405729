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
        detail: what of the kernel it changed: an argument, a line of source, a report; "" if there is no choice.
        wrong: makes the call, given the right kernel. Made anew for each trial, since some keep state.
        without: flags that the kernel no longer declares.
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
    """A mutation operator: its name, the mistake that it stands for, and what it makes of a kernel."""

    name: str
    text: str
    mutants: Callable[[Target], Iterator[tuple[str, Callable[[], Wrong]]]]
    without: int = 0

    def apply(self, target: Target) -> Iterator[Mutant]:
        """Its mutants of a kernel; none where the mistake cannot be made."""
        for detail, wrong in self.mutants(target):
            yield Mutant(target.name, self.name, detail, wrong, self.without)


def simply(wrong: Wrong, applies: Callable[[Target], bool] = lambda target: True) -> Any:
    """The mutants of a mistake without state or choice: one where it applies."""

    def mutants(target: Target) -> Iterator[tuple[str, Callable[[], Wrong]]]:
        if applies(target):
            yield "", lambda: wrong

    return mutants
