"""How large the 32-bit integers of addresses may become in a launch.

C's compiler may assume that signed integers do not wrap around, and vectorises loads and stores by it. A launch whose
integers may wrap takes a library that is compiled without that assumption.
"""

from __future__ import annotations

import functools
import re

from isthmus_triton.analysis import SHAPES, mark_addresses, walk
from isthmus_triton.ttir import Block, Operation, Value, read

LIMIT = 1 << 31
_GRID = {"x": "x", "y": "y", "z": "z"}
_SAME = SHAPES | {"arith.extsi", "arith.extui", "arith.divsi", "arith.divui", "arith.trunci"}


def largest(text: str) -> str:
    """A C expression of the sizes of the grid ``x, y, z`` and the launch's ``call``: the largest absolute value.

    Args:
        text: of the module in TTIR.
    """
    parts = read(text)
    bounds = set()
    for each in parts:
        mark_addresses(each.body)
        places = (
            {id(value): place for place, value in enumerate(each.body.parameters)} if each.is_public else {}
        )
        ranges = _Ranges(places)
        for operation in walk(each.body):
            value = operation.results[0] if operation.results else None
            if value and value.is_address and value.type.element == "i32" and operation.name in _SUMS:
                bounds.add(ranges.of(value))
    numbers = [int(each) for each in bounds if each.isdecimal()]
    if any(each >= LIMIT for each in numbers):
        return str(LIMIT)
    rest = sorted(each for each in bounds if not each.isdecimal())
    return functools.reduce(lambda one, other: f"fmax({one}, {other})", rest) if rest else "0"


_SUMS = ("arith.addi", "arith.subi", "arith.muli")


class _Ranges:
    """Bounds of absolute values, as C expressions of doubles.

    Args:
        places: of the kernel's arguments, by their ids.
    """

    def __init__(self, places: dict[int, int]) -> None:
        self._places = places
        self._known: dict[int, str] = {}

    def of(self, value: Value) -> str:
        """The bound of a value: what its type allows where nothing better is known."""
        if value.number not in self._known:
            widest = _widest(value)
            self._known[value.number] = widest  # of what a loop carries while it is found
            found = self._find(value)
            if len(found) > 2000 or (found.isdecimal() and int(found) > int(widest)):
                found = widest
            self._known[value.number] = found
        return self._known[value.number]

    def _find(self, value: Value) -> str:
        operation = value.operation
        if operation is None:
            return self._of_parameter(value)
        name, operands = operation.name, operation.operands
        match name:
            case "arith.constant":
                numbers = re.findall(r"-?\d+", operation.head)
                return str(max((abs(int(each)) for each in numbers), default=1))
            case "tt.make_range":
                return str(int(operation.attribute("end")) - 1)
            case "tt.get_program_id":
                return f"({_GRID[operation.kind]} - 1)"
            case "tt.get_num_programs":
                return _GRID[operation.kind]
            case "arith.addi" | "arith.subi":
                return _folded(self.of(operands[0]), "+", self.of(operands[1]))
            case "arith.muli":
                return _folded(self.of(operands[0]), "*", self.of(operands[1]))
            case "arith.remsi" | "arith.remui":
                return _chosen("min", self.of(operands[0]), self.of(operands[1]))
            case "arith.minsi" | "arith.maxsi" | "arith.select":
                return _chosen("max", self.of(operands[-2]), self.of(operands[-1]))
            case _ if name in _SAME:
                return self.of(operands[0])
        return _widest(value)

    def _of_parameter(self, value: Value) -> str:
        if id(value) in self._places:
            return f"fabs((double)(int64_t)call[{3 + self._places[id(value)]}])"
        found = _loop_of(value)
        if found is None:
            return _widest(value)
        loop, place = found
        low, high, _, *first = loop.operands
        if place == 0:
            return _chosen("max", self.of(low), self.of(high))
        after = loop.regions[0].yielded[place - 1].operation
        if after is None or after.name != "arith.addi" or after.operands[0] is not value:
            return _widest(value)
        steps = _folded(self.of(low), "+", self.of(high))
        return _folded(self.of(first[place - 1]), "+", _folded(self.of(after.operands[1]), "*", steps))


def _widest(value: Value) -> str:
    bits = int(value.type.element[1:]) if re.fullmatch(r"i\d+", value.type.element) else 64
    return str(1 << (bits - 1))


def _loop_of(value: Value) -> tuple[Operation, int] | None:
    """The loop ``scf.for`` of whose block a value is a parameter, and its place among them."""
    for user in value.users:
        block: Block | None = user.block
        while block is not None:
            if value in block.parameters:
                outer = block.outer.operations if block.outer else []
                loop = next((each for each in outer if block in each.regions), None)
                return (loop, block.parameters.index(value)) if loop and loop.name == "scf.for" else None
            block = block.outer
    return None


def _folded(one: str, sign: str, other: str) -> str:
    if one.isdecimal() and other.isdecimal():
        return str(int(one) + int(other) if sign == "+" else int(one) * int(other))
    return f"({one} {sign} {other})"


def _chosen(function: str, one: str, other: str) -> str:
    if one.isdecimal() and other.isdecimal():
        return str((min if function == "min" else max)(int(one), int(other)))
    return one if one == other else f"f{function}({one}, {other})"
