"""Words and numbers in messages."""


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``"1 file"``, ``"2 files"``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
