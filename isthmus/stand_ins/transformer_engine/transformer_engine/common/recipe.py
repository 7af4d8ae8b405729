"""Recipes of FP8: names only, since there is no FP8 without Transformer Engine itself."""

from __future__ import annotations

import enum
from typing import Any, NoReturn

REASON = "FP8 needs Transformer Engine itself"


def refuse_fp8(option: str) -> NoReturn:
    """Name the option of Megatron that asks for FP8.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{REASON}; leave {option} out")


class Format(enum.Enum):
    """Which FP8 types forward and backward pass use."""

    E4M3 = "e4m3"
    E5M2 = "e5m2"
    HYBRID = "hybrid"


class DelayedScaling:
    """Scales from earlier iterations.

    Raises:
        ValueError: always.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse_fp8("--fp8-format")
