"""The last accesses to each storage, with their streams."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from isthmus_diagnostics.debug.call_origin import Origin
from isthmus_diagnostics.debug.stream_clocks import Clocks, StreamKey

_LARGEST_MASK = 1 << 28  # elements; larger regions are compared only by their bounds
_LOOK_FOR_DEAD = 4096


class Region(NamedTuple):
    """The bytes of a tensor within its storage.

    Attributes:
        first: offset of the first byte.
        end: offset after the last byte.
        itemsize: bytes per element.
        shape: of the tensor.
        strides: in elements.
    """

    first: int
    end: int
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of_tensor(cls, tensor: torch.Tensor) -> Region:
        """Return the region of a tensor with at least one element."""
        shape, strides, item = tuple(tensor.shape), tensor.stride(), tensor.element_size()
        first = int(tensor.storage_offset()) * item
        last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        return cls(first, first + (last + 1) * item, item, shape, strides)

    def overlaps(self, other: Region) -> bool:
        """Return whether two regions share a byte; interleaved columns do not."""
        if self.first >= other.end or other.first >= self.end:
            return False
        if self.is_dense() and other.is_dense():
            return True
        first, end = max(self.first, other.first), min(self.end, other.end)
        if end - first > _LARGEST_MASK:
            return True
        return bool((self._mask(first, end) & other._mask(first, end)).any())

    def covers(self, other: Region) -> bool:
        """Return whether it contains the other region; False where deciding would be expensive."""
        return self == other or (self.first <= other.first and other.end <= self.end and self.is_dense())

    def is_dense(self) -> bool:
        """Return whether it contains every byte from its first to its end."""
        return (self.end - self.first) // self.itemsize <= int(np.prod(self.shape, dtype=np.int64))

    def _mask(self, first: int, end: int) -> np.ndarray:
        mask = np.zeros(self.end - self.first, np.bool_)
        strides = (*(s * self.itemsize for s in self.strides), 1)
        np.lib.stride_tricks.as_strided(mask, (*self.shape, self.itemsize), strides)[...] = True
        return mask[first - self.first : end - self.first]


class Access(NamedTuple):
    """An access to memory by an operator.

    Attributes:
        operator: overload, ``aten::add.Tensor``.
        argument: name of the argument in the schema.
        writes: whether the access writes.
        stream: stream of the operator.
        number: number of the work in :class:`Clocks`.
        origin: line of the program.
        region: accessed bytes.
        freed: whether the tensor has been freed since, so that the memory belongs to another one.
    """

    operator: str
    argument: str
    writes: bool
    stream: StreamKey
    number: int
    origin: Origin
    region: Region
    freed: bool = False


@dataclass(eq=False)
class Memory:
    """A storage.

    Attributes:
        alive: weak reference to the storage; keeps its identity from being reused.
        address: of its first byte.
        nbytes: its size.
        maker: stream that it was allocated for; None if it was allocated before checking began.
        users: streams passed to record_stream().
        accesses: the last access of each kind, stream and region.
    """

    alive: StorageWeakRef
    address: int
    nbytes: int
    maker: StreamKey | None
    users: set[StreamKey] = field(default_factory=set)
    accesses: list[Access] = field(default_factory=list)

    def is_freed(self) -> bool:
        """Return whether the memory was freed, or replaced by ``resize_``."""
        if self.alive.expired():
            return True
        storage = torch.UntypedStorage._new_with_weak_ptr(self.alive.cdata)
        return storage is None or storage.data_ptr() != self.address

    def find_conflict(self, new: Access, later: StreamKey | None, clocks: Clocks) -> Access | None:
        """Find an earlier access that the new one must wait for and does not.

        Args:
            new: the new access.
            later: its stream; None is the host.
            clocks: the known order.
        """
        for old in self.accesses:
            if not (new.writes or old.writes) or clocks.is_before(old.stream, old.number, later):
                continue
            if old.freed or old.region.overlaps(new.region):
                return old
        return None

    def add(self, new: Access) -> None:
        """Add an access and drop older ones that it supersedes."""

        def is_kept(old: Access) -> bool:
            if not new.region.covers(old.region) or old.freed:
                return True
            return not (new.writes or (not old.writes and old.stream == new.stream))

        self.accesses = [old for old in self.accesses if is_kept(old)]
        self.accesses.append(new)

    def accesses_not_awaited(self, clocks: Clocks) -> Iterator[Access]:
        """Yield accesses that the allocator does not wait for before it reuses the freed memory."""
        if self.maker is None:
            return
        for access in self.accesses:
            if access.stream not in self.users and not clocks.is_before(
                access.stream, access.number, self.maker
            ):
                yield access._replace(freed=True)


class Memories:
    """All known storages, by identity and by address."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._count = 0
        self._memories: dict[int, Memory] = {}  # keyed by number, in the order of first use
        # Identity of a storage -> its last number, also after a resize replaced its memory.
        self._by_identity: dict[int, tuple[StorageWeakRef, int]] = {}
        self._by_address: list[tuple[int, int]] = []  # address, number
        self._look_at = _LOOK_FOR_DEAD

    def known_memory(self, tensor: torch.Tensor) -> Memory | None:
        """Return the memory of a tensor if it is known."""
        storage = tensor.untyped_storage()
        entry = self._by_identity.get(storage._cdata)
        found = None if entry is None else self._memories.get(entry[1])
        # After a resize the old memory stays known by its address, for the next owner.
        return found if found is not None and found.address == storage.data_ptr() else None

    def memory_of(
        self, tensor: torch.Tensor, maker: StreamKey | None, user: StreamKey | None = None
    ) -> Memory:
        """Return the memory of a tensor, made if unknown.

        Args:
            tensor: with at least one byte.
            maker: stream that new memory was allocated for; None if unknown.
            user: stream of the current access; assumed as the maker of memory that a resize allocated.
        """
        found = self.known_memory(tensor)
        if found is not None:
            return found
        if len(self._memories) >= self._look_at:
            self._forget_freed()
        storage = tensor.untyped_storage()
        if maker is None and storage._cdata in self._by_identity:
            maker = user
        made = Memory(StorageWeakRef(storage), storage.data_ptr(), storage.nbytes(), maker)
        made.accesses = list(self._take_over(made.address, made.address + made.nbytes))
        self._count += 1
        self._memories[self._count] = made
        self._by_identity[storage._cdata] = (made.alive, self._count)
        insort(self._by_address, (made.address, self._count))
        return made

    def at(self, address: int) -> Memory | None:
        """Return the live memory that contains an address."""
        index = bisect_left(self._by_address, (address + 1, 0))
        for _, number in reversed(self._by_address[:index]):
            memory = self._memories[number]
            if not memory.is_freed():
                return memory if address < memory.address + memory.nbytes else None
        return None

    def _take_over(self, first: int, end: int) -> Iterable[Access]:
        """Remove freed memory at these addresses; return its accesses that may not be completed."""
        left: list[Access] = []
        index = bisect_left(self._by_address, (first, 0))
        # The range before may reach into this one. Live memory never overlaps new memory.
        begin = max(0, index - 1)
        for address, number in self._by_address[begin:]:
            if address >= end:
                break
            memory = self._memories[number]
            if address + memory.nbytes > first and memory.is_freed():
                left += memory.accesses_not_awaited(self._clocks)
                self._drop(number)
        return left

    def _drop(self, number: int) -> None:
        memory = self._memories.pop(number)
        del self._by_address[bisect_left(self._by_address, (memory.address, number))]
        if memory.alive.expired():
            self._by_identity.pop(memory.alive.cdata, None)

    def _forget_freed(self) -> None:
        """Drop freed memory whose accesses are all ordered."""
        for number, memory in list(self._memories.items()):
            if memory.is_freed() and not any(memory.accesses_not_awaited(self._clocks)):
                self._drop(number)
        self._by_identity = {i: e for i, e in self._by_identity.items() if not e[0].expired()}
        self._look_at = 2 * len(self._memories) + _LOOK_FOR_DEAD
