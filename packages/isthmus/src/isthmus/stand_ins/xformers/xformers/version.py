"""Version of xFormers."""

from . import __version__

__all__ = ["__version__"]
