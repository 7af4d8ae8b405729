"""Memory-efficient attention of xFormers."""

from isthmus.ops.xformers import (
    memory_efficient_attention,
    memory_efficient_attention_backward,
    memory_efficient_attention_forward,
    memory_efficient_attention_forward_requires_grad,
    memory_efficient_attention_partial,
    merge_attentions,
)

from . import attn_bias
from .attn_bias import AttentionBias, BlockDiagonalMask, LowerTriangularMask


class AttentionOpBase:
    """Base class of kernels; a choice between them is ignored."""


class AttentionFwOpBase(AttentionOpBase):
    """A kernel of the forward."""


class AttentionBwOpBase(AttentionOpBase):
    """A kernel of the backward."""


AttentionOp = tuple[type[AttentionFwOpBase] | None, type[AttentionBwOpBase] | None]
MemoryEfficientAttentionCutlassOp = (AttentionFwOpBase, AttentionBwOpBase)
MemoryEfficientAttentionCutlassFwdFlashBwOp = MemoryEfficientAttentionCutlassOp
MemoryEfficientAttentionFlashAttentionOp = MemoryEfficientAttentionCutlassOp
MemoryEfficientAttentionCkOp = MemoryEfficientAttentionCutlassOp
MemoryEfficientAttentionSplitKCkOp = MemoryEfficientAttentionCutlassOp

__all__ = [
    "AttentionBias", "AttentionOp", "AttentionOpBase", "BlockDiagonalMask", "LowerTriangularMask",
    "MemoryEfficientAttentionCkOp", "MemoryEfficientAttentionCutlassFwdFlashBwOp",
    "MemoryEfficientAttentionCutlassOp", "MemoryEfficientAttentionFlashAttentionOp",
    "MemoryEfficientAttentionSplitKCkOp", "attn_bias", "memory_efficient_attention",
    "memory_efficient_attention_backward", "memory_efficient_attention_forward",
    "memory_efficient_attention_forward_requires_grad", "memory_efficient_attention_partial", "merge_attentions",
]  # fmt: skip
