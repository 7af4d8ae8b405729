"""Processes forked after the first use of the chip, which cannot use it."""

import warnings
from functools import cache

from isthmus import _C


def refuse_fork() -> None:
    """Check that this process was not forked after the first use of the chip.

    Raises:
        RuntimeError: it was.
    """
    if _C.in_bad_fork():
        _C.init()  # raises the error


def warn_of_fork() -> None:
    """Warn once if this process was forked after the first use of the chip."""
    if _C.in_bad_fork():
        _warn_once()


@cache
def _warn_once() -> None:
    warnings.warn(
        "the chip is not available in a process forked after its first use. Use the spawn start method.",
        stacklevel=4,  # the caller of device_count() or is_available()
    )
