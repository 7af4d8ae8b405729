"""The load of tests of cards and links, whose result is known bit by bit."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor
from torch import distributed as dist


def operand(rows: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a matrix of shape (rows, rows), the same bits on every device."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, rows, generator=generator).to(dtype).to(device)


def digest(product: Tensor) -> int:
    """Return 56 bits of a hash of the bits of a contiguous tensor. Equal work on equal cards gives equal digests."""
    return int.from_bytes(hashlib.sha256(product.cpu().view(torch.uint8).numpy().tobytes()).digest()[:7])


def all_reduce(length: int, device: torch.device) -> None:
    """Run an all-reduce over the default process group, and check its result.

    Args:
        length: number of elements, float32.
        device: of the tensor.

    Raises:
        ValueError: the result is wrong.
    """
    size = dist.get_world_size()
    values = torch.full((length,), float(dist.get_rank() + 1), device=device)
    dist.all_reduce(values)
    if not bool((values == size * (size + 1) / 2).all()):
        raise ValueError("wrong result of all_reduce")
