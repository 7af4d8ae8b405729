"""FP8 recipes."""

from . import recipe

__all__ = ["recipe"]
