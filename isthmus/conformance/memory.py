"""The device memory of one call: its tensors, with guard zones between them, as one image of bytes.

The image is written before the call and read back after it. Whatever changed outside the elements of outputs was
not the kernel's to write: guard zones, inputs, the gaps between the elements of a strided tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.conformance.arrays import Array
from isthmus.conformance.calling import Placed
from isthmus.conformance.golden import Tensor, row_major
from isthmus.opset import dtypes as dt

GUARD = 256  # bytes before and after every tensor
CANARY = 0xC7
POISONS = (0xFF, 0x5A)  # the first is NaN in every floating dtype


@dataclass(eq=False)
class Slot:
    """One tensor of the image.

    Attributes:
        label: for messages: "self", "tensors[1]", "out".
        dtype: by PyTorch's name.
        shape: sizes.
        strides: in elements.
        offset: of the first element in the storage, in elements.
        storage: what lies there before the call; None for an output, which is poisoned.
        writable: whether the operator writes to its elements.
        size: of the storage, in bytes.
        start: of the storage in the image, in bytes.
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
        """An argument of the call."""
        storage = np.ascontiguousarray(tensor.storage)
        dtype = dt.name_of(storage.dtype)
        return cls(
            label,
            dtype,
            tensor.shape,
            tensor.strides,
            tensor.offset,
            storage,
            writable,
            storage.nbytes,
        )

    @classmethod
    def of_output(cls, label: str, dtype: str, shape: tuple[int, ...]) -> Slot:
        """An output of the call, contiguous."""
        size = int(np.prod(shape, dtype=np.int64)) * dt.DTYPES[dtype].numpy.itemsize
        return cls(label, dtype, shape, row_major(shape), 0, None, True, size)

    def view(self, image: Array) -> Array:
        """Its elements in an image, as an array over the bytes."""
        kind = dt.DTYPES[self.dtype].numpy
        if 0 in self.shape:
            return np.empty(self.shape, kind)
        steps = [stride * kind.itemsize for stride in self.strides]
        first = self.start + self.offset * kind.itemsize
        return np.ndarray(self.shape, kind, image.data, first, steps)

    def placed(self, base: int) -> Placed:
        """The tensor in device memory, where the image begins at base."""
        itemsize = dt.DTYPES[self.dtype].numpy.itemsize
        address = 0 if 0 in self.shape else base + self.start + self.offset * itemsize
        return Placed(address, self.dtype, self.shape, self.strides)


class Image:
    """The layout of one call's memory.

    Args:
        slots: its tensors; their ``start`` is set.
        alignment: of the device's allocations, a power of two.

    Attributes:
        nbytes: of the whole.
    """

    def __init__(self, slots: list[Slot], alignment: int) -> None:
        self.slots = slots
        alignment = max(alignment, 64)
        position = 0
        for slot in slots:
            slot.start = -(-(position + GUARD) // alignment) * alignment
            position = slot.start + slot.size
        self.nbytes = position + GUARD

    def bytes(self, poison: int, roll: bool = False) -> Array:
        """The image before a call; with ``roll`` inputs are shifted by one element: other inputs.

        Integers that fill their storage are shifted too: indices stay within their bounds.
        """
        image = np.full(self.nbytes, CANARY, np.uint8)
        for slot in self.slots:
            raw = image[slot.start : slot.start + slot.size]
            if slot.storage is None:
                raw[:] = poison
            elif slot.size:
                raw[:] = (_rolled(slot) if roll else slot.storage).view(np.uint8)
        return image

    def intruded(self, before: Array, after: Array, shared: Slot | None = None) -> str:
        """What was written that must not be, in one line; "" if nothing. ``shared`` is an input used as output."""
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


def _rolled(slot: Slot) -> Array:
    storage = slot.storage
    assert storage is not None
    floating = dt.DTYPES[slot.dtype].kind == "float"
    if floating and storage.size == 1:
        with np.errstate(all="ignore"):
            return (storage * 0.5).astype(storage.dtype)
    dense = storage.size == np.prod(slot.shape, dtype=np.int64)
    return np.roll(storage, 1) if floating or dense else storage


def _clear(different: Array, slot: Slot) -> None:
    """Elements of a slot may differ: their bytes are marked equal."""
    itemsize = dt.DTYPES[slot.dtype].numpy.itemsize
    if 0 in slot.shape:
        return
    first = slot.start + slot.offset * itemsize
    steps = [stride * itemsize for stride in slot.strides]
    marks: np.ndarray[Any, Any] = np.ndarray(
        (*slot.shape, itemsize), np.bool_, different.data, first, [*steps, 1]
    )
    marks[...] = False
