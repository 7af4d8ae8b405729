"""Operators of Mamba (https://github.com/state-spaces/mamba), implemented by :mod:`isthmus.ops`."""

from .modules.mamba_simple import Mamba
from .ops.selective_scan_interface import mamba_inner_fn, selective_scan_fn
from .ops.triton import layernorm_gated, selective_state_update, ssd_combined

__version__ = "2.3.2+isthmus"
__all__ = ["Mamba", "mamba_inner_fn", "selective_scan_fn"]

del layernorm_gated, selective_state_update, ssd_combined  # imported for code that reads them as attributes
