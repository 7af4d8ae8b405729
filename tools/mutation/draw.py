"""Draw mutants by seed."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable

from tools.mutation.mutant import CLASSES, Mutant


def draw(mutants: Iterable[Mutant], seeds: Iterable[int], per_class: int) -> list[Mutant]:
    """Draw mutants of each class, in turn from each of its mutation operators.

    The choice depends on the names alone, so that other revisions of the suite draw the same.

    Each seed adds its choice: ``per_class`` of each class, or all where there are fewer.
    """
    classes: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        classes[mutant.kind].append(mutant)
    drawn = (
        mutant for seed in seeds for kind in CLASSES for mutant in _of_class(classes[kind], seed)[:per_class]
    )
    return list({mutant.name: mutant for mutant in drawn}.values())


def _of_class(mutants: Iterable[Mutant], seed: int) -> list[Mutant]:
    """Return the mutants of a class in the order of their draw."""
    turn: Counter[str] = Counter()
    rows = []
    for key, mutant in sorted(((_key(m, seed), m) for m in mutants), key=lambda row: row[0]):
        rows.append((turn[mutant.mutation], key, mutant))
        turn[mutant.mutation] += 1
    return [mutant for _, _, mutant in sorted(rows, key=lambda row: row[:2])]


def _key(mutant: Mutant, seed: int) -> bytes:
    return hashlib.sha256(f"{seed} {mutant.name}".encode()).digest()


def choose_named(mutants: Iterable[Mutant], names: Iterable[str]) -> list[Mutant]:
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
