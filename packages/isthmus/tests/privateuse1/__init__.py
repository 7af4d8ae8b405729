"""PyTorch's own tests of a PrivateUse1 device, restated for the chip; inventory.py says where each is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])


def covers(file: str, *names: str) -> Callable[[Test], Test]:
    """Mark a test as the counterpart of upstream tests.

    Args:
        file: upstream's file without ``test_`` and ``.py``, a key of ``inventory.UPSTREAM``.
        names: its test methods.
    """

    return lambda test: test
