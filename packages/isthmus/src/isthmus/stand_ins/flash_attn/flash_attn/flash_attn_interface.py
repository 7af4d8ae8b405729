"""flash-attn's functions, under the name of their module."""

from . import *  # noqa: F403 - its __all__
