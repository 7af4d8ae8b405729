"""Pytest plugin: leave out tests that run on the CPU alone, in files that have others for any device.

Of files that take a core hours, one test in so many is kept.
"""

from __future__ import annotations

import inspect
import zlib
from types import ModuleType
from typing import Any

import pytest

# Begin of a name -> one test in so many runs.
SAMPLED = {
    "test_reductions.py": 5,
    "test_binary_ufuncs.py": 10,
    "test_unary_ufuncs.py": 10,
    "test_modules.py": 5,
    "test_sparse.py": 5,
    "test_transformers.py::TestSDPANpuOnly": 200,
}


@pytest.hookimpl
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keep the tests that use the chip, or a sample of them."""
    items[:] = [
        item for item in items if sampled(item.nodeid) and uses_chip(item.nodeid, item.obj, item.module)
    ]


def sampled(name: str) -> bool:
    """Whether a test is in the sample; its name decides, so that no dtype is left out."""
    file, _, test = name.partition("::")
    short = f"{file.rpartition('/')[2]}::{test}"
    every = next((every for begin, every in SAMPLED.items() if short.startswith(begin)), 1)
    return zlib.crc32(test.encode()) % every == 0


def uses_chip(name: str, test: Any, module: ModuleType) -> bool:
    """Whether a test has the chip in its name or its source; all tests do of a file without tests for any device."""
    if "chip" in name.lower() or "privateuse1" in name.lower():
        return True
    if not hasattr(module, "instantiate_device_type_tests"):
        return True
    return "chip" in inspect.getsource(inspect.unwrap(test))
