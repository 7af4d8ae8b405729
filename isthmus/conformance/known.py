"""Known failures of a chip: a file by its maker that lists failing cases with reasons.

    [[failure]]
    operator = "aten::erfinv"      # patterns with * and ?
    dtype = "float16"              # optional
    case = "*large*"               # optional
    through = "kernels"            # optional: only for this way of testing, "kernels" or "pytorch"
    reason = "the chip has no float16 logarithm; known to the compiler team"

A failure without a reason is an error; one that matches no failing case is stale and makes the run fail.
"""

import fnmatch
import tomllib
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.conformance.results import BAD, KNOWN, CaseResult
from isthmus.conformance.selection import nearest
from isthmus.opset.dtypes import DTYPES

_KEYS = ("operator", "dtype", "case", "through", "reason")
_WAYS = ("", "kernels", "pytorch")


class KnownFailureError(ValueError):
    """A file of known failures is invalid; the message is one line."""


@dataclass(frozen=True)
class KnownFailure:
    """An entry: patterns of operator, dtype and case, the reason, and its place for messages."""

    operator: str
    dtype: str
    case: str
    reason: str
    place: str

    def matches(self, result: CaseResult) -> bool:
        """Return whether the entry matches a result."""
        return (
            fnmatch.fnmatchcase(result.operator, self.operator)
            and fnmatch.fnmatchcase(result.dtype, self.dtype)
            and fnmatch.fnmatchcase(result.case, self.case)
        )


def load(path: str, operators: Iterable[str], through: str) -> list[KnownFailure]:
    """Read a file of known failures.

    Args:
        path: the file; "" is none.
        operators: known operator names.
        through: how the driver is tested; entries for the other way are skipped.

    Raises:
        KnownFailureError: unreadable file, or an entry without reason, with an unknown key or an unknown operator.
    """
    if not path:
        return []
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KnownFailureError(f"{path}: {error}") from None
    unknown = sorted(set(table) - {"failure"})
    rows = table.get("failure", [])
    if unknown or not isinstance(rows, list):
        raise KnownFailureError(
            f"{path}: expected [[failure]] entries, found {', '.join(unknown) or 'a value'}"
        )
    names = sorted(operators)
    entries = [_entry(row, f"{path}, failure {i}", names) for i, row in enumerate(rows, 1)]
    return [
        entry for entry, row in zip(entries, rows, strict=True) if row.get("through", "") in ("", through)
    ]


def mark(known: Sequence[KnownFailure], result: CaseResult) -> None:
    """Turn a failure that matches an entry into a known failure with its reason."""
    if result.status in BAD:
        entry = next((entry for entry in known if entry.matches(result)), None)
        if entry:
            result.status, result.message = KNOWN, f"{entry.reason} ({result.message})"


def stale(
    known: Sequence[KnownFailure], results: Sequence[CaseResult], complete: Set[str], names: Set[str]
) -> list[str]:
    """Return the entries without a matching failure, one line each.

    Args:
        known: entries.
        results: marked results of the run.
        complete: operators and driver functions whose cases were all run.
        names: all operators and driver functions; an entry for one that is not complete cannot be stale.
    """
    lines = []
    for entry in known:
        matched = [result for result in results if entry.matches(result)]
        if any(result.status == KNOWN for result in matched):
            continue
        about = {name for name in names if fnmatch.fnmatchcase(name, entry.operator)}
        if matched or (about and about <= complete):
            what = f"all {len(matched)} matching cases pass" if matched else "matches no case"
            lines.append(f"{entry.place} ({entry.operator}): {what}; remove it")
    return lines


def _entry(row: dict[str, Any], place: str, operators: Sequence[str]) -> KnownFailure:
    unknown = sorted(set(row) - set(_KEYS))
    if unknown:
        raise KnownFailureError(f"{place}: unknown key {unknown[0]!r}; expected {', '.join(_KEYS)}")
    wrong = [key for key in row if not isinstance(row[key], str)]
    if wrong:
        raise KnownFailureError(f"{place}: {wrong[0]} is not a string")
    operator = row.get("operator", "")
    if not operator:
        raise KnownFailureError(f"{place}: the key 'operator' is missing")
    if not row.get("reason", "").strip():
        raise KnownFailureError(
            f"{place} ({operator}): the key 'reason' is missing; state why it fails and who works on it"
        )
    if row.get("through", "") not in _WAYS:
        raise KnownFailureError(
            f"{place} ({operator}): through = {row['through']!r}; expected kernels or pytorch"
        )
    if not any(fnmatch.fnmatchcase(name, operator) for name in operators):
        near = nearest(operator, operators)
        hint = f"; did you mean {near}?" if near else ""
        raise KnownFailureError(f"{place}: unknown operator {operator!r}{hint}")
    if not any(fnmatch.fnmatchcase(name, row.get("dtype", "*")) for name in DTYPES):
        raise KnownFailureError(
            f"{place} ({operator}): unknown dtype {row['dtype']!r}; expected one of {', '.join(DTYPES)}"
        )
    return KnownFailure(operator, row.get("dtype", "*"), row.get("case", "*"), row["reason"].strip(), place)
