"""A plugin of pytest that records the calls of libopapi.so in its tests; see fuzz_degenerate.recorded()."""

import os
from typing import Any

import torch

from tests.runtime import opapi
from tests.runtime.meaning import copied

CALLS_OF_A_FUNCTION = 6
BYTES = 1 << 16  # size of a call's tensors

calls: dict[str, list[list[Any]]] = {}


def _bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.untyped_storage().nbytes()
    return sum(map(_bytes, value)) if isinstance(value, (list, tuple)) else 0


def pytest_configure() -> None:
    """Record every call that succeeds."""
    original = opapi.call

    def call(name: str, *arguments: Any, **options: Any) -> Any:
        given = copied(list(arguments))
        result = original(name, *arguments, **options)
        made = calls.setdefault(name, [])
        if len(made) < CALLS_OF_A_FUNCTION and _bytes(given) < BYTES:
            made.append(given)
        return result

    opapi.call = call


def pytest_sessionfinish() -> None:
    """Write the calls to the file that RECORD names."""
    torch.save(calls, os.environ["RECORD"])
