"""FP8 functions imported by Megatron; not supported."""

from typing import Any

from ..common.recipe import refuse_fp8


def cast_to_fp8(*_: Any, **__: Any) -> None:
    """Not supported.

    Raises:
        ValueError: always.
    """
    refuse_fp8("--fp8-param-gather")
