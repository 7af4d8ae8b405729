"""FP8 tensor type for Megatron's isinstance checks."""

from __future__ import annotations

import torch


class Float8Tensor(torch.Tensor):
    """FP8 tensor; never created."""
