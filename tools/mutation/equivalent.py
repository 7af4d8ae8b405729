"""Equivalent mutants: no input distinguishes them from the correct kernel. ``equivalent.toml`` has the proofs."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Equivalence(NamedTuple):
    """Patterns of operators (separated by spaces), mutation and detail, and why such mutants are equivalent."""

    operators: str
    mutation: str
    detail: str
    proof: str


def _read() -> tuple[Equivalence, ...]:
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["equivalent"]
    return tuple(Equivalence(r["operators"], r["mutation"], r.get("detail", ""), r["proof"]) for r in rows)


EQUIVALENCES = _read()


def names(entry: Equivalence, operators: Iterable[str]) -> list[str]:
    """Return the operators that an entry covers."""
    patterns = [p if p == "*" else f"aten::{p}" for p in entry.operators.split()]
    return [name for name in operators if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def find(operators: str, mutation: str, detail: str) -> Equivalence | None:
    """Return the entry that covers a mutant and all of its operators, or None.

    Mutants of lines that no specified call executes have no operators; neither have their entries.
    """
    meant = operators.split()
    for entry in EQUIVALENCES:
        same = fnmatch.fnmatchcase(mutation, entry.mutation) and fnmatch.fnmatchcase(detail, entry.detail)
        if same and names(entry, meant) == meant and bool(meant) == bool(entry.operators):
            return entry
    return None
