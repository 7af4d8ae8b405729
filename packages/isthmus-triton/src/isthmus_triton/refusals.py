"""Refusals of what a kernel may not use."""

from typing import NoReturn


class Unsupported(Exception):
    """The kernel uses what this backend cannot do, which the message names."""


def refuse(what: str) -> NoReturn:
    """Raise Unsupported."""
    raise Unsupported(what)
