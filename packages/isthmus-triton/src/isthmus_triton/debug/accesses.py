"""The operations of a kernel that are checked: their numbers, lines, and the arguments that they may point into."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from isthmus_triton.analysis import ADDRESSES, walk
from isthmus_triton.ttir import Function, Operation, Type, Value

# c/debug.h states the same numbers.
READ, WRITE, ATOMIC, ACQUIRE, RELEASE, COMPARED, FLOAT = 1, 2, 4, 8, 16, 64, 128
_ORDERS = {"acquire": ACQUIRE, "release": RELEASE, "acq_rel": ACQUIRE | RELEASE}
_CHOICES = frozenset("tt.join tt.split tt.cat tt.gather".split())


class Access(NamedTuple):
    """A checked operation.

    Attributes:
        name: what it does.
        line: of the source: ``file:line``, or "".
        kind: bits of c/debug.h; 0 for arithmetic of offsets and for assertions.
        parameters: places of the pointers that it may have come from; None if it may be any.
        text: of an assertion.
    """

    name: str
    line: str
    kind: int
    parameters: frozenset[int] | None
    text: str = ""


class Accesses:
    """The checked operations of a module, in order.

    Args:
        parts: functions of the module.
    """

    def __init__(self, parts: list[Function]) -> None:
        self._body = next(each for each in parts if each.is_public).body
        operations = [operation for each in parts for operation in walk(each.body)]
        self._origins = _origins(operations, parts)
        conditions = (each.regions[0] for each in operations if each.name == "scf.while")
        self._waiting = {id(each) for region in conditions for each in region.operations}
        checked = [each for each in operations if each.name in _NAMES or _is_offset(each)]
        self.numbers = {id(each): number for number, each in enumerate(checked)}
        self.list = [self._access(each) for each in checked]

    def _access(self, operation: Operation) -> Access:
        name, kind = _NAMES.get(operation.name, "arithmetic"), _kind(operation)
        if operation.name == "tt.load" and id(operation) in self._waiting:
            kind |= ATOMIC  # it may wait for another program
        text = operation.string() if operation.name == "tt.assert" else ""
        return Access(
            name, operation.line, kind, self._parameters(operation.operands[0]) if kind else None, text
        )

    def _parameters(self, pointer: Value) -> frozenset[int] | None:
        found, seen, left = set(), set(), [pointer]
        while left:
            value = left.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            origins = self._origins.get(id(value))
            operation = value.operation
            if value in self._body.parameters:
                found.add(self._body.parameters.index(value))
            elif origins is not None:
                left += origins
            elif operation is not None and operation.name in ADDRESSES:
                left.append(operation.operands[0])
            elif operation is not None and operation.name in _CHOICES:
                left += [each for each in operation.operands if each.type.is_pointer]
            elif operation is not None and operation.name == "arith.select":
                left += operation.operands[1:]
            else:
                return None
        return frozenset(found)


_NAMES = {
    "tt.load": "load",
    "tt.store": "store",
    "tt.atomic_rmw": "atomic update",
    "tt.atomic_cas": "atomic exchange",
    "tt.assert": "assertion",
}


def is_float(type: Type) -> bool:
    """Whether the elements are floating-point numbers."""
    return not type.is_pointer and type.element.startswith(("f", "bf"))


def _is_offset(operation: Operation) -> bool:
    """Whether it is 32-bit arithmetic, which may overflow."""
    names = ("arith.addi", "arith.subi", "arith.muli")
    return operation.name in names and operation.result.type.element == "i32"


@functools.cache
def _order(text: str) -> int:
    found = re.search(r"\b(acq_rel|acquire|release|relaxed)\b", text)
    return _ORDERS.get(found[1], 0) if found else ACQUIRE | RELEASE


def _kind(operation: Operation) -> int:
    match operation.name:
        case "tt.load":
            volatile = ATOMIC | ACQUIRE if "isVolatile = true" in operation.text else 0
            return READ | volatile | (FLOAT if is_float(operation.result.type) else 0)
        case "tt.store":
            return WRITE
        case "tt.atomic_rmw":
            is_exchange = operation.kind == "exch"
            reads = READ if operation.result.users or not is_exchange else 0
            return reads | WRITE | ATOMIC | _order(operation.head)
        case "tt.atomic_cas":
            return READ | WRITE | ATOMIC | _order(operation.head)
    return 0


def _origins(operations: list[Operation], parts: list[Function]) -> dict[int, list[Value]]:
    """The values that a value of control flow may have been: of loops, branches, labels and calls."""
    found: dict[int, list[Value]] = {}

    def add(values: list[Value], origins: list[Value]) -> None:
        for value, origin in zip(values, origins, strict=False):
            found.setdefault(id(value), []).append(origin)

    for operation in operations:
        if operation.name == "tt.call":
            callees = (each.body for each in parts if f"@{each.name}(" in operation.text.replace('"', ""))
            add(next(callees).parameters, operation.operands)
        elif operation.name == "scf.for":
            carried = operation.regions[0].parameters[1:]
            for values in (operation.operands[3:], operation.regions[0].yielded):
                add(carried, values)
                add(operation.results, values)
        elif operation.name == "scf.while":
            before, after = operation.regions
            add(before.parameters, operation.operands)
            add(before.parameters, after.yielded)
            add(after.parameters, before.yielded[1:])
            add(operation.results, before.yielded[1:])
        elif operation.name == "scf.if":
            for region in operation.regions:
                add(operation.results, region.yielded)
        for label, values in operation.jumps():
            add(label.results, values)
    return found
