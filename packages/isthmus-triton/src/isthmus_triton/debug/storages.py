"""Where the storages of tensors are, for the CPU."""

from __future__ import annotations

import bisect
import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import torch

from isthmus_triton.devices import host_address


class Others:
    """Memory of all tensors that Python or the chip's allocator holds, where a pointer is no argument's."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] | None = None

    def find(self, address: int) -> tuple[int, int] | None:
        """Start and bytes of the storage around an address."""
        if self._ranges is None:
            self._ranges = sorted({*_known_storages(), *_live_blocks()})
        at = bisect.bisect_right(self._ranges, (address, 1 << 64)) - 1
        if at < 0:
            return None
        start, size = self._ranges[at]
        return (start, size) if address < start + size else None


def _known_storages() -> Iterator[tuple[int, int]]:
    for each in gc.get_objects():
        if type(each) in (torch.Tensor, torch.nn.Parameter):
            with contextlib.suppress(RuntimeError):  # it has no storage
                yield from filter(None, [storage_of(each)])


def _live_blocks() -> Iterator[tuple[int, int]]:
    """Memory that the accelerator's allocator has given out, if the CPU can address it."""
    device = torch.accelerator.current_accelerator()
    module: Any = torch.get_device_module(device) if device else None
    if getattr(module, "is_host_addressable", bool)():
        for block in (block for segment in module.memory_snapshot() for block in segment["blocks"]):
            if block["state"] == "active_allocated":
                yield block["address"], block["requested_size"]


def storage_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Where the CPU finds the storage of a tensor, and its bytes; None if it does not, or it is empty."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or not tensor.numel():
        return None
    size = int(tensor.untyped_storage().nbytes())
    if tensor.is_cpu:
        return (tensor.untyped_storage().data_ptr(), size) if size else None
    if not getattr(torch.get_device_module(tensor.device), "is_host_addressable", bool)():
        return None
    return host_address(tensor) - int(tensor.storage_offset()) * tensor.element_size(), size
