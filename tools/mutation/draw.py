"""Draw mutants by seed."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable

from tools.mutation.mutant import CLASSES, Mutant


def draw(mutants: Iterable[Mutant], seed: int, per_class: int) -> list[Mutant]:
    """Draw mutants of each class, in turn from each of its mutation operators.

    The choice depends on the names alone, so that other revisions of the suite draw the same.

    Args:
        mutants: all mutants.
        seed: another seed gives another choice.
        per_class: number of each class; fewer where there are no more.
    """
    classes: dict[str, list[tuple[bytes, Mutant]]] = defaultdict(list)
    for mutant in mutants:
        key = hashlib.sha256(f"{seed} {mutant.name}".encode()).digest()
        classes[mutant.kind].append((key, mutant))
    chosen = []
    for kind in CLASSES:
        turn: Counter[str] = Counter()
        rows = []
        for key, mutant in sorted(classes[kind], key=lambda row: row[0]):
            rows.append((turn[mutant.mutation], key, mutant))
            turn[mutant.mutation] += 1
        rows.sort(key=lambda row: row[:2])
        chosen += [mutant for _, _, mutant in rows[:per_class]]
    return chosen


def named(mutants: Iterable[Mutant], names: Iterable[str]) -> list[Mutant]:
    """Return the mutants of these names.

    Raises:
        ValueError: no mutant has one of the names.
    """
    known = {mutant.name: mutant for mutant in mutants}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"{len(unknown)} unknown mutants, the first is {unknown[0]!r}; draw them again with --seed"
        )
    return [known[name] for name in names]
