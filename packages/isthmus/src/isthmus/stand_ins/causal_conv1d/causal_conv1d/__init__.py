"""Causal convolutions (https://github.com/Dao-AILab/causal-conv1d), implemented by :mod:`isthmus.ops`."""

from .causal_conv1d_interface import causal_conv1d_fn, causal_conv1d_update

__version__ = "1.6.1+isthmus"
__all__ = ["causal_conv1d_fn", "causal_conv1d_update"]
