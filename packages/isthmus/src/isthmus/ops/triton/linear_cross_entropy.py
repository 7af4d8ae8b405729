"""Fused linear cross entropy: PyTorch's matrix products and Triton's losses, in chunks of rows."""

from typing import Any

import torch

from isthmus.ops.linear_cross_entropy import chunked
from isthmus.ops.triton.cross_entropy import cross_entropy, cross_entropy_backward_


def linear_cross_entropy(*arguments: Any) -> tuple[torch.Tensor | None, ...]:
    """The operator ``isthmus::linear_cross_entropy``; the gradient of a chunk overwrites its logits."""
    return chunked(cross_entropy, _over_logits, *arguments)


def _over_logits(
    grad: torch.Tensor, grad_lse: torch.Tensor | None, logits: torch.Tensor, *others: Any
) -> torch.Tensor:
    cross_entropy_backward_(logits, grad, grad_lse, *others)
    return logits
