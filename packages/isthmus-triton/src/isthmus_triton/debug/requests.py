"""Reads what the environment asks of debugging: ``ISTHMUS_TRITON_DEBUG``, ``ISTHMUS_TRITON_SEED``."""

from __future__ import annotations

import functools
import os
import random
import sys

_DEBUG, _SEED = "ISTHMUS_TRITON_DEBUG", "ISTHMUS_TRITON_SEED"


def is_requested() -> bool:
    """Whether all launches are checked: ``ISTHMUS_TRITON_DEBUG=1``."""
    return os.environ.get(_DEBUG, "0") not in ("", "0")


@functools.cache
def seed() -> int:
    """The seed of the order of programs: ``ISTHMUS_TRITON_SEED``, or a random one, which is printed."""
    given = os.environ.get(_SEED)
    if given:
        return int(given)
    drawn = random.SystemRandom().randrange(1 << 31)
    print(f"isthmus-triton: programs run in a random order; {_SEED}={drawn} repeats it", file=sys.stderr)
    return drawn
