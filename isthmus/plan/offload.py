"""Activations on the host between forward and backward.

A storage that a module saves is copied to pinned memory on a stream of its own, while the device computes on. It is
freed at the end of the next such module, and read back while the backward is still in the module after it.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any

import torch

from isthmus.profile.roofline import fastest

_LEAST = 1 << 16  # bytes: smaller storages are not worth a copy
_SECONDS = 0.01  # of a measurement of copies

_last: weakref.ref[Group] | None = None
_room = 0  # bytes of the device for activations that stay, of modules that would be offloaded
_sizes: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
_staying: weakref.WeakSet[Group] = weakref.WeakSet()


def set_room(size: int) -> None:
    """Let activations of offloaded modules stay on the device as long as they fit in so many bytes."""
    global _room
    _room = size


@functools.cache
def _stream() -> Any:
    return torch.Stream(torch.accelerator.current_accelerator())


class _Storage:
    """A storage that is on the device, on the host, or both.

    Attributes:
        device: its bytes on the device, or None.
        size: in bytes.
        uses: saved tensors that have not been read in the backward.
    """

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.device: torch.Tensor | None = _bytes(storage)
        self.uses = 0
        self.size = storage.nbytes()
        self._host = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=True)
        self._event = self._copy(self._host, self.device)

    def release(self) -> None:
        """Free the device's bytes once they are copied."""
        torch.accelerator.current_stream().wait_event(self._event)
        self.device = None

    def fetch(self) -> None:
        """Begin to copy the bytes back, unless they are on the device."""
        if self.device is None and self.uses > 0:
            device = torch.accelerator.current_accelerator()
            self.device = torch.empty(len(self._host), dtype=torch.uint8, device=device)
            self._event = self._copy(self.device, self._host)

    def read(self) -> torch.UntypedStorage:
        """Return the bytes on the device; after the last use the device keeps them for the caller only."""
        self.uses += self.uses == 0  # a second backward through a retained graph
        self.fetch()
        assert self.device is not None
        torch.accelerator.current_stream().wait_event(self._event)
        storage = self.device.untyped_storage()
        self.uses -= 1
        if self.uses == 0:
            self.device = None
        return storage

    @staticmethod
    def _copy(to: torch.Tensor, source: torch.Tensor) -> Any:
        stream = _stream()
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            to.copy_(source, non_blocking=True)
        return stream.record_event()


class Group:
    """What one forward of a module saves.

    Attributes:
        size: bytes that the module saved when it was last offloaded.
        stays: whether it stays on the device.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.size = _sizes.get(module, sys.maxsize)
        self.stays = sum(each.size for each in _staying) + self.size <= _room
        if self.stays:
            _staying.add(self)
        weights = [*module.parameters(), *module.buffers()]
        self._weights = {weight.untyped_storage()._cdata for weight in weights}
        self._storages: dict[int, _Storage] = {}
        self._before = _last

    def pack(self, tensor: torch.Tensor) -> Any:
        """Begin to copy a saved tensor to the host; small ones and weights stay."""
        if self.stays:
            return self, tensor.detach()
        storage = tensor.untyped_storage()
        is_small = storage.nbytes() < _LEAST or tensor.device != torch.accelerator.current_stream().device
        if is_small or storage._cdata in self._weights:
            return tensor.detach()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = _Storage(storage)
        stored = self._storages[storage._cdata]
        stored.uses += 1
        return self, stored, tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset()

    @staticmethod
    def unpack(saved: Any) -> torch.Tensor:
        """Return a saved tensor, and begin to read the module before."""
        if isinstance(saved, torch.Tensor):
            return saved
        if len(saved) == 2:
            return saved[1]
        group, stored, dtype, size, stride, offset = saved
        group.fetch()
        if before := group._before and group._before():
            before.fetch()
        storage = stored.read()
        return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)

    def fetch(self) -> None:
        """Begin to copy everything back."""
        for each in self._storages.values():
            each.fetch()

    def close(self, module: torch.nn.Module) -> None:
        """End the forward: free what the module before has saved."""
        global _last
        if self.stays:
            return
        _sizes[module] = sum(each.size for each in self._storages.values())
        if before := self._before and self._before():
            for each in before._storages.values():
                each.release()
        _last = weakref.ref(self)


def bandwidth(size: int = 1 << 23) -> tuple[float, float]:
    """Measure the copies of one pinned buffer to the host and back, in bytes per second."""
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(size, dtype=torch.uint8, device=torch.accelerator.current_accelerator())
    out = fastest(lambda: host.copy_(device, non_blocking=True), _SECONDS)
    back = fastest(lambda: device.copy_(host, non_blocking=True), _SECONDS)
    return size / out, size / back


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    flat = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return flat.set_(storage, 0, (storage.nbytes(),), (1,))


def run(module: torch.nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the forward of a module with its activations on the host."""
    group = Group(module)
    with torch.autograd.graph.saved_tensors_hooks(group.pack, group.unpack):
        output = forward(*args, **kwargs)
    group.close(module)
    return output
