"""The call of a kernel for a case, with arguments converted as the framework does for the kernel's flags."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from isthmus import opset
from isthmus.conformance.calling import Frame
from isthmus.conformance.golden import Case, Expected, Result, Tensor, Value
from isthmus.conformance.judge import rounded
from isthmus.conformance.memory import Image, Slot
from isthmus.drivers.libraries import LoadedOperator
from isthmus.opset import dtypes as dt
from isthmus.opset.derivation.layouts import STRIDED as STRIDED_LAYOUTS
from isthmus.opset.library import IN_PLACE, MIXED, STRIDED
from isthmus.opset.schema import Argument, Schema

_NOT_PROMOTED = ("condition", "mask")
_LARGEST_SHARED = 4096  # bytes of a tensor that is looked up among the others of its call
_OTHERS_THAT_PROMOTE = ("aten::cat", "aten::stack")


class NotClaimed(Exception):
    """The library does not claim to support this call; the message is the reason."""


class Target(NamedTuple):
    """A result to compare: its slot and its expected value."""

    slot: Slot
    expected: Expected


class Plan:
    """A call of a kernel.

    Attributes:
        kernel: the kernel.
        image: memory of the call.
        targets: results to compare.
        shareable: (input, output) pairs that may share memory.

    Raises:
        NotClaimed: the kernel does not claim the dtypes of this call.
    """

    def __init__(self, kernel: LoadedOperator, schema: Schema, case: Case, alignment: int) -> None:
        self.kernel, self._schema, self._case = kernel, schema, case
        self._compute = compute_dtype(schema, case) if promotes(schema.name) else ""
        self.targets: list[Target] = []
        self._read: dict[Any, Slot] = {}
        self._frames: dict[Any, Frame] = {}
        inputs = [
            self._input(argument.name, argument.written, _in_full(argument, value))
            for argument, value in zip(schema.inputs, case.arguments, strict=True)
        ]
        outputs = [
            self._output(result.name, expected)
            for result, expected in zip(schema.outputs, case.outputs, strict=True)
        ]
        self._arguments = [*inputs, *outputs]
        self._check_dtypes()
        self.image = Image(list({id(slot): slot for slot in _slots(self._arguments)}.values()), alignment)
        self.shareable = list(self._pairs(inputs, outputs)) if kernel.flags & IN_PLACE else []

    def frame(
        self,
        base: int,
        dlpack_device: tuple[int, int],
        share: tuple[Slot, Slot] | None = None,
        disturb: bool = False,
    ) -> Frame:
        """Return the arguments for an image at address base, made once for each set of arguments.

        Args:
            share: (input, output): place the output in the memory of the input.
            disturb: change one number that cannot change shapes, another one in each case.
        """
        changed = self._number if disturb and self.image.slots else -1
        key = (base, dlpack_device, share, changed)
        if key not in self._frames:
            frame = self._frames[key] = Frame(dlpack_device)
            for i, argument in enumerate(self._arguments):
                frame.push(
                    _another_number(argument) if i == changed else _place_argument(argument, base, share)
                )
        return self._frames[key]

    @property
    def has_number(self) -> bool:
        """Whether an argument is a number that cannot change shapes."""
        return self._number >= 0

    @cached_property
    def _number(self) -> int:
        """Return the position of a number, another one in each case; -1 if there is none."""
        numbers = [i for i, a in enumerate(self._schema.inputs) if a.base in ("Scalar", "float")]
        given = [i for i in numbers if self._arguments[i] is not None]
        turn = int(self._case.id.partition("-")[0]) if self._case.id[:1].isdigit() else 0
        return given[turn % len(given)] if given else -1

    def _input(self, name: str, written: bool, value: Value) -> Any:
        if isinstance(value, Tensor):
            slot = Slot.of_input(name, self._as_taken(name, value), written)
            if written:
                self._target(slot, self._case.written[name])
            return slot if written else self._earlier_slot(slot)
        if isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value):
            slots = [
                None if item is None else Slot.of_input(f"{name}[{i}]", self._as_taken(name, item), written)
                for i, item in enumerate(value)
            ]
            if written:
                for each, expected in zip(slots, _items(self._case.written[name]), strict=True):
                    self._target(each, expected)
            return slots
        return value

    def _earlier_slot(self, slot: Slot) -> Slot:
        """Return an earlier input that is the same tensor, as a call may pass one twice."""
        assert slot.storage is not None
        if slot.size > _LARGEST_SHARED:
            return slot
        key = (slot.dtype, slot.shape, slot.strides, slot.offset, slot.storage.tobytes())
        return self._read.setdefault(key, slot)

    def _target(self, slot: Slot | None, expected: Result) -> None:
        if slot is not None and isinstance(expected, Expected):
            self.targets.append(Target(slot, expected))

    def _as_taken(self, name: str, tensor: Tensor) -> Tensor:
        """Convert a tensor to the dtype and layout that the kernel expects."""
        taken = tensor
        dtype = dt.name_of(tensor.storage.dtype)
        promoted = self._compute and name not in _NOT_PROMOTED and not self.kernel.flags & MIXED
        if promoted and dtype != self._compute:
            taken = Tensor.contiguous(convert_array(tensor.array, self._compute))
        if not taken.is_contiguous and not self.kernel.flags & STRIDED:
            taken = Tensor.contiguous(taken.array)
        return taken

    def _output(self, name: str, expected: Result) -> Any:
        if isinstance(expected, Expected):
            layouts = self._case.output_layout.split()
            layout = layouts[len(self.targets) % len(layouts)]
            if layout in STRIDED_LAYOUTS and not self.kernel.flags & STRIDED:
                layout = "unaligned"
            slot = Slot.of_output(name, expected.dtype, expected.shape, layout)
            self.targets.append(Target(slot, expected))
            return slot
        return None if expected is None else [self._output(f"{name}[{i}]", e) for i, e in enumerate(expected)]

    def _check_dtypes(self) -> None:
        used = {slot.dtype for slot in _slots(self._arguments)}
        missing = sorted(used - {name for name in used if self.kernel.dtypes >> dt.DTYPES[name].code & 1})
        if missing:
            raise NotClaimed(f"no kernel for {', '.join(missing)}")

    @staticmethod
    def _pairs(inputs: list[Any], outputs: list[Any]) -> Iterator[tuple[Slot, Slot]]:
        """Pairs of inputs and outputs of the main result's shape; statistics are never in the memory of inputs."""
        slots = [slot for slot in outputs if isinstance(slot, Slot)]
        for slot, out in product(inputs, slots):
            if not isinstance(slot, Slot) or slot.writable or out.shape != slots[0].shape:
                continue
            same = (slot.dtype, slot.shape, slot.strides) == (out.dtype, out.shape, out.strides)
            if same and 0 not in slot.shape:
                yield slot, out


