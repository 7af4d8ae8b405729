"""Layers and context managers of ``transformer_engine.pytorch``."""

from . import distributed, fp8, graph, module, utils
from .attention import DotProductAttention
from .fp8 import fp8_autocast, fp8_model_init
from .graph import make_graphed_callables
from .module import GroupedLinear, LayerNorm, LayerNormLinear, Linear, RMSNorm

__all__ = [
    "DotProductAttention",
    "GroupedLinear",
    "LayerNorm",
    "LayerNormLinear",
    "Linear",
    "RMSNorm",
    "distributed",
    "fp8",
    "fp8_autocast",
    "fp8_model_init",
    "graph",
    "make_graphed_callables",
    "module",
    "utils",
]
