"""RMSNorm of xFormers."""

import torch
from torch import nn

from isthmus.ops.xformers import rms_norm, rms_norm_add

__all__ = ["RMSNorm", "rms_norm", "rms_norm_add"]


class RMSNorm(nn.Module):
    """RMSNorm of the last dimension.

    Args:
        dim: its size.
        include_weight: whether to multiply by a weight.
        eps: added to the mean.
    """

    def __init__(self, dim: int, include_weight: bool = True, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim)) if include_weight else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalized input."""
        return rms_norm(x, self.weight, self.eps)

    def increment_and_forward_(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Add ``y`` to ``x`` in place and return the normalized sum."""
        return rms_norm_add(x, y, self.weight, self.eps)
