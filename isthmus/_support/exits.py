"""Exit of a command with an error: one line and a non-zero status."""

import sys

import typer


def fail(message: object, code: int = 1) -> typer.Exit:
    """Print an error; return the exception to raise.

    Args:
        message: what failed, on what value, and the remedy, in one line.
        code: exit status: 1 for an error, 2 for wrong usage.
    """
    print(f"isthmus: {message}", file=sys.stderr)
    return typer.Exit(code)
