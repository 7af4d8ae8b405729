"""Exit of a command with an error: one line and a non-zero status."""

import io
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    import typer


def fail(message: object, code: int = 1) -> "typer.Exit":
    """Print an error; return the exception to raise.

    Args:
        message: what failed, on what value, and the remedy, in one line; of an error of a file its path and reason.
        code: exit status: 1 for an error, 2 for wrong usage.
    """
    import typer  # here: the start of a job does without it

    if isinstance(message, OSError) and message.filename:
        message = f"{message.filename}: {message.strerror}"
    print(f"isthmus: {message}", file=sys.stderr)
    return typer.Exit(code)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM during a block, as for Ctrl-C, so that the terminal is restored."""
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


@contextmanager
def exit_on(kind: type[Exception]) -> Iterator[None]:
    """Print an error of these kinds in one line and exit, in commands that continue when they are repeated.

    Args:
        kind: errors that may have an exit status as ``status``; those of files, and interrupts, are handled as well.
    """
    try:
        yield
    except kind as error:
        raise fail(error, getattr(error, "status", 1)) from None
    except KeyboardInterrupt:
        raise fail("interrupted; repeat the command to continue", 130) from None
    except OSError as error:
        raise fail(error) from None


class _Pipe(io.FileIO):
    """A pipe that ends the process, as SIGPIPE ends others, when its reader is gone.

    SystemExit, because commands catch errors of files, of which BrokenPipeError is one.
    """

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())  # for what is still in the buffer
            os.close(nowhere)
            raise SystemExit(128 + signal.SIGPIPE) from None


def _guard_stream(stream: TextIO) -> TextIO:
    """Return a stream that writes through :class:`_Pipe`; other streams are returned unchanged."""
    try:
        number = stream.fileno()
        mode = os.fstat(number).st_mode
    except (OSError, ValueError, AttributeError):  # captured, or closed
        return stream
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return stream
    text = cast(io.TextIOWrapper, stream)
    return io.TextIOWrapper(
        io.BufferedWriter(_Pipe(number, "w", closefd=False)),
        text.encoding,
        text.errors,
        line_buffering=text.line_buffering,
        write_through=text.write_through,
    )


@contextmanager
def exit_with_reader() -> Iterator[None]:
    """Exit quietly with 141, as after SIGPIPE, when the reader of the output is gone, such as ``| head``."""
    former = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _guard_stream(sys.stdout), _guard_stream(sys.stderr)
    try:
        yield
    finally:
        try:
            sys.stderr.flush()
            sys.stdout.flush()
        finally:
            sys.stdout, sys.stderr = former
