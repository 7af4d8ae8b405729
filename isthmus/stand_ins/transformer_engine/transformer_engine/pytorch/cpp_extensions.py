"""What Megatron imports for parameters in FP8, of which there are none."""

from __future__ import annotations

from typing import Any

from ..common.recipe import refuse_fp8


def cast_to_fp8(*_: Any, **__: Any) -> None:
    """Refuse.

    Raises:
        ValueError: always.
    """
    refuse_fp8("--fp8-param-gather")
