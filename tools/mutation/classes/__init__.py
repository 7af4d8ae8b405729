"""The mistakes around a kernel, one module for each class: the first word of its name."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from tools.mutation.kernel import Target
from tools.mutation.mutant import CLASSES, Mutant, Mutation

MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    kind: import_module(f"{__name__}.{kind.split()[0]}").MUTATIONS for kind in CLASSES
}


def mutants(target: Target) -> Iterator[Mutant]:
    """Yield the mutants around a kernel."""
    for kind, mutations in MUTATIONS.items():
        for mutation in mutations:
            yield from mutation.apply(target, kind)
