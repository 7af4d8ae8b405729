"""What Megatron imports for parameters in FP8, of which there are none."""

from __future__ import annotations

from typing import Any

from .fp8 import REASON


def cast_to_fp8(*_: Any, **__: Any) -> None:
    """Refuse.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{REASON}; leave --fp8-param-gather out")
