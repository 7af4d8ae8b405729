"""Which caching allocator a device has, and what it is told of the job."""

from __future__ import annotations

from typing import Any

import torch

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index

_is_hooked = False


def allocators() -> list[str]:
    """Names of the caching allocators that :func:`set_allocator` and ISTHMUS_ALLOCATOR take."""
    return list(_C.allocators())


def set_allocator(name: str, device: DeviceLike = None, options: str = "") -> None:
    """Choose the caching allocator of a device before its first tensor.

    Args:
        name: one of :func:`allocators`; "" leaves the choice to ISTHMUS_ALLOCATOR.
        device: all devices if None.
        options: as in PYTORCH_ALLOC_CONF, such as ``expandable_segments:True,max_split_size_mb:512``.

    Raises:
        ValueError: there is no such allocator or option.
        RuntimeError: the device has memory already.
    """
    _C.choose_allocator(-1 if device is None else _index(device), name, options)


def get_allocator_backend(device: DeviceLike = None) -> str:
    """Name of the device's caching allocator; the current device by default."""
    return _C.allocator_name(_index(device))


def step() -> None:
    """Say that a training step ends: allocators learn from steps.

    Every ``torch.optim`` optimizer says so by itself, except inside a compiled graph.
    """
    _C.memory_step()


def mark_communication_stream(stream: torch.Stream) -> None:
    """Say that a stream carries communication: blocks that it has used are reused after all others.

    So the host seldom has to wait for a collective to have the memory of a tensor that the collective has read.
    """
    _C.mark_communication_stream(stream.stream_id, stream.device_index)


def hook_optimizers() -> None:
    """Let every optimizer step call :func:`step`; once, at the first use of the chip."""
    global _is_hooked
    if not _is_hooked:
        _is_hooked = True
        from torch.optim.optimizer import register_optimizer_step_post_hook  # imported with torch

        register_optimizer_step_post_hook(_after_step)


def _after_step(*_: Any) -> None:
    if not torch.compiler.is_compiling():  # a call of the core would break the graph
        _C.memory_step()
