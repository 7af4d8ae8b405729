"""Words and numbers in messages."""

import signal


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``"1 file"``, ``"2 files"``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def signal_name(number: int) -> str:
    """Return the name of a signal, ``"SIGKILL"``, or ``"signal 35"`` if it has none."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
