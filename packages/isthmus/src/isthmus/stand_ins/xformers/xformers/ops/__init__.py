"""Operators of xFormers."""

from isthmus.ops.xformers import index_select_cat, scaled_index_add

from .fmha import (
    AttentionBias,
    AttentionOp,
    AttentionOpBase,
    LowerTriangularMask,
    MemoryEfficientAttentionCkOp,
    MemoryEfficientAttentionCutlassFwdFlashBwOp,
    MemoryEfficientAttentionCutlassOp,
    MemoryEfficientAttentionFlashAttentionOp,
    MemoryEfficientAttentionSplitKCkOp,
    memory_efficient_attention,
    memory_efficient_attention_backward,
    memory_efficient_attention_forward,
    memory_efficient_attention_forward_requires_grad,
)
from .rmsnorm import RMSNorm
from .swiglu_op import SwiGLU, swiglu
from .unbind import unbind

AttentionMask = AttentionBias

__all__ = [
    "AttentionBias", "AttentionMask", "AttentionOp", "AttentionOpBase", "LowerTriangularMask",
    "MemoryEfficientAttentionCkOp", "MemoryEfficientAttentionCutlassFwdFlashBwOp",
    "MemoryEfficientAttentionCutlassOp", "MemoryEfficientAttentionFlashAttentionOp",
    "MemoryEfficientAttentionSplitKCkOp", "RMSNorm", "SwiGLU", "index_select_cat", "memory_efficient_attention",
    "memory_efficient_attention_backward", "memory_efficient_attention_forward",
    "memory_efficient_attention_forward_requires_grad", "scaled_index_add", "swiglu", "unbind",
]  # fmt: skip
