"""FP8 tensor type for Megatron's isinstance checks."""

import torch


class Float8Tensor(torch.Tensor):
    """FP8 tensor; never created."""
