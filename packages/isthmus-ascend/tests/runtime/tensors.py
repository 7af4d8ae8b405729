"""Random tensors with every irregularity of layout."""

from collections.abc import Callable
from typing import Any

import torch


def real(*shape: int, low: float = -2, high: float = 2, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return random numbers as a transposed view with gaps, which starts inside its storage."""
    if not shape:
        return torch.empty(3, dtype=dtype).uniform_(low, high)[1]
    whole = torch.empty(*(2 * size for size in reversed(shape)), dtype=dtype).uniform_(low, high)
    view = whole.permute(*reversed(range(len(shape))))
    return view[tuple(slice(1, None, 2) for _ in shape)]


def leaf(*shape: int) -> torch.Tensor:
    """Return real numbers in float64 that have a gradient."""
    return real(*shape).double().requires_grad_()


def whole(*shape: int, low: int = 0, high: int = 8, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Return random integers, laid out as real() does."""
    return real(*shape, low=low, high=high, dtype=torch.float64).floor().to(dtype)


def codes(*shape: int) -> torch.Tensor:
    return whole(*shape, low=-128, high=128).to(torch.int8)


def quantised(value: torch.Tensor, low: int = -128, high: int = 127) -> torch.Tensor:
    return value.round().clamp(low, high).to(torch.int8)


def flags(*shape: int) -> torch.Tensor:
    return real(*shape) > 0


def positive(*shape: int) -> torch.Tensor:
    return real(*shape, low=0.1, high=0.9)


def several(make: Callable[..., torch.Tensor] = real) -> list[torch.Tensor]:
    return [make(3, 4), make(2), make(2, 3, 2)]


def logits(*shape: int) -> torch.Tensor:
    return torch.log_softmax(real(*shape), -1)


def definite(*shape: int) -> torch.Tensor:
    matrix = real(*shape)
    return matrix @ matrix.mT + 3 * torch.eye(shape[-1])


def places(pool: Callable[..., tuple[torch.Tensor, torch.Tensor]], *arguments: Any) -> torch.Tensor:
    """Return the indices of a pooling."""
    return pool(*arguments)[1]
