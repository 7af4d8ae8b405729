"""What a request to the debugging tools may end in."""


class DebugError(ValueError):
    """A request that cannot be carried out; the message is one line."""
