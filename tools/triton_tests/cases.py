"""Pytest plugin: of a function with many cases, keep a sample."""

from __future__ import annotations

import zlib
from collections import defaultdict
from typing import Any

import pytest

CASES = 8  # of a function


@pytest.hookimpl
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keep the cases whose names have the least checksums."""
    functions: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    kept = {
        item.nodeid
        for cases in functions.values()
        for item in sorted(cases, key=lambda item: zlib.crc32(item.nodeid.encode()))[:CASES]
    }
    items[:] = [item for item in items if item.nodeid in kept]
