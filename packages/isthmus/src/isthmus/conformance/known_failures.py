"""Known failures of a chip, and cases that it need not run: a file by its maker with a reason for each.

    [[failure]]
    operator = "aten::erfinv"      # patterns with * and ?
    dtype = "float16"              # optional
    case = "*large*"               # optional
    through = "kernels"            # optional: only for this way of testing, "kernels" or "pytorch"
    error = "*not implemented*"    # optional: only failures with this message
    within = 3.5                   # optional: only errors of at most so many tolerances
    machine = "*rev A*"            # optional: only where the device's name and the libraries' descriptions match
    sometimes = true               # optional: they pass on some days; the entry is never stale
    reason = "the chip has no float16 logarithm; known to the compiler team"

    [[not_run]]
    operator = "driver::virtual_*"  # and dtype, case, through, machine, sometimes, as above
    why = "virtual_* absent"        # optional: only cases that are not run for this reason
    reason = "the chip has no virtual memory"

Before the entries, ``machine`` is a condition of all of them, and ``include`` names other such files, from the folder
of this one or of a package:

    include = ["shared.toml", "isthmus.drivers.host:cpu_kernels.toml"]

An entry without a reason is an error; one that matches no failing case, or none that is not run, is stale and makes
the run fail.
"""

import fnmatch
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from isthmus.conformance.results import BAD, KNOWN, NOT_CLAIMED, NOT_RUN, CaseResult
from isthmus.conformance.selection import nearest_name
from isthmus.opset.dtypes import DTYPES
from isthmus_common.text import count

_COMMON = ("operator", "dtype", "case", "through", "sometimes", "machine", "reason")
_KEYS = {"failure": (*_COMMON, "error", "within"), "not_run": (*_COMMON, "why")}
_TYPES: dict[str, tuple[Any, str]] = {"within": ((int, float), "number"), "sometimes": (bool, "Boolean")}
_WAYS = ("", "kernels", "pytorch")


class KnownFailureError(ValueError):
    """A file of known failures is invalid; the message is one line."""


@dataclass(frozen=True)
class KnownFailure:
    """An entry: patterns of operator, dtype and case, the reason, and its place for messages.

    Attributes:
        error: pattern of the message, ``why`` of a case that is not run.
        within: largest error in tolerances; if finite, other problems than lost accuracy do not match.
        not_run: whether the entry is about cases that are not run.
        sometimes: whether it may also match none.
        machines: patterns that the device's name and the libraries' descriptions match, each of them.
    """

    operator: str
    dtype: str
    case: str
    reason: str
    place: str
    error: str = "*"
    within: float = math.inf
    machines: tuple[str, ...] = ()
    not_run: bool = False
    sometimes: bool = False

    def matches(self, result: CaseResult) -> bool:
        """Return whether the entry is about the case of a result."""
        return (
            fnmatch.fnmatchcase(result.operator, self.operator)
            and fnmatch.fnmatchcase(result.dtype, self.dtype)
            and fnmatch.fnmatchcase(result.case, self.case)
        )

    def explains(self, result: CaseResult) -> bool:
        """Return whether the failure of a matching case, or why it is not run, is what the entry is about."""
        if self.not_run != (not result.judged):
            return False
        problems = re.split(r"; (?=\S+: )", result.message)
        inaccurate = all(problem.endswith("x the tolerance)") for problem in problems)
        largest = (result.worst or {}).get("tolerances") or math.inf
        return fnmatch.fnmatchcase(result.message, self.error) and (
            math.isinf(self.within) or (inaccurate and largest <= self.within)
        )

    def applies(self, head: Mapping[str, Any]) -> bool:
        """Return whether the entry is about the machine of a run."""
        libraries = [library["description"] for library in head["libraries"]]
        described = [head["device"], count(head["devices"], "device"), *libraries]
        return all(fnmatch.fnmatchcase(", ".join(described), machine) for machine in self.machines)


def load(path: str, operators: Iterable[str], through: str) -> list[KnownFailure]:
    """Read a file of known failures, and those that it includes.

    Args:
        path: the file; "" is none.
        through: how the driver is tested; entries for the other way are skipped.

    Raises:
        KnownFailureError: unreadable file, or an entry without reason, with an unknown key or an unknown operator.
    """
    if not path:
        return []
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise KnownFailureError(
            f"{path}: no such file; write it, or remove its name from driver.toml"
        ) from None
    except (OSError, ValueError) as error:
        raise KnownFailureError(f"{path}: {error}") from None
    unknown = sorted(set(table) - {*_KEYS, "include", "machine"})
    included, machine = table.get("include", []), table.get("machine", "*")
    if unknown or not all(isinstance(table.get(kind, []), list) for kind in _KEYS):
        raise KnownFailureError(
            f"{path}: expected [[failure]] and [[not_run]] entries, found {', '.join(unknown) or 'a value'}"
        )
    if not isinstance(machine, str) or not isinstance(included, list):
        raise KnownFailureError(f"{path}: machine is a string, and include a list of files")
    names = sorted(operators)
    rows = [(kind, i, row) for kind in _KEYS for i, row in enumerate(table.get(kind, []), 1)]
    entries = [_entry(kind, row, f"{path}, {kind} {i}", names, machine) for kind, i, row in rows]
    chosen = [
        entry
        for entry, (_, _, row) in zip(entries, rows, strict=True)
        if row.get("through", "") in ("", through)
    ]
    for name in included:
        chosen += load(str(_included(path, str(name))), names, through)
    return chosen


