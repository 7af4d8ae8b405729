"""Which operators are meant: patterns of their names, tiers, and what of them the golden data has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from isthmus import opset
from isthmus.conformance.driver_cases import cases as driver_cases
from isthmus.conformance.golden import Reader
from isthmus.opset.names import matches
from isthmus.opset.tiers import tiers_of


class UsageError(ValueError):
    """What was asked for does not exist; the message is one line."""


def split(patterns: Iterable[str]) -> tuple[str, ...]:
    """Patterns of a repeatable option whose values may also be separated by commas."""
    return tuple(part.strip() for text in patterns for part in text.split(",") if part.strip())


def matching(patterns: Sequence[str], names: Iterable[str]) -> set[str]:
    """Names that match; all of them without patterns.

    Raises:
        UsageError: a pattern matches none.
    """
    among = list(names)
    for pattern in patterns:
        if not any(matches(name, pattern) for name in among):
            hint = f"; did you mean {found}?" if (found := nearest(pattern, among)) else ""
            raise UsageError(
                f"--operators {pattern}: no such operator{hint}; `isthmus conform list` prints them"
            )
    return {name for name in among if matches(name, *patterns)} if patterns else set(among)


def nearest(name: str, names: Sequence[str]) -> str:
    """The name that was probably meant, one of the same operator before others; "" if there is none."""
    asked = name if "::" in name else f"aten::{name}"
    overloads = [other for other in names if other.partition(".")[0] == asked.partition(".")[0]]
    near = difflib.get_close_matches(asked, overloads, n=1, cutoff=0.0)
    near += difflib.get_close_matches(asked, names, n=1)
    return near[0] if near else ""


def select(golden: Reader, patterns: Sequence[str], tier: str = "") -> set[str]:
    """Operators of the golden data that are meant.

    Args:
        golden: the data.
        patterns: of operators; empty is all. "driver::*" is the driver functions, which are not returned.
        tier: only operators of this tier; "" is all.

    Raises:
        UsageError: there is no such operator or tier, or the data lacks what was asked for.
    """
    tiers = {name: tiers_of(name) for name in opset.operators()}
    tiers.update((name, list(entry.tiers)) for name, entry in golden.operators.items())
    known = sorted({each for belongs in tiers.values() for each in belongs})
    if tier and tier not in known:
        raise UsageError(f"--tier {tier}: no such tier; there are {', '.join(known)}")
    matching(
        [p for p in patterns if p.startswith("driver::")], {f"driver::{c.function}" for c in driver_cases()}
    )
    asked = [p for p in patterns if not p.startswith("driver::")]
    named = set() if patterns and not asked else matching(asked, tiers)
    meant = {name for name in named if not tier or tier in tiers[name]}
    _check_data(golden, asked, tier, meant)
    return meant & golden.operators.keys()


def coverage(golden: Reader) -> str:
    """What golden data lacks, as a line for people; "" if it is of every operator."""
    count, whole = len(golden.operators), len(opset.operators())
    return f"golden data has {count} of {whole} operators" if count < whole else ""


def _check_data(golden: Reader, patterns: Sequence[str], tier: str, meant: set[str]) -> None:
    remedy = f"{coverage(golden)}; run `isthmus conform generate` without --operators"
    for pattern in patterns:
        if not any(matches(name, pattern) for name in golden.operators):
            raise UsageError(f"--operators {pattern}: {remedy}")
    lacking = sorted(meant - golden.operators.keys())
    if tier and lacking:
        more = f" and {len(lacking) - 1} more of the tier" if len(lacking) > 1 else ""
        raise UsageError(f"--tier {tier}: no data of {lacking[0]}{more}: {remedy}")
