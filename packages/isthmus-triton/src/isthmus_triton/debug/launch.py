"""Launches of one kernel with checks: its allocations, and the report of its faults."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch

from isthmus_triton.debug import runtime
from isthmus_triton.debug.accesses import Access, Accesses
from isthmus_triton.debug.faults import Fault, KernelFault
from isthmus_triton.debug.requests import seed
from isthmus_triton.debug.storages import Others
from isthmus_triton.ttir import read

_ELSEWHERE = 1 << 63  # the bit of allocations that are no argument's
_NONE = (1 << 32) - 1
_KINDS = (
    "out of bounds", "other allocation", "misaligned", "uninitialised", "race", "deadlock", "assertion",
)  # fmt: skip
_BYTES = {"f64": 8, "i64": 8, "i1": 1, "i8": 1, "i16": 2, "f16": 2, "bf16": 2}  # others 4
_launches = itertools.count()


class Argument(NamedTuple):
    """A tensor of a launch.

    Attributes:
        name: of the parameter.
        address: of its first element, for the CPU.
        tensor: itself.
        width: bytes of an element, as the kernel sees it.
        allocation: its number.
    """

    name: str
    address: int
    tensor: torch.Tensor
    width: int
    allocation: int


class Debugger:
    """Runs launches of a kernel with checks.

    Args:
        name: of the kernel.
        ttir: its module, with lines.
        names: of the parameters of its C function.
    """

    def __init__(self, name: str, ttir: str, names: list[str]) -> None:
        self._name, self._names = name, names
        parts = sorted(read(ttir), key=lambda each: each.is_public)
        self._accesses = Accesses(parts).list
        self._types = [each.type for each in parts[-1].body.parameters]
        runtime.library()  # before the kernel's, which calls it

    def run(
        self,
        kernel: int,
        call: bytes,
        grid: tuple[int, int, int],
        tensors: dict[int, tuple[int, torch.Tensor]],
    ) -> None:
        """Run all programs of a launch.

        Args:
            kernel: the address of the C function.
            call: its argument.
            grid: its sizes.
            tensors: address and tensor, by place among the parameters of the C function.

        Raises:
            KernelFault: with the first fault and the number of others.
        """
        allocations, arguments = self._allocations(tensors)
        allowed = [self._allowed(each, arguments) for each in self._accesses]
        others = Others()
        order = seed()
        faults = runtime.run(
            kernel,
            call,
            allocations,
            allowed,
            others.find,
            (order + next(_launches)) * 2654435761 % (1 << 62),
        )
        if faults:
            report = _Report(self._accesses, allocations, arguments, grid)
            raise KernelFault(self._name, [report.fault(each) for each in faults], order)

    def writer(self, address: int, grid: tuple[int, int, int]) -> tuple[int, int, int] | None:
        """The program that last wrote at an address in the last launch; None if none did."""
        number = runtime.library().debug_writer(address)
        return None if number < 0 else place_in(grid, number)

    def _allocations(
        self, tensors: dict[int, tuple[int, torch.Tensor]]
    ) -> tuple[list[tuple[int, int, int]], dict[int, Argument]]:
        """The allocations of the arguments, of which those that overlap are one; and the arguments by place."""
        found: list[tuple[int, int, int]] = []
        arguments: dict[int, Argument] = {}
        for place, (address, tensor) in tensors.items():
            start = address - int(tensor.storage_offset()) * tensor.element_size()
            end = start + int(tensor.untyped_storage().nbytes())
            width = _width(self._types[place].element)
            number, shift = len(found), width.bit_length() - 1
            for at, (first, size, other) in enumerate(found):
                if first < end and start < first + size:
                    start, end = min(first, start), max(first + size, end)
                    number, shift = at, min(shift, other)
            found[number : number + 1] = [(start, end - start, shift)]
            arguments[place] = Argument(self._names[place], address, tensor, width, number)
        return found, arguments

    def _allowed(self, access: Access, arguments: dict[int, Argument]) -> int:
        if access.parameters is None:
            return (1 << 64) - 1
        mask = 0
        for place in access.parameters:
            mask |= 1 << min(arguments[place].allocation, 63) if place in arguments else _ELSEWHERE
        return mask


class _Report:
    """Words for the faults of a launch."""

    def __init__(
        self, accesses: list[Access], allocations: list[tuple[int, int, int]], arguments: dict[int, Argument],
        grid: tuple[int, int, int],
    ) -> None:  # fmt: skip
        self._accesses, self._allocations, self._arguments, self._grid = (
            accesses,
            allocations,
            arguments,
            grid,
        )

    def fault(self, raw: runtime.RawFault) -> Fault:
        """Describe a fault."""
        access, kind = self._accesses[raw.access], _KINDS[raw.kind]
        argument = self._argument(access, raw.allocation)
        fault = Fault(kind, access.line, place_in(self._grid, raw.program), count=raw.count)
        if argument is not None:
            fault.argument = argument.name
            fault.index = (raw.address - argument.address) // argument.width
        if raw.other_access != _NONE:
            fault.other_line = self._accesses[raw.other_access].line
        if raw.other_program != _NONE:
            fault.other_program = place_in(self._grid, raw.other_program)
        fault.text = self._text(raw, access, argument, fault)
        return fault

    def _argument(self, access: Access, allocation: int) -> Argument | None:
        """The argument of an allocation that an access may point into; another of it if there is none."""
        places = sorted(self._arguments, key=lambda place: place not in (access.parameters or ()))
        found = (self._arguments[each] for each in places)
        return next((each for each in found if each.allocation == allocation), None)

    def _text(self, raw: runtime.RawFault, access: Access, argument: Argument | None, fault: Fault) -> str:
        element = f"{fault.argument}[{fault.index}]" if argument else "memory of no argument"
        match fault.kind:
            case "out of bounds":
                return f"{access.name} out of bounds: {self._distance(raw, argument)}"
            case "other allocation":
                owner = next(
                    (e.name for e in self._arguments.values() if e.allocation == raw.inside), "another tensor"
                )
                return f"{access.name} out of bounds: {self._distance(raw, argument)}, within {owner}"
            case "misaligned":
                return f"{access.name} of {raw.size} bytes at a misaligned address, in {element}"
            case "uninitialised":
                return f"{access.name} of uninitialised memory: {element}"
            case "race":
                other = self._accesses[raw.other_access]
                return f"race: {access.name} of {element}, and {other.name} by another program"
            case "deadlock":
                return (
                    f"lock is never released: a program waits for {element}, and all others end or wait too"
                )
        return f"device assertion failed: {access.text}"

    def _distance(self, raw: runtime.RawFault, argument: Argument | None) -> str:
        if raw.address < 4096:
            return "null pointer"
        if argument is None:
            return f"address {raw.address:#x} is in no tensor that is alive"
        start, size, _ = self._allocations[argument.allocation]
        below = raw.address < start
        distance = start - raw.address if below else raw.address - (start + size)
        place = "before the start" if below else "past the end"
        shape = "x".join(map(str, argument.tensor.shape)) or "1 element"
        return (
            f"{argument.name}[{(raw.address - argument.address) // argument.width}], "
            f"{-(-distance // argument.width) if below else distance // argument.width + 1} elements {place} "
            f"of {argument.name} ({shape}, {str(argument.tensor.dtype).removeprefix('torch.')})"
        )


def _width(element: str) -> int:
    """Bytes of an element in memory."""
    return 8 if element.startswith("!") else 1 if element.startswith("f8") else _BYTES.get(element, 4)


def place_in(grid: tuple[int, int, int], number: int) -> tuple[int, int, int]:
    """The id of a program by its number."""
    x, y, _ = grid
    return number % x, number // x % y, number // (x * y)
