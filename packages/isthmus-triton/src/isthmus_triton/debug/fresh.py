"""Memory that nobody has written since it was allocated.

The functions of PyTorch that return uninitialised tensors fill them with a pattern that depends on the address, a
signalling NaN in each word. What still holds it when a kernel reads it was written by no kernel and no operator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from isthmus_triton.debug.storages import storage_of

_FUNCTIONS = (
    *((torch, name) for name in ("empty", "empty_like", "empty_strided", "empty_permuted")),
    *((torch.Tensor, name) for name in ("new_empty", "new_empty_strided")),
)
_LARGEST = 1 << 28  # bytes; larger tensors may be addresses without memory


def mark_fresh_memory() -> Callable[[], None]:
    """Replace the functions that return uninitialised tensors; return a function that puts them back."""
    from torch.utils import _device

    _device._device_constructors()  # caches the functions by identity, for torch.set_default_device
    originals = [getattr(owner, name) for owner, name in _FUNCTIONS]
    for (owner, name), function in zip(_FUNCTIONS, originals, strict=True):
        setattr(owner, name, _marking(function))

    def undo() -> None:
        for (owner, name), function in zip(_FUNCTIONS, originals, strict=True):
            setattr(owner, name, function)

    return undo


def _marking(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(function)
    def allocate(*arguments: Any, **options: Any) -> torch.Tensor:
        tensor = function(*arguments, **options)
        if not torch.compiler.is_compiling() and options.get("out") is None:
            _fill(tensor)
        return tensor

    return allocate


def _fill(tensor: torch.Tensor) -> None:
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    if type(tensor) is not torch.Tensor or tensor.is_quantized or is_wrapped:
        return
    found = storage_of(tensor)
    if found is None or found[1] > _LARGEST:
        return
    if not tensor.is_cpu:
        device = torch.get_device_module(tensor.device)
        if device.is_current_stream_capturing():
            return
        device.synchronize(tensor.device)  # the memory may still be read by what runs
    from isthmus_triton.debug import runtime  # needs Triton, which may be importing the driver

    runtime.library().debug_fill(*found)
