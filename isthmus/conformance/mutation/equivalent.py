"""Mutants that no input can tell from the right kernel, each with the proof."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import NamedTuple


class Equivalence(NamedTuple):
    """Patterns of operators (separated by spaces), mutation and detail, and why such a mutant is no mistake."""

    operators: str
    mutation: str
    detail: str
    proof: str


EQUIVALENCES: tuple[Equivalence, ...] = ()


def names(entry: Equivalence, operators: Iterable[str]) -> list[str]:
    """The operators that an entry is about."""
    patterns = entry.operators.split()
    return [name for name in operators if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def proof(operators: str, mutation: str, detail: str) -> str:
    """Why a mutant is equivalent; "" if nothing says so. Of several operators, all have to be meant."""
    for entry in EQUIVALENCES:
        meant = operators.split()
        same = fnmatch.fnmatchcase(mutation, entry.mutation) and fnmatch.fnmatchcase(detail, entry.detail)
        if same and meant and names(entry, meant) == meant:
            return entry.proof
    return ""
