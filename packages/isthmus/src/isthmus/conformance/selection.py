"""Selection of operators by name patterns and tiers, checked against the golden data."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from isthmus import opset
from isthmus.conformance.driver_cases import cases as driver_cases
from isthmus.conformance.golden import Reader
from isthmus.opset.names import matches
from isthmus.opset.tiers import tiers_of


class UsageError(ValueError):
    """Invalid usage, such as an unknown operator; the message is one line."""


def split(patterns: Iterable[str]) -> tuple[str, ...]:
    """Split the values of a repeatable option at commas."""
    return tuple(part.strip() for text in patterns for part in text.split(",") if part.strip())


def matching(patterns: Sequence[str], names: Iterable[str]) -> set[str]:
    """Return the names that match any pattern; all names without patterns.

    Raises:
        UsageError: a pattern matches no name.
    """
    among = list(names)
    for pattern in patterns:
        if not any(matches(name, pattern) for name in among):
            hint = f"; did you mean {found}?" if (found := nearest_name(pattern, among)) else ""
            raise UsageError(
                f"--operators {pattern}: unknown operator{hint}; `isthmus conform list` prints all"
            )
    return {name for name in among if matches(name, *patterns)} if patterns else set(among)


def nearest_name(name: str, names: Sequence[str]) -> str:
    """Return the closest name, preferably another overload of the same operator; "" without a close one."""
    asked = name if "::" in name else f"aten::{name}"
    overloads = [other for other in names if other.partition(".")[0] == asked.partition(".")[0]]
    near = difflib.get_close_matches(asked, overloads, n=1, cutoff=0.0)
    near += difflib.get_close_matches(asked, names, n=1)
    return near[0] if near else ""


def select(golden: Reader, patterns: Sequence[str], tier: str = "") -> set[str]:
    """Select operators of the golden data.

    Args:
        patterns: operators; empty means all. "driver::*" matches the driver functions, which are not returned.
        tier: only operators of this tier; "" means all.

    Raises:
        UsageError: unknown operator or tier, or the data lacks a selected operator.
    """
    meant = named_operators(patterns, tier, {name: entry.tiers for name, entry in golden.operators.items()})
    _check_data(golden, [p for p in patterns if not p.startswith("driver::")], tier, meant)
    return meant & golden.operators.keys()


def named_operators(
    patterns: Sequence[str], tier: str = "", others: Mapping[str, Sequence[str]] | None = None
) -> set[str]:
    """Return the operators that patterns and tier name, of the opset and of ``others`` (their tiers by name).

    Raises:
        UsageError: unknown operator, driver function or tier.
    """
    tiers: dict[str, Sequence[str]] = {name: tiers_of(name) for name in opset.records()}
    tiers.update(others or {})
    known = sorted({each for belongs in tiers.values() for each in belongs})
    if tier and tier not in known:
        raise UsageError(f"--tier {tier}: unknown tier; expected one of {', '.join(known)}")
    matching(
        [p for p in patterns if p.startswith("driver::")], {f"driver::{c.function}" for c in driver_cases()}
    )
    asked = [p for p in patterns if not p.startswith("driver::")]
    found = set() if patterns and not asked else matching(asked, tiers)
    return {name for name in found if not tier or tier in tiers[name]}


def coverage(golden: Reader) -> str:
    """Return the coverage of golden data as a line; "" if it is complete."""
    count, whole = len(golden.operators), len(opset.records())
    return f"golden data has {count} of {whole} operators" if count < whole else ""


def _check_data(golden: Reader, patterns: Sequence[str], tier: str, meant: set[str]) -> None:
    remedy = f"{coverage(golden)}; run `isthmus conform generate` without --operators"
    for pattern in patterns:
        if not any(matches(name, pattern) for name in golden.operators):
            raise UsageError(f"--operators {pattern}: {remedy}")
    lacking = sorted(meant - golden.operators.keys())
    if tier and lacking:
        more = f" and {len(lacking) - 1} more of the tier" if len(lacking) > 1 else ""
        raise UsageError(f"--tier {tier}: no golden data for {lacking[0]}{more}: {remedy}")
