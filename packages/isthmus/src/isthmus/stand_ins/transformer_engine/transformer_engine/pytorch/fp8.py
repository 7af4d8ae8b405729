"""FP8 settings; FP8 is always disabled."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from ..common.recipe import REASON, refuse_fp8


def check_fp8_support() -> tuple[bool, str]:
    """(False, reason): FP8 is not supported."""
    return False, REASON


class FP8GlobalStateManager:
    """Global FP8 state: disabled."""

    skip_fp8_weight_update_tensor: torch.Tensor | None = None

    @classmethod
    def set_skip_fp8_weight_update_tensor(cls, skip: bool) -> None:
        """Fill the flag in place, at the address that graphs have captured."""
        if cls.skip_fp8_weight_update_tensor is None:
            cls.skip_fp8_weight_update_tensor = torch.empty(1, dtype=torch.float32, device="cuda")
        cls.skip_fp8_weight_update_tensor.fill_(skip)

    @classmethod
    def get_skip_fp8_weight_update_tensor(cls) -> torch.Tensor | None:
        """The flag, of one float32 element; None before it is set."""
        return cls.skip_fp8_weight_update_tensor

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
