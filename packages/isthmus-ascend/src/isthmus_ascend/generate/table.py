"""Reads csrc/opapi/functions.table: one row per aclnn function that libopapi.so exports; and older.table."""

import re
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).resolve().parents[3] / "csrc/opapi/functions.table"
OLDER = TABLE.with_name("older.table")
ROW = re.compile(r"(\w+)\(([^)]*)\) = (.+)")


@dataclass(frozen=True)
class Row:
    """One function: its name without `aclnn`, its parameters as (kind, name), what it computes, and its line."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    program: str
    text: str


def read_rows(text: str) -> list[Row]:
    """Return the rows of a table. Raises ValueError for a line that is none, and for a name that is there twice."""
    rows: dict[str, Row] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = ROW.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} is not `Name(kind parameter, ...) = program`: {line}")
        parameters = tuple(
            (kind, name) for kind, name in (part.split() for part in match[2].split(", ") if part)
        )
        if match[1] in rows:
            raise ValueError(f"line {number}: a second row for {match[1]}")
        rows[match[1]] = Row(match[1], parameters, match[3], line)
    return list(rows.values())


def rows() -> list[Row]:
    """Return the rows of the project's table."""
    return read_rows(TABLE.read_text())


def older_rows() -> list[Row]:
    """Return the operators of the older interface that libopapi.so computes."""
    return read_rows(OLDER.read_text())
