"""Errors raised by the debugging tools."""


class DebugError(ValueError):
    """A request to a debugging tool is invalid; the message is one line."""
