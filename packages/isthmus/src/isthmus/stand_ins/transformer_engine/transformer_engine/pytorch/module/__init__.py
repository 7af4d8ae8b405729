"""Layers."""

from .grouped_linear import GroupedLinear
from .layernorm import LayerNorm, RMSNorm
from .layernorm_linear import LayerNormLinear
from .linear import Linear

__all__ = ["GroupedLinear", "LayerNorm", "LayerNormLinear", "Linear", "RMSNorm"]