def _in_full(argument: Argument, value: Value) -> Value:
    """Return a list of one number with the length of the argument."""
    if isinstance(value, (list, tuple)) and len(value) == 1 and argument.length and not argument.is_tensor:
        return [*value] * argument.length
    return value


def promotes(name: str) -> bool:
    """Return whether the framework converts the operator's tensors to one dtype before the kernel."""
    record = opset.records().get(name, {})
    return "pointwise" in record.get("tags", ()) or name.partition(".")[0] in _OTHERS_THAT_PROMOTE


def compute_dtype(schema: Schema, case: Case) -> str:
    """Return the dtype that the framework converts tensors to: that of the result, or their common dtype."""
    result = next((e for e in case.outputs if isinstance(e, Expected)), None)
    if result is not None and result.dtype != "bool":
        return result.dtype
    ranked: list[tuple[int, bool, int, str]] = []
    for argument, value in zip(schema.inputs, case.arguments, strict=True):
        if argument.name in _NOT_PROMOTED:
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, Tensor):
                dtype = dt.name_of(item.storage.dtype)
                ranked.append((_rank(dtype), bool(item.shape), item.storage.dtype.itemsize, dtype))
            elif argument.base == "Scalar" and item is not None:
                dtype = "bool" if isinstance(item, bool) else "int64" if isinstance(item, int) else "float32"
                ranked.append((_rank(dtype), False, -1, dtype))
    top = [row for row in ranked if row[0] == max(row[0] for row in ranked)]
    dimensioned = [row for row in top if row[1]] or top
    names = {row[3] for row in dimensioned}
    return "float32" if names == set(dt.HALVES) else max(dimensioned, key=lambda row: row[2])[3]


def convert_array(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Convert an array to another dtype, rounded to nearest even."""
    if dt.DTYPES[dtype].kind == "float":
        return rounded(array.astype(np.float64), dtype)
    return array.astype(dt.DTYPES[dtype].numpy)


def _rank(dtype: str) -> int:
    return {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}[dt.DTYPES[dtype].kind]


def _items(result: Result) -> Sequence[Expected | None]:
    return [result] if result is None or isinstance(result, Expected) else result


def _slots(arguments: list[Any]) -> Iterator[Slot]:
    for argument in arguments:
        if isinstance(argument, Slot):
            yield argument
        elif isinstance(argument, list):
            yield from (item for item in argument if isinstance(item, Slot))


def _another_number(number: Any) -> Any:
    """Return another number of the same type; lists item by item."""
    if isinstance(number, list):
        return [_another_number(item) for item in number]
    if number is None or isinstance(number, bool):
        return number
    return number + 1 if isinstance(number, int) else number / 2


def _place_argument(argument: Any, base: int, share: tuple[Slot, Slot] | None) -> Any:
    if isinstance(argument, Slot):
        slot = share[0] if share and argument is share[1] else argument
        return slot.device_tensor(base)
    if isinstance(argument, (list, tuple)):
        return [_place_argument(item, base, share) for item in argument]
    return argument
