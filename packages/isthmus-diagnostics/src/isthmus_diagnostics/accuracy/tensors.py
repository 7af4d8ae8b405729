"""Numbers for tensors: one for each content, so that a result that is an argument elsewhere is recorded once."""

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from isthmus_diagnostics.accuracy.statistics import is_measurable
from isthmus_diagnostics.accuracy.writer import Writer

Extent = tuple[int, int]
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Tensors:
    """The tensors of a dump.

    A content is known by storage, place in it, and version; a write through PyTorch's dispatcher changes the version,
    or is announced by :meth:`forget_written`.

    Args:
        writer: receives a line for each content.
        names: of parameters and buffers by their ``id``.
        is_in_flight: whether a collective may still write a tensor.
    """

    def __init__(
        self, writer: Writer, names: dict[int, str], is_in_flight: Callable[[torch.Tensor], bool]
    ) -> None:
        self._is_in_flight = is_in_flight
        self._writer = writer
        self._names = names
        self._known: dict[int, tuple[StorageWeakRef, dict[Any, int], int | None]] = {}
        # Memory that was allocated without values: the parts that calls have written since.
        self._allocated: dict[int, tuple[StorageWeakRef, list[Extent]]] = {}
        self._count = 0

    def number(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor's present content; a new one is measured."""
        local, placement = (
            (tensor, "") if type(tensor) in _PLAIN and not tensor.is_nested else _local_part(tensor)
        )
        if local.layout != torch.strided:
            return self._add(tensor, local, placement, False)
        seen, writer = self._of_storage(local)
        key = (local.storage_offset(), local.shape, local.stride(), local.dtype, local._version, placement)
        number = seen.get(key)
        if number is None:
            if not is_measurable(local):
                return self._add(tensor, local, placement, False)
            is_contiguous = local.is_contiguous()
            is_ordered = is_contiguous or not self._writer.hashed
            elements: Any = key
            if is_contiguous or _is_dense(local):  # views of the same elements share these
                elements = (*key[:1], local.numel(), local.dtype, local._version, local.is_conj(), is_ordered)
            like = seen.get(elements)
            shares = like is not None and is_ordered and not self._writer.keeps_tensors
            number = seen[key] = self._add(tensor, local, placement, not shares, writer, like)
            seen.setdefault(elements, number)
        return number

    def forget_written(self, tensor: torch.Tensor, call: int | None) -> None:
        """Forget what a tensor's memory held; a call has written it, perhaps by another view."""
        local, _ = _local_part(tensor)
        if local.layout == torch.strided:
            storage = local.untyped_storage()
            self._known[storage._cdata] = (StorageWeakRef(storage), {}, call)
            if (entry := self._allocated.get(storage._cdata)) is not None and _is_dense(local):
                entry[1][:] = _join_extents([*entry[1], extent(local)])

    def note_allocation(self, tensor: torch.Tensor) -> None:
        """Note that a tensor's memory was allocated and has no values yet."""
        local, _ = _local_part(tensor)
        if is_measurable(local) and local.numel():
            storage = local.untyped_storage()
            self._known.pop(storage._cdata, None)
            self._allocated[storage._cdata] = (StorageWeakRef(storage), [])

    def is_unwritten(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor has elements that no call has written, or that a collective is writing.

        False for a tensor without values to summarize, such as a sparse one.
        """
        local, _ = _local_part(tensor)
        if not is_measurable(local):
            return False
        if self._is_in_flight(local):
            return True
        if not self._allocated or not local.numel():
            return False
        storage = local.untyped_storage()
        entry = self._allocated.get(storage._cdata)
        if entry is None:
            return False
        if entry[0].expired():
            del self._allocated[storage._cdata]
            return False
        start, end = extent(local)
        return not any(first <= start and end <= last for first, last in entry[1])

    def forget(self, all_of_them: bool = False) -> None:
        """Forget freed memory, or all."""
        self._known = {
            k: entry for k, entry in self._known.items() if not (all_of_them or entry[0].expired())
        }
        self._allocated = {
            k: entry for k, entry in self._allocated.items() if not (all_of_them or entry[0].expired())
        }

    def _of_storage(self, local: torch.Tensor) -> tuple[dict[Any, int], int | None]:
        storage = local.untyped_storage()
        entry = self._known.get(storage._cdata)
        if entry is None or entry[0].expired():
            entry = self._known[storage._cdata] = (StorageWeakRef(storage), {}, None)
        return entry[1:]

    def _add(
        self,
        tensor: torch.Tensor,
        local: torch.Tensor,
        placement: str,
        measured: bool,
        writer: int | None = None,
        like: int | None = None,
    ) -> int:
        self._count += 1
        if getattr(tensor, "tensor_model_parallel", False):  # Megatron's parameters
            placement = f"S({tensor.partition_dim})"  # type: ignore[attr-defined]
        line: dict[str, Any] = {
            "tensor": self._count,
            "dtype": str(local.dtype)[6:],
            "shape": list(local.shape),
        }
        if name := self._names.get(id(tensor)):
            line["name"] = name
        if writer is not None:
            line["writer"] = writer
        if placement:
            line["placement"], line["whole"] = placement, list(tensor.shape)
        if like is not None:
            line["like"] = like
        if measured or like is not None:
            line |= {"unwritten": True} if self.is_unwritten(local) else {}
        if measured:
            self._writer.add_tensor(line, local)
        else:
            self._writer.add_line(line)
        return self._count


def extent(tensor: torch.Tensor) -> Extent:
    """Return the bytes of its storage between the first and the last element of a tensor."""
    if not tensor.numel():
        return 0, 0
    start = int(tensor.storage_offset())
    last = start + sum(int((n - 1) * stride) for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start * tensor.element_size(), (last + 1) * tensor.element_size()


def _join_extents(extents: list[Extent]) -> list[Extent]:
    """Return the union of extents, in order."""
    found: list[Extent] = []
    for start, end in sorted(extents):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the elements fill their part of the storage, each once, in any order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _local_part(tensor: torch.Tensor) -> tuple[torch.Tensor, str]:
    """Return the part of a tensor that this rank holds, and how it is placed: ``Shard(0) tp=2``.

    Of a jagged tensor the values; a tensor on meta in place of one whose values cannot be read.
    """
    if hasattr(tensor, "_local_tensor"):
        return tensor._local_tensor, " ".join(_placement(each) for each in tensor.placements)  # type: ignore[attr-defined]
    if isinstance(tensor, AsyncCollectiveTensor):  # about to be used
        return tensor.trigger_wait(), ""
    if tensor.is_nested:  # its shape is not one of numbers
        if tensor.layout == torch.jagged:
            return tensor._values, ""  # type: ignore[return-value]
        return torch.empty(tensor.size(0), dtype=tensor.dtype, device="meta"), ""
    if is_traceable_wrapper_subclass(tensor):
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"), ""
    return tensor, ""


def _placement(placement: Any) -> str:
    if placement.is_shard():
        return f"S({placement.dim})"
    return "P" if placement.is_partial() else "R"
