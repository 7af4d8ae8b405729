"""The operators large models live on, for every device: one interface, the fastest implementation at hand per call.

from isthmus import ops

y, residual = ops.add_rms_norm(x, residual, weight, eps=1e-6)
print(ops.which("add_rms_norm", x, residual, weight))       # add_rms_norm: cpu (the first that serves chip)
with ops.use("add_rms_norm", "composite"):                  # in terms of PyTorch's own operators
    ...
"""

from __future__ import annotations

from isthmus.ops.choice import implementations, use, which
from isthmus.ops.norm import RMSNorm, add_rms_norm, rms_norm

__all__ = [
    "implementations", "use", "which",
    "RMSNorm", "add_rms_norm", "rms_norm",
]  # fmt: skip
