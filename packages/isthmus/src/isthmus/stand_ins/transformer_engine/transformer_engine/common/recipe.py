"""Names of FP8 recipes; FP8 needs the real Transformer Engine."""

import enum
from typing import Any, NoReturn

REASON = "FP8 needs the real Transformer Engine"


def refuse_fp8(option: str) -> NoReturn:
    """Raise an error that names Megatron's option for FP8.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{REASON}; omit {option}")


class Format(enum.Enum):
    """FP8 types of forward and backward pass."""

    E4M3 = "e4m3"
    E5M2 = "e5m2"
    HYBRID = "hybrid"


class DelayedScaling:
    """Delayed scaling; not supported.

    Raises:
        ValueError: always.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse_fp8("--fp8-format")
