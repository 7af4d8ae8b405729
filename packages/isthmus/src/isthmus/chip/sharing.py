"""Sending tensors of the chip to another process (``torch.multiprocessing``): the memory itself, as on CUDA.

Both processes see each other's writes. The sender keeps the memory until the receiver frees its tensors or exits;
tensors that are never received are kept until the sender exits. The sender must be alive until the tensor is
received. If the driver cannot export the memory, a copy in shared host memory is sent: for drivers without these
functions, with ``expandable_segments``, and for received memory.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef, reduce_tensor, shared_cache, storage_from_cache
from torch.utils.hooks import warn_if_has_hooks

from isthmus import _C
from isthmus_common.patches import Scope

_LEASES = 1024  # in one table, which is one file

_scope = Scope("chip")
_token = uuid.uuid4().hex
_tables: dict[int, torch.Tensor] = {}
_taking = threading.Lock()


class Process(NamedTuple):
    """Identity of a process, unique across containers."""

    token: str
    id: int
    namespace: int
    """PID namespace; 0 if unknown."""

    @classmethod
    def this(cls) -> Process:
        """The current process."""
        try:
            namespace = Path("/proc/self/ns/pid").stat().st_ino
        except OSError:
            namespace = 0
        return cls(_token, os.getpid(), namespace)


class Sent(NamedTuple):
    """A storage sent to another process, and the lease that the receiver releases when it frees the storage."""

    process: Process
    device: int
    handle: bytes
    offset: int
    size: int  # bytes
    table: torch.Tensor
    number: int  # number of the table, in the sender
    row: int


class Geometry(NamedTuple):
    """Type and layout of a tensor on its storage."""

    kind: type[torch.Tensor]
    dtype: torch.dtype
    offset: int
    size: torch.Size
    stride: tuple[int, ...]
    requires_grad: bool


def install() -> None:
    """Replace PyTorch's reducers of tensors and parameters."""
    if _scope.patches:
        return
    reducers: dict[type, Callable[..., Any]] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    for kind in (torch.Tensor, torch.nn.Parameter):
        former = reducers[kind]
        reducers[kind] = _reduce
        _scope.record(
            f"multiprocessing.reduction.ForkingPickler of {kind.__name__}",
            "sends chip tensors by the driver's export and import, or by copy",
            lambda kind=kind, former=former: reducers.__setitem__(kind, former),  # type: ignore[misc]
        )


def uninstall() -> None:
    """Restore PyTorch's reducers."""
    _scope.undo()


def _reduce(tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
    if tensor.device.type != "chip" or (tensor.requires_grad and not tensor.is_leaf):
        return reduce_tensor(tensor)
    warn_if_has_hooks(tensor)
    sent = _send(tensor)
    if sent is None:
        return _rebuild_copy, (tensor.detach().cpu(), tensor.device, type(tensor), tensor.requires_grad)
    geometry = Geometry(
        type(tensor),
        tensor.dtype,
        int(tensor.storage_offset()),
        tensor.size(),
        tensor.stride(),
        tensor.requires_grad,
    )
    return _rebuild, (sent, geometry)


def _send(tensor: torch.Tensor) -> Sent | None:
    """Keep the tensor's storage for a receiver; None if it must be copied."""
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        return None
    exported = _C.export_storage(tensor)
    if exported is None:
        return None
    _C.collect_sent()
    number, row = _lease(tensor)
    size = tensor.untyped_storage().nbytes()
    return Sent(Process.this(), tensor.device.index, *exported, size, _tables[number], number, row)


def _lease(tensor: torch.Tensor) -> tuple[int, int]:
    with _taking:
        while (lease := _C.send_storage(tensor)) is None:
            table = torch.zeros(_LEASES, 2, dtype=torch.int64).share_memory_()
            _tables[_C.add_leases(table)] = table
    return lease


def _rebuild(sent: Sent, geometry: Geometry) -> torch.Tensor:
    storage = _receive(sent)
    tensor = torch.empty(0, dtype=geometry.dtype, device=storage.device)
    tensor.set_(storage, geometry.offset, geometry.size, geometry.stride)
    return _as_kind(tensor, geometry.kind, geometry.requires_grad)


def _receive(sent: Sent) -> torch.UntypedStorage:
    this = Process.this()
    if sent.process == this:
        return _C.take_back(sent.number, sent.row).untyped_storage()
    key = (sent.process, sent.handle, sent.offset)
    known: torch.UntypedStorage | None = storage_from_cache(torch.UntypedStorage, key)
    if known is not None:
        _C.release_lease(sent.table, sent.row)
        return known
    same_ids = this.namespace == sent.process.namespace != 0
    received = _C.receive_storage(
        sent.device, sent.handle, sent.offset, sent.size, sent.table, sent.row, same_ids
    )
    storage = received.untyped_storage()
    shared_cache[key] = StorageWeakRef(storage)
    return storage


def _rebuild_copy(
    copy: torch.Tensor, device: torch.device, kind: type[torch.Tensor], requires_grad: bool
) -> torch.Tensor:
    return _as_kind(copy.to(device), kind, requires_grad)


def _as_kind(tensor: torch.Tensor, kind: type[torch.Tensor], requires_grad: bool) -> torch.Tensor:
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)
