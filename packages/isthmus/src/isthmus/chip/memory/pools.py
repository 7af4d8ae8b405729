"""Memory pools, and raw allocations by address."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from isthmus import _C
from isthmus.chip._utils import DeviceLike, _index


class MemPool:
    """A separate pool of device memory; :func:`use_mem_pool` allocates from it.

    Once the pool and its tensors are freed, ``empty_cache`` returns its memory to the driver.

    Args:
        allocator: must be None.
        use_on_oom: let other allocations use its free memory before OutOfMemoryError is raised.
        no_split: must be False.
    """

    def __init__(self, allocator: None = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if allocator is not None:
            raise NotImplementedError(
                "MemPool: allocator is not supported (the driver supplies the memory); omit it"
            )
        if no_split:
            raise NotImplementedError(
                "MemPool: no_split is not supported (it is for NCCL); omit it, or set max_split_size_mb"
            )
        self._number = _C.new_memory_pool()
        self._is_last_resort = use_on_oom
        self._by_device: dict[int, int] = {}
        self._users = 1

    @property
    def id(self) -> tuple[int, int]:
        """The pool's id in snapshots and statistics."""
        return (0, self._number)

    def use_count(self) -> int:
        """1 plus the number of active :func:`use_mem_pool` contexts."""
        return self._users

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Segments of the pool, as in ``memory_snapshot``."""
        from isthmus.chip.memory.history import memory_snapshot

        return memory_snapshot(self.id, include_traces)

    def _on(self, device: int) -> int:
        """Internal id of the pool on a device."""
        if device not in self._by_device:
            self._by_device[device] = _C.open_memory_pool(device, self._number, self._is_last_resort)
        return self._by_device[device]

    def __del__(self) -> None:
        for device, pool in getattr(self, "_by_device", {}).items():
            _C.close_memory_pool(device, pool)


@contextmanager
def use_mem_pool(pool: MemPool, device: DeviceLike = None) -> Iterator[None]:
    """Allocate from the pool for this thread and device.

    Other threads (such as backward's) and other devices are not affected. The innermost context applies.

    Raises:
        TypeError: pool is not a :class:`MemPool`.
    """
    if not isinstance(pool, MemPool):
        raise TypeError(f"use_mem_pool: expected a torch.chip.MemPool, got {pool!r}")
    outer = _C.exchange_memory_pool(pool._on(_index(device)))
    pool._users += 1
    try:
        yield
    finally:
        pool._users -= 1
        _C.exchange_memory_pool(outer)


class _Redirections(threading.local):
    """The pools that this thread allocated from before those of :func:`begin_allocate_to_pool`."""

    def __init__(self) -> None:
        self.outer: list[int] = []


_redirections = _Redirections()


def begin_allocate_to_pool(device: int, pool: tuple[int, int]) -> None:
    """Allocate from a pool for this thread, as ``torch._C._cuda_beginAllocateCurrentThreadToPool``.

    Args:
        device: its number.
        pool: ``MemPool.id``, ``Graph.pool()`` or ``graph_pool_handle()``. It remains until :func:`release_pool`.
    """
    opened = _C.open_memory_pool(device, pool[1], False)
    _redirections.outer.append(_C.exchange_memory_pool(opened))


def end_allocate_to_pool(device: int, pool: tuple[int, int]) -> None:
    """End the last :func:`begin_allocate_to_pool` of this thread.

    Raises:
        RuntimeError: there is none.
    """
    if not _redirections.outer:
        raise RuntimeError(
            f"end_allocate_to_pool: this thread does not allocate to pool {pool} of device {device}"
        )
    _C.exchange_memory_pool(_redirections.outer.pop())


def release_pool(device: int, pool: tuple[int, int]) -> None:
    """Give up a pool once per :func:`begin_allocate_to_pool`; its tensors remain."""
    opened = _C.open_memory_pool(device, pool[1], False)
    for _ in range(2):  # this opening, and that of begin_allocate_to_pool()
        _C.close_memory_pool(device, opened)


def caching_allocator_alloc(
    size: int, device: DeviceLike = None, stream: torch.Stream | int | None = None
) -> int:
    """Allocate memory for another library and return its address; free it by :func:`caching_allocator_delete`.

    Args:
        size: bytes; 0 returns address 0.
        device: the current device by default.
        stream: stream that uses it, or its id; the device's current stream by default.

    Raises:
        TypeError: size is not an integer, or stream not a stream.
        ValueError: size is negative.
        torch.OutOfMemoryError: out of memory.
    """
    index = _index(device)
    if not isinstance(size, int):
        raise TypeError(f"caching_allocator_alloc: expected a size in bytes, got {size!r}")
    if not isinstance(stream, torch.Stream | int | None):
        raise TypeError(f"caching_allocator_alloc: expected a stream or its id, got {stream!r}")
    if size < 0:
        raise ValueError(f"caching_allocator_alloc: size {size} is negative")
    if stream is None:
        return _C.raw_allocate(size, _C.current_stream(index)[0], index)
    number = stream if isinstance(stream, int) else stream.stream_id
    return _C.raw_allocate(size, number, index)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free memory of :func:`caching_allocator_alloc`. Raises ValueError for unknown addresses."""
    if not isinstance(mem_ptr, int):
        raise TypeError(f"caching_allocator_delete: expected an address, got {mem_ptr!r}")
    _C.raw_delete(mem_ptr)
