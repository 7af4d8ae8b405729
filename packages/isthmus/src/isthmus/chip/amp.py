"""Automatic mixed precision: ``torch.amp`` with the chip as its device."""

from collections.abc import Callable
from typing import Any

import torch


def get_amp_supported_dtype() -> list[torch.dtype]:
    """dtypes supported by ``torch.autocast``."""
    return [torch.bfloat16, torch.float16, torch.float32]


class autocast(torch.amp.autocast):
    """``torch.autocast("chip", ...)``.

    Args:
        enabled: whether autocast is enabled.
        dtype: compute dtype; None is the default of the chip.
        cache_enabled: whether to cache casts of parameters until the outermost region ends.
    """

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool | None = True
    ) -> None:
        super().__init__("chip", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("chip", ...)``; the arguments are those of ``torch.amp.GradScaler``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("chip", *args, **kwargs)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None) -> Any:
    """``torch.amp.custom_fwd(device_type="chip")``: decorator for the ``forward`` of an autograd function.

    Args:
        fwd: the method; None if the decorator is called with arguments.
        cast_inputs: cast floating-point inputs on the chip to this dtype, and disable autocast inside.
    """
    return torch.amp.custom_fwd(fwd, device_type="chip", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any] | None = None) -> Any:
    """``torch.amp.custom_bwd(device_type="chip")``: decorator for ``backward``; uses forward's autocast state."""
    return torch.amp.custom_bwd(bwd, device_type="chip")
