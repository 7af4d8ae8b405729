"""Errors of the accuracy tools."""


class AccuracyError(ValueError):
    """A request to a tool of `isthmus accuracy` cannot be served; the message is one line."""
