"""FP8 settings; FP8 is always disabled."""

import contextlib
from collections.abc import Iterator
from typing import Any

from ..common.recipe import REASON, refuse_fp8


def check_fp8_support() -> tuple[bool, str]:
    """(False, reason): FP8 is not supported."""
    return False, REASON


class FP8GlobalStateManager:
    """Global FP8 state: disabled."""

    @classmethod
    def is_fp8_enabled(cls) -> bool:
        """False."""
        return False

    @classmethod
    def is_fp8_calibration(cls) -> bool:
        """False."""
        return False

    @classmethod
    def is_fp8_available(cls) -> tuple[bool, str]:
        """(False, reason): FP8 is not supported."""
        return check_fp8_support()

    @classmethod
    def reset(cls) -> None:
        """No-op."""


@contextlib.contextmanager
def fp8_autocast(enabled: bool = True, *_: Any, **__: Any) -> Iterator[None]:
    """Context manager for computing in FP8; not supported.

    Raises:
        ValueError: ``enabled`` is True.
    """
    if enabled:
        refuse_fp8("--fp8-format")
    yield


@contextlib.contextmanager
def fp8_model_init(enabled: bool = True, *_: Any, **__: Any) -> Iterator[None]:
    """Context manager for creating FP8 parameters; not supported.

    Raises:
        ValueError: ``enabled`` is True.
    """
    if enabled:
        refuse_fp8("--fp8-param-gather")
    yield
