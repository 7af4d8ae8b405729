"""Equivalent mutants: no input distinguishes them from the correct kernel. ``equivalent.toml`` has the proofs."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Equivalence(NamedTuple):
    """A pattern of mutants, as named after the kernel, patterns of their operators, and why they are equivalent."""

    mistake: str
    operators: str
    proof: str


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
EQUIVALENCES = tuple(
    Equivalence(mistake, operators, proof)
    for proof, rows in _TABLES.items()
    for mistakes, operators in rows.items()
    for mistake in mistakes.split(" | ")
)


def names(entry: Equivalence, operators: Iterable[str]) -> list[str]:
    """Return the operators that an entry covers."""
    patterns = [p if p == "*" or "::" in p else f"aten::{p}" for p in entry.operators.split()]
    return [name for name in operators if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def find(mistake: str, operators: str) -> Equivalence | None:
    """Return the entry that covers a mutant and all of its operators, or None.

    Mutants of lines that no case executes have no operators: only entries of every operator cover them.
    """
    meant = operators.split()
    for entry in EQUIVALENCES:
        covered = names(entry, meant) == meant and (meant or entry.operators == "*")
        if covered and fnmatch.fnmatchcase(mistake, entry.mistake):
            return entry
    return None
