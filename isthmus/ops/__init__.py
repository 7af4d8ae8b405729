"""The operators large models live on, for every device: one interface, the fastest implementation at hand per call.

from isthmus import ops

y, residual = ops.add_rms_norm(x, residual, weight, eps=1e-6)
print(ops.which("add_rms_norm", x, residual, weight))       # add_rms_norm: cpu (the first that serves chip)
with ops.use("add_rms_norm", "composite"):                  # in terms of PyTorch's own operators
    ...
"""

from __future__ import annotations

from isthmus.ops.activation import SwiGLU, swiglu
from isthmus.ops.choice import implementations, use, which
from isthmus.ops.cross_entropy import CrossEntropyLoss, cross_entropy
from isthmus.ops.gradients import clip_grad_norm_, grad_norm, grad_norms
from isthmus.ops.moe import grouped_matmul, permute, permute_by_experts, unpermute
from isthmus.ops.norm import RMSNorm, add_rms_norm, rms_norm
from isthmus.ops.optimizer import AdamW, adamw_
from isthmus.ops.patching import patch
from isthmus.ops.softmax import ScaledMaskedSoftmax, scaled_masked_softmax

__all__ = [
    "implementations", "use", "which",
    "SwiGLU", "swiglu",
    "patch",
    "RMSNorm", "add_rms_norm", "rms_norm",
    "ScaledMaskedSoftmax", "scaled_masked_softmax",
    "CrossEntropyLoss", "cross_entropy",
    "clip_grad_norm_", "grad_norm", "grad_norms",
    "AdamW", "adamw_",
    "grouped_matmul", "permute", "permute_by_experts", "unpermute",
]  # fmt: skip