def _included(path: str, name: str) -> Path:
    """Return the file that an entry of ``include`` names: ``file`` or ``package:file``."""
    package, colon, file = name.rpartition(":")
    if not colon:
        return Path(path).parent / file
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise KnownFailureError(f"{path}: include names the package {package}, which is not installed")
    return Path(spec.submodule_search_locations[0]) / file


def mark(known: Sequence[KnownFailure], result: CaseResult) -> None:
    """Turn a failure that an entry explains into a known failure, and *not run* into *not claimed*."""
    if result.status in (*BAD, NOT_RUN):
        entry = next((each for each in known if each.matches(result) and each.explains(result)), None)
        if entry:
            result.status = NOT_CLAIMED if entry.not_run else KNOWN
            result.message = f"{entry.reason} ({result.message})"


def stale_entries(
    known: Sequence[KnownFailure],
    results: Sequence[CaseResult],
    complete: Set[str],
    names: Set[str],
    demanded: Set[str] = frozenset(),
) -> list[str]:
    """Return the entries without a matching failure, one line each.

    Args:
        complete: operators and driver functions whose cases were all run.
        names: all operators and driver functions; an entry for one that is not complete cannot be stale.
        demanded: those whose cases must run; entries of cases that need not run are about these. In a run that
            leaves out some, an entry is stale only if it is about no other.
    """
    lines = []
    for entry in known:
        if entry.sometimes:
            continue
        matched = [result for result in results if entry.matches(result)]
        explained = NOT_CLAIMED if entry.not_run else KNOWN
        if any(result.status == explained and result.message.startswith(entry.reason) for result in matched):
            continue
        if matched and not entry.not_run and not any(result.judged for result in matched):
            continue  # needs more devices, for example
        about = {name for name in names if fnmatch.fnmatchcase(name, entry.operator)}
        if entry.not_run and not (about & demanded and (about <= demanded or names <= complete)):
            continue
        if matched or (about and about <= complete):
            passed = all(result.status not in BAD for result in matched)
            what = f"all {len(matched)} matching cases pass" if passed else "explains no failure"
            if entry.not_run:
                what = "matches no case that is demanded and not run"
            what = what if matched else "matches no case"
            lines.append(f"{entry.place} ({entry.operator}): {what}; remove it")
    return lines


def _entry(
    kind: str, row: dict[str, Any], place: str, operators: Sequence[str], machine: str
) -> KnownFailure:
    if problem := next(_problems(kind, row, operators), ""):
        raise KnownFailureError(f"{place}{problem}")
    operator = row["operator"]
    return KnownFailure(
        operator,
        row.get("dtype", "*"),
        row.get("case", "*"),
        row["reason"].strip(),
        place,
        row.get("why", row.get("error", "*")),
        row.get("within", math.inf),
        (machine, row.get("machine", "*")),
        kind == "not_run",
        row.get("sometimes", False),
    )


def _problems(kind: str, row: dict[str, Any], operators: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with an entry, as it follows the place."""
    for key in sorted(set(row) - set(_KEYS[kind])):
        yield f": unknown key {key!r}; expected {', '.join(_KEYS[kind])}"
    for key, value in row.items():
        kinds, noun = _TYPES.get(key, (str, "string"))
        if not isinstance(value, kinds):
            yield f": {key} is not a {noun}"
    operator = row.get("operator", "")
    if not operator:
        yield ": the key 'operator' is missing"
    if not row.get("reason", "").strip():
        yield f" ({operator}): the key 'reason' is missing; state why, and who works on it"
    if row.get("through", "") not in _WAYS:
        yield f" ({operator}): through = {row['through']!r}; expected kernels or pytorch"
    if not any(fnmatch.fnmatchcase(name, operator) for name in operators):
        near = nearest_name(operator, operators)
        yield f": unknown operator {operator!r}{f'; did you mean {near}?' if near else ''}"
    if not any(fnmatch.fnmatchcase(name, row.get("dtype", "*")) for name in DTYPES):
        yield f" ({operator}): unknown dtype {row['dtype']!r}; expected one of {', '.join(DTYPES)}"
