"""End a process when its parent ends."""

import ctypes

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent(signal: int) -> None:
    """Have the kernel send this process a signal when the thread that started it ends; does nothing but on Linux."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal)
