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

Grid = tuple[int, int, int]
_ELSEWHERE = 1 << 63  # the bit of allocations that are no argument's
_NONE = (1 << 32) - 1
_KINDS = (
    "out of bounds", "other allocation", "misaligned", "uninitialised", "race", "deadlock", "assertion",
)  # fmt: skip
_TEXTS = {
    "out of bounds": "{access} out of bounds: {distance}",
    "other allocation": "{access} out of bounds: {distance}, within {owner}",
    "misaligned": "{access} at a misaligned address: {element}",
    "uninitialised": "{access} of uninitialised memory: {element}",
    "race": "race: {access} of {element}, and {other} by another program",
    "deadlock": "lock is never released: a program waits for {element}, and all others end or wait too",
    "assertion": "device assertion failed: {message}",
}
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
        self._types = [each.type.element for each in parts[-1].body.parameters]
        runtime.library()  # before the kernel's, which calls it

    def run(self, kernel: int, call: bytes, grid: Grid, tensors: dict[int, tuple[int, torch.Tensor]]) -> None:
        """Run all programs of a launch.

        Args:
            kernel: the address of the C function.
            call: its argument.
            grid: its sizes.
            tensors: address and tensor, by place among the parameters of the C function.

        Raises:
            KernelFault: with all kinds of faults at all accesses.
        """
        allocations, arguments = self._allocations(tensors)
        allowed = [_allowed(each, arguments) for each in self._accesses]
        order = (seed() + next(_launches)) * 2654435761 % (1 << 62)
        faults = runtime.run(kernel, call, allocations, allowed, Others().find, order)
        if faults:
            found = [self._fault(each, grid, allocations, arguments) for each in faults]
            raise KernelFault(self._name, found, seed())

    def writer(self, address: int, grid: Grid) -> Grid | None:
        """The program that last wrote at an address in the last launch; None if none did."""
        number = runtime.library().debug_writer(address)
        return None if number < 0 else _place_in(grid, number)

    def _allocations(
        self, tensors: dict[int, tuple[int, torch.Tensor]]
    ) -> tuple[list[tuple[int, int, int]], dict[int, Argument]]:
        """The allocations of the arguments, of which those that overlap are one; and the arguments by place."""
        found: list[tuple[int, int, int]] = []
        arguments: dict[int, Argument] = {}
        for place, (address, tensor) in tensors.items():
            start = address - int(tensor.storage_offset()) * tensor.element_size()
            end = start + int(tensor.untyped_storage().nbytes())
            width = _width(self._types[place])
            number, shift = len(found), width.bit_length() - 1
            for at, (first, size, other) in enumerate(found):
                if first < end and start < first + size:
                    start, end = min(first, start), max(first + size, end)
                    number, shift = at, min(shift, other)
            found[number : number + 1] = [(start, end - start, shift)]
            arguments[place] = Argument(self._names[place], address, tensor, width, number)
        return found, arguments

    def _fault(
        self, raw: runtime.RawFault, grid: Grid, allocations: list[tuple[int, int, int]],
        arguments: dict[int, Argument],
    ) -> Fault:  # fmt: skip
        """Describe a fault."""
        access, kind = self._accesses[raw.access], _KINDS[raw.kind]
        places = access.parameters or frozenset()
        ordered = sorted(arguments.items(), key=lambda each: each[0] not in places)
        owners = {each.allocation: each for _, each in reversed(ordered)}
        is_outside = raw.kind <= _KINDS.index("other allocation")
        argument = None if is_outside and not places else owners.get(raw.allocation)
        fault = Fault(kind, access.line, _place_in(grid, raw.program), count=raw.count)
        fault.argument = (
            argument.name if argument else " or ".join(self._names[each] for each in sorted(places))
        )
        if argument:
            fault.index = (raw.address - argument.address) // argument.width
        if raw.other_access != _NONE:
            fault.other_line = self._accesses[raw.other_access].line
        if raw.other_program != _NONE:
            fault.other_program = _place_in(grid, raw.other_program)
        element = f"{fault.argument}[{fault.index}]" if argument else "memory of no argument"
        fault.text = _TEXTS[kind].format(
            access=access.name, element=element, message=access.text,
            distance=_distance(raw.address, argument, allocations[argument.allocation] if argument else None, fault),
            owner=owners[raw.inside].name if raw.inside in owners else "another tensor",
            other=self._accesses[raw.other_access].name if raw.other_access != _NONE else "",
        )  # fmt: skip
        return fault


def _allowed(access: Access, arguments: dict[int, Argument]) -> int:
    if access.parameters is None:
        return (1 << 64) - 1
    mask = 0
    for place in access.parameters:
        mask |= 1 << min(arguments[place].allocation, 63) if place in arguments else _ELSEWHERE
    return mask


def _distance(
    address: int, argument: Argument | None, allocation: tuple[int, int, int] | None, fault: Fault
) -> str:
    """Where an address lies, beside an argument's allocation."""
    if address < 4096:
        return f"null pointer {fault.argument}".rstrip()
    if argument is None or allocation is None:
        return f"address {address:#x} is in no tensor that is alive"
    start, size, _ = allocation
    before, behind = -((address - start) // argument.width), (address - start - size) // argument.width + 1
    shape = "x".join(map(str, argument.tensor.shape)) or "1 element"
    dtype = str(argument.tensor.dtype).removeprefix("torch.")
    how_far = f"{before} elements before the start" if address < start else f"{behind} elements past the end"
    return f"{argument.name}[{fault.index}], {how_far} of {argument.name} ({shape}, {dtype})"


def _width(element: str) -> int:
    """Bytes of an element in memory."""
    return 8 if element.startswith("!") else 1 if element.startswith("f8") else _BYTES.get(element, 4)


def _place_in(grid: Grid, number: int) -> Grid:
    """The id of a program by its number."""
    x, y, _ = grid
    return number % x, number // x % y, number // (x * y)
