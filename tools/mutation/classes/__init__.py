"""The mistakes around a kernel, one module for each class."""

from __future__ import annotations

from collections.abc import Iterator

from tools.mutation.classes import (
    accumulation,
    alignment,
    arguments,
    formula,
    indexing,
    layout,
    memory,
    saturation,
    special,
    tail,
    tiling,
)
from tools.mutation.kernel import Target
from tools.mutation.mutant import CLASSES, Mutant, Mutation

_MODULES = (
    indexing, tiling, tail, alignment, accumulation, saturation, special, arguments, layout, memory, formula,
)  # fmt: skip
MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    name: module.MUTATIONS for name, module in zip(CLASSES, _MODULES, strict=True)
}


def mutants(target: Target) -> Iterator[Mutant]:
    """Yield the mutants around a kernel."""
    for kind, mutations in MUTATIONS.items():
        for mutation in mutations:
            yield from mutation.apply(target, kind)
