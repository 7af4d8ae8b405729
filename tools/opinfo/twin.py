"""Copies of a sample with the same bytes, strides and bits on the chip and on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

CHIP = "chip"


def tree_map(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to every leaf of nested lists, tuples and dicts, preserving container types."""
    if isinstance(value, dict):
        return {key: tree_map(function, item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(tree_map(function, item) for item in value))
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, list | tuple):
        return type(value)(tree_map(function, item) for item in value)
    return function(value)


def leaves_of(value: Any) -> list[Any]:
    """Return every leaf of nested containers, in order."""
    found: list[Any] = []

    def look(leaf: Any) -> Any:
        found.append(leaf)
        return leaf

    tree_map(look, value)
    return found


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return every tensor in nested containers, in order."""
    return [leaf for leaf in leaves_of(value) if isinstance(leaf, torch.Tensor)]


def devices_of(value: Any) -> list[str]:
    """Return the type of every device in nested containers."""
    named = [leaf for leaf in leaves_of(value) if isinstance(leaf, torch.device | str)]
    types = [(leaf, str(leaf).split(":")[0]) for leaf in named]
    return [name for leaf, name in types if isinstance(leaf, torch.device) or name in (CHIP, "cpu")]


class Copier:
    """Copies samples to one device.

    Tensors that share a storage share the copy of it. Sizes, strides, offsets, conjugate and negative bits and
    ``requires_grad`` are preserved. Every copy is a leaf. Tensors that are not on the chip stay on the CPU.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.tensors: dict[int, torch.Tensor] = {}
        self.kept: list[Any] = []  # keeps the storages alive, so that their ids stay unique

    def __call__(self, value: Any) -> Any:
        return tree_map(self._leaf, value)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.nn.Module):
            return copy.deepcopy(value).to(self.device)
        if isinstance(value, torch.Generator):
            generator = torch.Generator(self.device if value.device.type == CHIP else "cpu")
            return generator.set_state(value.get_state())
        if isinstance(value, torch.device) and value.type == CHIP:
            return torch.device(self.device)
        if isinstance(value, str) and (value == CHIP or value.startswith(CHIP + ":")):
            return self.device
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in self.tensors:
            self.kept.append(tensor)
            with torch.no_grad():
                twin = self._copy(tensor.detach())
            self.tensors[id(tensor)] = twin.requires_grad_(tensor.requires_grad)
        return self.tensors[id(tensor)]

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        device = self.device if tensor.device.type == CHIP else "cpu"
        if tensor.layout == torch.jagged:
            return self._jagged(tensor)
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            return tensor.to(device, copy=True)
        if tensor.device.type == "meta":
            return tensor.clone()
        if tensor._is_zerotensor():  # has no bytes
            return torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype, device=device)
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            self.kept.append(storage)
            raw = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            self.storages[storage._cdata] = raw.to(device, copy=True).untyped_storage()
        twin = torch.empty(0, dtype=tensor.dtype, device=device)
        twin.set_(self.storages[storage._cdata], tensor.storage_offset(), tensor.size(), tensor.stride())
        if tensor.is_conj():
            twin = torch.conj(twin)
        return torch._neg_view(twin) if tensor.is_neg() else twin

    def _jagged(self, tensor: Any) -> torch.Tensor:
        # Nested tensors with one tensor of offsets have one ragged structure, and so have their copies.
        lengths = None if tensor._lengths is None else self._tensor(tensor._lengths)
        made: torch.Tensor = torch.nested._internal.nested_tensor.nested_view_from_values_offsets_lengths(
            self._tensor(tensor._values), self._tensor(tensor._offsets), lengths, ragged_idx=tensor._ragged_idx,
            min_seqlen=tensor._maybe_min_seqlen, max_seqlen=tensor._maybe_max_seqlen,
        )  # fmt: skip
        return made


def parts_of(tensor: Any) -> list[torch.Tensor]:
    """Return the dense tensors of which a tensor of another layout consists; [] for a dense tensor."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.layout == torch.jagged:
        return [tensor._values, tensor._offsets, *([] if tensor._lengths is None else [tensor._lengths])]
    return list(tensor.unbind()) if tensor.is_nested else []


def to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to the CPU, preserving bits and strides."""
    twin = Copier("cpu")(tensor.detach())
    assert isinstance(twin, torch.Tensor)
    return twin
