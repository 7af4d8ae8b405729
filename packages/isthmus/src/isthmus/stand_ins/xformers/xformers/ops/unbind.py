"""Unbinding of packed tensors."""

import torch


def unbind(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, ...]:
    """:func:`torch.unbind`."""
    return torch.unbind(x, dim)
