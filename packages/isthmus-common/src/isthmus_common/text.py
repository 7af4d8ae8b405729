"""Text of messages: counts with nouns, sizes, names of signals, text of other programs."""

import signal

NO_TORCH = "PyTorch is not installed; run `pip install 'torch>=2.13,<2.16'`"

_LONGEST = 2000  # characters of a text of another program


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``"1 file"``, ``"2 files"``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def clean_text(found: object) -> str:
    """Return a text of another program without line breaks, control characters and excessive length."""
    text = str(found)[:_LONGEST]
    return "".join(each if each.isprintable() else " " for each in text)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0][:_LONGEST] if lines else type(error).__name__


def signal_name(number: int) -> str:
    """Return the name of a signal, ``"SIGKILL"``, or ``"signal 35"`` if it has none."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
