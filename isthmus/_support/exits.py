"""How a command ends that cannot go on: one line, and a status that is not 0."""

from __future__ import annotations

import sys

import typer


def fail(message: object, code: int = 1) -> typer.Exit:
    """What to raise once the line is printed.

    Args:
        message: what, where and the remedy, in one line.
        code: 1 if something is wrong, 2 for wrong usage.
    """
    print(f"isthmus: {message}", file=sys.stderr)
    return typer.Exit(code)
