"""Errors of the cluster tools."""


class ClusterError(ValueError):
    """A file, table or argument is wrong; the message is one line: place, value, remedy."""
