"""Pytest plugin: run one in ISTHMUS_SAMPLE tests of each function of tests, and the first; counted from the last test
if the number is negative. Those that are counted first come first.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the others."""
    every, seen = int(os.environ["ISTHMUS_SAMPLE"]), Counter[str]()
    kept, left_out = [], []
    for item in items if every > 0 else items[::-1]:
        function = item.nodeid.partition("[")[0]
        if seen[function] % every:
            left_out.append(item)
        else:
            kept.append((seen[function], item))
        seen[function] += 1
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for _, item in sorted(kept, key=lambda each: each[0])]
