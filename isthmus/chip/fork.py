"""What a process does that was forked after its parent had used the chip: it cannot use it, and says so."""

from __future__ import annotations

import warnings
from functools import cache

from isthmus import _C


def refuse_fork() -> None:
    """Say that the chip cannot be used here, where that is so.

    Raises:
        RuntimeError: this process was forked after its parent had initialised the driver.
    """
    if _C.in_bad_fork():
        _C.init()  # which has the words


def warn_of_fork() -> None:
    """Warn, once in a process, why there is no device here, where a fork is the reason."""
    if _C.in_bad_fork():
        _warn_once()


@cache
def _warn_once() -> None:
    warnings.warn(
        "there is no chip in a process forked after its first use. Use the spawn start method.",
        stacklevel=4,  # the caller of device_count() or is_available()
    )
