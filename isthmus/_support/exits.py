"""Exit of a command with an error: one line and a non-zero status."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer


def fail(message: object, code: int = 1) -> typer.Exit:
    """Print an error; return the exception to raise.

    Args:
        message: what failed, on what value, and the remedy, in one line; of an error of a file its path and reason.
        code: exit status: 1 for an error, 2 for wrong usage.
    """
    if isinstance(message, OSError) and message.filename:
        message = f"{message.filename}: {message.strerror}"
    print(f"isthmus: {message}", file=sys.stderr)
    return typer.Exit(code)


@contextmanager
def ends_as_interrupt() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt during a block, as Ctrl-C does, so that the terminal is restored."""
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


@contextmanager
def one_line(kind: type[Exception]) -> Iterator[None]:
    """Print errors of a command that goes on when it is repeated as one line, and exit.

    Args:
        kind: errors that have an exit status as ``status``; those of files, and interrupts, are printed as well.
    """
    try:
        yield
    except kind as error:
        raise fail(error, getattr(error, "status", 1)) from None
    except KeyboardInterrupt:
        raise fail("interrupted; repeat the command to continue", 130) from None
    except OSError as error:
        raise fail(error) from None
