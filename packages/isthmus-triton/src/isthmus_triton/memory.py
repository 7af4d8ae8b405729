"""Statements that read or write memory, or move elements by index."""

from __future__ import annotations

from collections.abc import Callable

from isthmus_triton.expressions import TO_MEMORY, c_type
from isthmus_triton.nests import Index, linear
from isthmus_triton.printer import Printer
from isthmus_triton.refusals import refuse
from isthmus_triton.ttir import Operation, Value


def store(printer: Printer, operation: Operation) -> None:
    """``tt.store``: pointer, value, mask."""
    if "boundaryCheck" in operation.text:
        refuse("a store through a block pointer")
    pointer, value, *mask = operation.operands
    to_memory = TO_MEMORY.get(value.type.element, "")
    if not pointer.is_tensor:
        printer.finish_nest()
        statement = _assignment(printer, operation, pointer.code, value.code, to_memory)
        printer.write(f"{_guard(mask[0].code if mask else '')}{statement}")
        return
    nest = printer.open(pointer.shape, operation.operands, store=pointer)
    place = printer.element(pointer, nest.index, nest).code
    code = printer.element(_before_rounding(value), nest.index, nest).code
    guard = _guard(printer.element(mask[0], nest.index, nest).code if mask else "")
    nest.add(f"{guard}{_assignment(printer, operation, place, code, to_memory)}")
    nest.stores.append(pointer)


def _assignment(printer: Printer, operation: Operation, place: str, code: str, to_memory: str) -> str:
    if printer.checks:
        return printer.checks.store(operation, place, code, to_memory)
    return f"*{place} = {to_memory}({code});"


def _guard(mask: str) -> str:
    return f"if ({mask}) " if mask else ""


def _before_rounding(value: Value) -> Value:
    """The float32 of which a stored value is the rounding: the store rounds it."""
    operation = value.operation
    if operation is None or value.is_stored or value.type.element not in TO_MEMORY:
        return value
    is_rounding = operation.name == "arith.truncf" and operation.operands[0].type.element == "f32"
    return operation.operands[0] if is_rounding else value


_UPDATES = "fadd add max min umax umin and or xor exch".split()


def atomic_update(printer: Printer, operation: Operation) -> None:
    """``tt.atomic_rmw``: pointer, value, mask."""
    kind = operation.kind
    if kind not in _UPDATES:
        refuse(f"atomic {kind}")
    function = f"atomic_{kind}_{operation.operands[1].type.element}"
    _atomic(printer, operation, lambda pointer, value, *_: f"{function}({pointer}, {value})", 2)


def atomic_exchange(printer: Printer, operation: Operation) -> None:
    """``tt.atomic_cas``: pointer, expected, value."""
    function = f"atomic_cas_{operation.operands[2].type.element}"
    _atomic(printer, operation, lambda *operands: f"{function}({', '.join(operands)})", 3)


def _atomic(printer: Printer, operation: Operation, call: Callable[..., str], count: int) -> None:
    """A call for each element, one after another. Operands beyond ``count`` are the mask."""
    printer.finish_nest()
    pointer, result = operation.operands[0], operation.result
    if result.type.element not in printer.module.target.atomics:
        refuse(f"atomic operations on {result.type.element}")

    def checked(codes: list[str]) -> list[str]:
        return [printer.checks.atomic(operation, codes), *codes[1:]] if printer.checks else codes

    if not pointer.is_tensor:
        codes = [each.code for each in operation.operands]
        result.code = printer.name("s")
        printer.write(f"{c_type(result.type)} {result.code} = 0;")
        guard = _guard(codes[count] if len(codes) > count else "")
        printer.write(f"{guard}{result.code} = {call(*checked(codes)[:count])};")
        return
    if result.users:
        printer.result_array(result)
    nest = printer.open(pointer.shape, operation.operands, store=pointer)
    nest.is_parallel = False
    codes = [printer.element(each, nest.index, nest).code for each in operation.operands]
    guard = _guard(codes[count] if len(codes) > count else "")
    into = f"{result.code}[{linear(pointer.shape, nest.index).code}] = " if result.users else ""
    nest.add(f"{guard}{into}{call(*checked(codes)[:count])};")
    nest.stores.append(pointer)
    printer.finish_nest()


def histogram(printer: Printer, operation: Operation) -> None:
    """``tt.histogram``: numbers of the bins, mask. Numbers beyond the bins count nowhere."""
    printer.finish_nest()
    source, *mask = operation.operands
    array, count = printer.result_array(operation.result), operation.result.type.elements
    guard = f"{mask[0].code}[q] && " if mask else ""
    printer.write(f"memset({array}, 0, sizeof {array});")
    printer.write(
        f"for (int q = 0; q < {source.type.elements}; q++) "
        f"if ({guard}(uint64_t){source.code}[q] < {count}) {array}[{source.code}[q]]++;"
    )


def gather(printer: Printer, operation: Operation) -> None:
    """``tt.gather``: source and index along an axis."""
    source, index = operation.operands
    printer.finish_nest()
    array, axis = printer.result_array(operation.result), int(operation.attribute("axis"))
    nest = printer.open(operation.result.shape, [index])
    place = list(nest.index)
    place[axis] = Index(printer.element(index, nest.index, nest).code, len(nest.shape))
    to = linear(operation.result.shape, nest.index).code
    nest.add(f"{array}[{to}] = {source.code}[{linear(source.shape, place).code}];")
    nest.unfinished[operation.result.number] = True


def concatenate(printer: Printer, operation: Operation) -> None:
    """``tt.cat``: one tensor behind another."""
    printer.finish_nest()
    array, at = printer.result_array(operation.result), 0
    for each in operation.operands:
        printer.write(f"memcpy({array} + {at}, {each.code}, {each.type.elements} * sizeof *{array});")
        at += each.type.elements


def barrier(printer: Printer, operation: Operation) -> None:
    """All programs of a block are one thread: the order of statements is enough."""
    printer.finish_nest()
