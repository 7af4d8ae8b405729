"""Activations on the host between forward and backward.

A storage that a module saves is copied to pinned memory on a stream of its own, while the device computes on. It is
freed at the end of the next such module, and read back while the backward is still in the module after it. With a
room, modules stay on the device as long as they fit in it, and move to the host when an allocation fails.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import weakref
from typing import Any

import torch

from isthmus_diagnostics.profile.roofline import fastest_time

_LEAST = 1 << 16  # bytes: smaller storages are not worth a copy
_SECONDS = 0.01  # length of a measurement of copies

_last: weakref.ref[Group] | None = None
_room = 0  # bytes of the device for activations that stay, of modules that would be offloaded
_sizes: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
_groups: weakref.WeakSet[Group] = weakref.WeakSet()
_thread = threading.local()  # may_move: this thread runs forward or backward, and is not reading ahead


def set_room(size: int) -> None:
    """Let activations of offloaded modules stay on the device as long as they fit in so many bytes."""
    global _room
    _room = size


def move(device: int, size: int) -> bool:
    """Move activations to the host until so many bytes have moved; return whether any did.

    This is a failure callback of the allocator, so it may run within a kernel that this thread computes: it never
    waits for that kernel, only for forwards and copies that come before it. The first modules move first, as the
    backward reads them last, and fewer stay from now on. Nothing moves on a thread that runs neither forward nor
    backward: it may be the worker of a stream, which a copy would wait for.
    """
    global _room
    if not getattr(_thread, "may_move", False) or device != torch.accelerator.current_device_index():
        return False
    moved = 0
    for group in sorted(_groups, key=lambda group: group.number):
        if moved < size:
            moved += group.move()
    _room = max(0, _room - moved)
    return moved > 0


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
        self._host: torch.Tensor | None = None
        self._event: Any = None  # the end of the last copy

    def __del__(self) -> None:
        """Let what reuses the device's bytes wait for their copy, if the backward has not read them."""
        if self._event is not None and self.device is not None:
            torch.accelerator.current_stream().wait_event(self._event)

    def send(self) -> None:
        """Begin to copy the bytes to the host."""
        assert self.device is not None
        self._host = _pinned_buffer(self.size)
        self._event = self._copy(self._host, self.device)

    def release(self) -> None:
        """Free the device's bytes once they are copied, if that has begun."""
        if self._event is not None:
            torch.accelerator.current_stream().wait_event(self._event)
            self.device = None

    def move(self) -> int:
        """Copy the bytes to the host, unless they are there, and free those of the device; return their number."""
        device = self.device
        if device is None or self.uses == 0:
            return 0
        if self._event is not None:
            self._event.synchronize()
        if self._host is None:
            host = _pinned_buffer(self.size)
            host.copy_(device)
            self._host = host
        self.device = None
        return self.size

    def fetch(self) -> torch.Tensor:
        """Return the bytes on the device; begin to copy them back unless they are there."""
        found = self.device
        if found is None:
            assert self._host is not None
            found = torch.empty(self.size, dtype=torch.uint8, device=torch.accelerator.current_accelerator())
            self._event = self._copy(found, self._host)
            self.device = found
        return found

    def read(self) -> torch.UntypedStorage:
        """Return the bytes on the device; after the last use the device keeps them for the caller only."""
        self.uses += self.uses == 0  # a second backward through a retained graph
        storage = self.fetch().untyped_storage()
        if self._event is not None:
            torch.accelerator.current_stream().wait_event(self._event)
        self.uses -= 1
        if self.uses == 0 and self._host is not None:
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
    """The tensors that one forward of a module saves.

    Attributes:
        number: of all groups before it.
        size: bytes that the module saved when it last ran.
        stays: whether it stays on the device.
    """

    _numbers = itertools.count()

    def __init__(self, module: torch.nn.Module) -> None:
        self.number = next(self._numbers)
        self.size = _sizes.get(module, sys.maxsize)
        self.stays: bool = sum(each.size for each in _groups if each.stays) + self.size <= _room
        self._end: Any = None  # end of the forward
        _groups.add(self)
        weights = [*module.parameters(), *module.buffers()]
        self._weights = {weight.untyped_storage()._cdata for weight in weights}
        # Held by the saved tensors, so that each is freed when the backward has read it.
        self._storages: weakref.WeakValueDictionary[int, _Storage] = weakref.WeakValueDictionary()
        self._before = _last

    def pack(self, tensor: torch.Tensor) -> Any:
        """Begin to copy a saved tensor to the host; small ones and weights stay."""
        storage = tensor.untyped_storage()
        is_small = storage.nbytes() < _LEAST or tensor.device != torch.accelerator.current_stream().device
        if is_small or storage._cdata in self._weights:
            return tensor.detach()
        stored = self._storages.get(storage._cdata)
        if stored is None or stored.device is None:  # already freed: the address is now another storage's
            stored = self._storages[storage._cdata] = _Storage(storage)
            if not self.stays:
                stored.send()
        stored.uses += 1
        return self, stored, tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset()

    @staticmethod
    def unpack(saved: Any) -> torch.Tensor:
        """Return a saved tensor, and begin to read the others and the module before."""
        if isinstance(saved, torch.Tensor):
            return saved
        group, stored, dtype, size, stride, offset = saved
        _thread.may_move = True
        storage = stored.read()
        group.read_ahead()
        if before := group._before and group._before():
            before.read_ahead()
        return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)

    def read_ahead(self) -> None:
        """Begin to copy everything back as far as there is memory; nothing moves for it."""
        _thread.may_move = False
        with contextlib.suppress(torch.OutOfMemoryError):
            for each in list(self._storages.values())[::-1]:
                if each.uses > 0:
                    each.fetch()
        _thread.may_move = True

    def move(self) -> int:
        """Move everything to the host, if the forward has ended; return the bytes that were on the device."""
        if self._end is None:
            return 0
        self._end.synchronize()
        self.stays = False
        return sum(each.move() for each in list(self._storages.values()))

    def close(self, module: torch.nn.Module) -> None:
        """End the forward: free what the module before has saved."""
        global _last
        self._end = torch.accelerator.current_stream().record_event()
        _sizes[module] = sum(each.size for each in self._storages.values())
        if before := self._before and self._before():
            for each in before._storages.values():
                each.release()
        _last = weakref.ref(self)


def bandwidth(size: int = 1 << 23) -> tuple[float, float]:
    """Measure the copies of one pinned buffer to the host and back, in bytes per second."""
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(size, dtype=torch.uint8, device=torch.accelerator.current_accelerator())
    out = fastest_time(lambda: host.copy_(device, non_blocking=True), _SECONDS)
    back = fastest_time(lambda: device.copy_(host, non_blocking=True), _SECONDS)
    return size / out, size / back


def _pinned_buffer(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    flat = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return flat.set_(storage, 0, (storage.nbytes(),), (1,))


def run(module: torch.nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the forward of a module with its activations on the host."""
    _thread.may_move = True
    group = Group(module)
    with torch.autograd.graph.saved_tensors_hooks(group.pack, group.unpack):
        output = forward(*args, **kwargs)
    group.close(module)
    return output
