"""Sampling of parametrized cases in runs without ``--full``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import Any

import pytest


def sample(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Select cases of each test such that every pair of values of two parameters occurs.

    A test marked ``sampled(n)`` keeps n cases, evenly spaced; one marked ``full`` keeps none.
    """
    families: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        families[item.nodeid.partition("[")[0]].append(item)
    kept = {id(item) for family in families.values() for item in _choose(family)}
    return [item for item in items if id(item) in kept]


def _choose(family: list[pytest.Item]) -> list[pytest.Item]:
    family = [item for item in family if not item.get_closest_marker("full")]
    if not family:
        return []
    if marker := family[0].get_closest_marker("sampled"):
        number = min(marker.args[0], len(family))
        return [family[index * len(family) // number] for index in range(number)]
    return [family[index] for index in pairwise([_values(item) for item in family])]


def _values(item: pytest.Item) -> dict[str, Hashable]:
    call: Any = getattr(item, "callspec", None)
    return {name: id(value) for name, value in call.params.items()} if call else {}


def pairwise(cases: Sequence[dict[str, Hashable]]) -> list[int]:
    """Return indices of cases that cover every pair of values of two parameters in all cases."""
    pairs = [set(_pairs(case)) for case in cases]
    missing = set().union(*pairs)
    chosen: list[int] = []
    while missing:
        best = max(range(len(cases)), key=lambda index: len(pairs[index] & missing))
        missing -= pairs[best]
        chosen.append(best)
    return sorted(chosen) or [0]


def _pairs(case: dict[str, Hashable]) -> Iterable[Hashable]:
    values = list(case.items())
    return combinations(values, 2) if len(values) > 1 else values
