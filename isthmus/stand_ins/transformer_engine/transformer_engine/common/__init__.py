"""FP8 recipes."""

from __future__ import annotations

from . import recipe

__all__ = ["recipe"]
