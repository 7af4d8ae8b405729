"""The device memory of a call: an image of its tensors with guard zones between them.

The image is written before the call and read after it. Only elements of outputs may change; guard zones, inputs and
the gaps between the elements of a strided tensor must not. Inputs come first, a page apart from the written tensors,
so that their pages can be made read-only.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.conformance.arrays import Array
from isthmus.conformance.calling import DeviceTensor
from isthmus.conformance.golden import Tensor
from isthmus.opset import dtypes as dt
from isthmus.opset.derivation.layouts import ALL

GUARD = 256  # bytes between two tensors
EDGE = 64 << 10  # bytes before the first tensor and after the last
CANARY = 0xC7
_FEWEST_KEPT = 4  # elements of an input whose first and last stay when it is shifted
POISONS = (0xFF, 0x5A)  # the first is NaN in every floating dtype


@dataclass(eq=False)
class Slot:
    """A tensor of the image.

    Attributes:
        label: name in messages: "self", "tensors[1]", "out".
        dtype: PyTorch's name.
        shape: sizes.
        strides: in elements.
        offset: offset of the first element in the storage, in elements.
        storage: content before the call; None for an output, which is poisoned.
        writable: whether the operator writes its elements.
        size: size of the storage, in bytes.
        start: offset of the storage in the image, in bytes.
    """

    label: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    storage: Array | None
    writable: bool
    size: int
    start: int = 0

    @classmethod
    def of_input(cls, label: str, tensor: Tensor, writable: bool) -> Slot:
        """Make the slot of an argument."""
        storage = np.ascontiguousarray(tensor.storage)
        dtype = dt.name_of(storage.dtype)
        return cls(
            label, dtype, tensor.shape, tensor.strides, tensor.offset, storage, writable, storage.nbytes
        )

    @classmethod
    def of_output(cls, label: str, dtype: str, shape: tuple[int, ...], layout: str = "contiguous") -> Slot:
        """Make the slot of an output in a layout of :mod:`isthmus.opset.derivation.layouts`."""
        extent, strides, offset = ALL[layout].place(shape)
        return cls(label, dtype, shape, strides, offset, None, True, extent * dt.DTYPES[dtype].numpy.itemsize)

    def view(self, image: Array) -> Array:
        """Return its elements as a view of an image."""
        kind = dt.DTYPES[self.dtype].numpy
        if 0 in self.shape:
            return np.empty(self.shape, kind)
        steps = [stride * kind.itemsize for stride in self.strides]
        first = self.start + self.offset * kind.itemsize
        return np.ndarray(self.shape, kind, image.data, first, steps)

    def device_tensor(self, base: int) -> DeviceTensor:
        """Return the tensor in device memory, for an image at address base."""
        itemsize = dt.DTYPES[self.dtype].numpy.itemsize
        address = 0 if 0 in self.shape else base + self.start + self.offset * itemsize
        return DeviceTensor(address, self.dtype, self.shape, self.strides)


class Image:
    """The memory layout of a call.

    Args:
        slots: the tensors; sets their ``start``.
        alignment: alignment of the device's allocations, a power of two.

    Attributes:
        slots: the tensors.
        inputs: range of bytes of the tensors that are not written, with the guard zones between them.
        nbytes: size of the image.
    """

    def __init__(self, slots: list[Slot], alignment: int) -> None:
        self.slots = slots
        alignment = max(alignment, 64)
        end = _place([slot for slot in slots if not slot.writable], EDGE, alignment)
        self.inputs = range(EDGE, end)
        end = _place([slot for slot in slots if slot.writable], end + mmap.PAGESIZE, alignment)
        self.nbytes = end + EDGE

    def bytes(self, poison: int, roll: bool = False) -> Array:
        """Return the image before a call; with ``roll``, inputs are shifted by one element to get other inputs.

        The first and last elements, by which a cache may know its inputs, stay if there are others. Integers are
        shifted only if they fill their storage, so that indices stay within bounds.
        """
        image = np.full(self.nbytes, CANARY, np.uint8)
        for slot in self.slots:
            raw = image[slot.start : slot.start + slot.size]
            if slot.storage is None:
                raw[:] = poison
            elif slot.size:
                raw[:] = (_roll(slot) if roll else slot.storage).view(np.uint8)
        return image

    def describe_intrusion(self, before: Array, after: Array, shared: Slot | None = None) -> str:
        """Report illegal writes in one line, or "". ``shared`` is an input whose memory holds the output."""
        different = before != after
        if not different.any():
            return ""
        for slot in self.slots:
            if slot.writable or slot is shared:
                _clear(different, slot)
        touched = np.flatnonzero(different)
        return self._describe(int(touched[0]), len(touched)) if len(touched) else ""

    def _describe(self, position: int, count: int) -> str:
        for slot in self.slots:
            if slot.start <= position < slot.start + slot.size:
                what = f"the gaps of {slot.label}" if slot.writable else f"the input {slot.label}"
                return f"{what} was modified: {count} bytes, the first is byte {position - slot.start}"
        nearest = min(
            self.slots,
            key=lambda slot: min(abs(slot.start - position), abs(slot.start + slot.size - position)),
        )
        behind = position >= nearest.start + nearest.size
        far = position - (nearest.start + nearest.size) + 1 if behind else nearest.start - position
        side = "behind" if behind else "before"
        return f"wrote outside its tensors: {count} bytes, the first {far} bytes {side} {nearest.label}"


def _place(slots: list[Slot], position: int, alignment: int) -> int:
    """Set the start of each slot, from a position on; return the end of the last."""
    for slot in slots:
        slot.start = -(-(position + GUARD) // alignment) * alignment
        position = slot.start + slot.size
    return position


def _roll(slot: Slot) -> Array:
    storage = slot.storage
    assert storage is not None
    floating = dt.DTYPES[slot.dtype].kind == "float"
    if floating and storage.size == 1:
        with np.errstate(all="ignore"):
            return (storage * 0.5).astype(storage.dtype)
    dense = storage.size == np.prod(slot.shape, dtype=np.int64)
    if not (floating or dense):
        return storage
    inner = slice(1, -1) if storage.size >= _FEWEST_KEPT else slice(None)
    rolled = storage.copy()
    rolled[inner] = np.roll(storage[inner], 1)
    return rolled


def _clear(different: Array, slot: Slot) -> None:
    """Mark the bytes of a slot's elements as equal."""
    itemsize = dt.DTYPES[slot.dtype].numpy.itemsize
    if 0 in slot.shape:
        return
    first = slot.start + slot.offset * itemsize
    steps = [stride * itemsize for stride in slot.strides]
    marks: np.ndarray[Any, Any] = np.ndarray(
        (*slot.shape, itemsize), np.bool_, different.data, first, [*steps, 1]
    )
    marks[...] = False
