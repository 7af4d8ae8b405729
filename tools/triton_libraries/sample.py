"""Pytest plugin: run one in ISTHMUS_SAMPLE tests of each function of tests, and its first."""

from __future__ import annotations

import os
from collections import Counter

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the others."""
    every, seen = int(os.environ["ISTHMUS_SAMPLE"]), Counter[str]()
    kept, left_out = [], []
    for item in items:
        function = item.nodeid.partition("[")[0]
        (left_out if seen[function] % every else kept).append(item)
        seen[function] += 1
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept
