"""The error of bad input."""


class CheckpointError(ValueError):
    """A checkpoint, a layout or a request is invalid; the message is one line."""

    status = 1


class UsageError(CheckpointError):
    """A wrong option, whatever the checkpoint is."""

    status = 2
