"""Processes forked after the first use of the chip, which cannot use it."""

from isthmus import _C


def refuse_fork() -> None:
    """Check that this process was not forked after the first use of the chip.

    Raises:
        RuntimeError: it was.
    """
    if _C.in_bad_fork():
        _C.init()  # raises the error
