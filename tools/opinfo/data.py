"""Settings of single operators, read from the TOML files in this folder."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .compare import Compared

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Expected:
    """An expected failure: operator and dtype may hold wildcards; parts is empty for all parts."""

    op: str
    reason: str
    dtypes: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    def covers(self, op: str, dtype: str, part: str) -> bool:
        return (
            fnmatchcase(op, self.op)
            and (not self.dtypes or dtype in self.dtypes)
            and (not self.parts or part in self.parts)
        )


@functools.cache
def _read(name: str) -> dict[str, Any]:
    with (FOLDER / name).open("rb") as file:
        return tomllib.load(file)


@functools.cache
def expected_failures() -> tuple[Expected, ...]:
    """Return the entries of xfail.toml."""
    rows = _read("xfail.toml").get("xfail", [])
    return tuple(
        Expected(row["op"], row["reason"], tuple(row.get("dtypes", ())), tuple(row.get("parts", ())))
        for row in rows
    )


def expected_failure(op: str, dtype: str, part: str) -> Expected | None:
    """Return the entry that covers a failure, if any."""
    return next((entry for entry in expected_failures() if entry.covers(op, dtype, part)), None)


def _listed(table: str, op: str) -> bool:
    return any(fnmatchcase(op, pattern) for pattern in _read("special.toml")[table])


def compared(op: str) -> Compared:
    """Return what has to agree with the CPU's results."""
    if _listed("metadata_only", op):
        return "metadata"
    return "close" if _listed("not_repeatable", op) else "bits"


def placed_on_cpu(op: str) -> bool:
    """Whether results may be on the CPU although the arguments are on the chip."""
    return _listed("placed_on_cpu", op)


def fast_subset() -> list[str]:
    """Return the operators of `make test`, by OpInfo's full name."""
    return [name for group in _read("fast.toml").values() for name in group]
