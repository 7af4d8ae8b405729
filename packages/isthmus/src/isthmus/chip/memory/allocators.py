"""Selection of the caching allocator, and hints for it."""

from typing import Any

import torch

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index

_is_hooked = False


def allocators() -> list[str]:
    """Names accepted by :func:`set_allocator` and ISTHMUS_ALLOCATOR."""
    return list(_C.allocators())


def set_allocator(name: str, device: DeviceLike = None, options: str = "") -> None:
    """Select the caching allocator of a device, before its first tensor.

    Args:
        name: one of :func:`allocators`; "" leaves the choice to ISTHMUS_ALLOCATOR.
        device: all devices if None.
        options: as in PYTORCH_ALLOC_CONF, such as ``expandable_segments:True,max_split_size_mb:512``.

    Raises:
        ValueError: unknown allocator or option.
        RuntimeError: the device already has memory.
    """
    _C.choose_allocator(-1 if device is None else _index(device), name, options)


def get_allocator_backend(device: DeviceLike = None) -> str:
    """Name of the device's caching allocator; the current device by default."""
    return _C.allocator_name(_index(device))


def step() -> None:
    """Mark the end of a training step, from which allocators learn.

    Every ``torch.optim`` optimizer calls it, except inside a compiled graph.
    """
    _C.memory_step()


def mark_communication_stream(stream: torch.Stream) -> None:
    """Mark a stream as a communication stream: its blocks are reused last.

    This avoids waiting for a collective before the memory of its inputs is reused.
    """
    _C.mark_communication_stream(stream.stream_id, stream.device_index)


def hook_optimizers() -> None:
    """Let every optimizer step call :func:`step`; called on the first use of the chip."""
    global _is_hooked
    if not _is_hooked:
        _is_hooked = True
        from torch.optim.optimizer import register_optimizer_step_post_hook  # imported with torch

        register_optimizer_step_post_hook(_after_step)


def _after_step(*_: Any) -> None:
    if not torch.compiler.is_compiling():  # a call of the core would break the graph
        _C.memory_step()
