"""The error of bad input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CheckpointError(ValueError):
    """A checkpoint, a layout or a request is invalid; the message is one line."""

    status = 1


class UsageError(CheckpointError):
    """A wrong option, whatever the checkpoint is."""

    status = 2


@contextmanager
def report_damage(what: object, remedy: str = "copy it again") -> Iterator[None]:
    """Raise CheckpointError for values and structures that code in a block cannot handle.

    For data from files that others wrote, whose every value cannot be checked beforehand. Errors of files pass.

    Args:
        what: the file or folder, for the message.
        remedy: what to do, for the message.

    Raises:
        CheckpointError: the block failed.
    """
    try:
        yield
    except CheckpointError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
        raise CheckpointError(f"{what}: damaged, or not supported ({reason}); {remedy}") from error
