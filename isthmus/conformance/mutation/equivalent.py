"""Mutants that no input can tell from the right kernel, each with the proof."""

from __future__ import annotations

import fnmatch
from typing import NamedTuple


class Equivalence(NamedTuple):
    """Patterns of operators (separated by spaces), mutation and detail, and why such a mutant is no mistake."""

    operators: str
    mutation: str
    detail: str
    proof: str


EQUIVALENCES: tuple[Equivalence, ...] = ()


def proof(operators: str, mutation: str, detail: str) -> str:
    """Why a mutant is equivalent; "" if nothing says so. Of several operators, all have to match."""
    for entry in EQUIVALENCES:
        patterns = entry.operators.split()
        matches = all(
            any(fnmatch.fnmatchcase(name, p) for p in patterns) for name in operators.split() or [""]
        )
        if (
            matches
            and fnmatch.fnmatchcase(mutation, entry.mutation)
            and fnmatch.fnmatchcase(detail, entry.detail)
        ):
            return entry.proof
    return ""
