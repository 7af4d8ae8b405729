"""FP8's switches, which stay off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..common.recipe import REASON, refuse_fp8


def check_fp8_support() -> tuple[bool, str]:
    """Whether there is FP8, and why not."""
    return False, REASON


class FP8GlobalStateManager:
    """Says that FP8 is off."""

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
        """Whether there is FP8, and why not."""
        return check_fp8_support()

    @classmethod
    def reset(cls) -> None:
        """Nothing is kept."""


@contextlib.contextmanager
def fp8_autocast(enabled: bool = True, *_: Any, **__: Any) -> Iterator[None]:
    """A context in which layers compute in FP8.

    Raises:
        ValueError: it is to be enabled.
    """
    if enabled:
        refuse_fp8("--fp8-format")
    yield


@contextlib.contextmanager
def fp8_model_init(enabled: bool = True, *_: Any, **__: Any) -> Iterator[None]:
    """A context in which layers are made with FP8 parameters.

    Raises:
        ValueError: it is to be enabled.
    """
    if enabled:
        refuse_fp8("--fp8-param-gather")
    yield
