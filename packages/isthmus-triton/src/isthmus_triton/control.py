"""Loops, branches, and the values that they carry."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from isthmus_triton.analysis import SHAPES, is_expression, reached
from isthmus_triton.expressions import c_type, declaration
from isthmus_triton.printer import Printer
from isthmus_triton.ttir import Block, Moving, Operation, Value

Print = Callable[[Printer, Block], None]  # prints the operations of a block


@dataclass
class _Carried:
    """A value that a loop carries.

    Attributes:
        parameter: of the loop's block.
        code: the C variable or array; of a moving tensor, the variable with its offset.
        step: of a moving tensor: a number, or the scalar to add.
        is_in_place: the next value may be computed into the array of the last.
    """

    parameter: Value
    code: str
    step: Value | str = ""
    is_in_place: bool = False


def for_loop(printer: Printer, operation: Operation, print_block: Print) -> None:
    """``scf.for``: lower bound, upper bound, step, first values."""
    low, high, step, *first = operation.operands
    for each in (low, high, step):
        printer.require(each)
    printer.finish_nest()
    body = operation.regions[0]
    variable, *parameters = body.parameters
    carried = _carry(printer, first, parameters, body.yielded, operation.results)
    variable.code = printer.name("n")
    printer.write(
        f"for ({c_type(variable.type)} {variable.code} = {low.code}; {variable.code} < {high.code}; "
        f"{variable.code} += {step.code}) {{"
    )
    print_block(printer, body)
    _assign(printer, carried, body.yielded)
    printer.write("}")


def while_loop(printer: Printer, operation: Operation, print_block: Print) -> None:
    """``scf.while``: the first region computes the condition, the second the next values."""
    printer.finish_nest()
    before, after = operation.regions
    condition, *results = before.yielded
    carried = [
        _keep(printer, first, parameter)
        for first, parameter in zip(operation.operands, before.parameters, strict=True)
    ]
    printer.finish_nest()
    for result, parameter in zip(operation.results, after.parameters, strict=True):
        declare(printer, result)
        parameter.code, parameter.is_stored = result.code, result.is_tensor
    printer.write("for (;;) {")
    print_block(printer, before)
    for result, value in zip(operation.results, results, strict=True):
        _copy(printer, result, value)
    printer.require(condition)
    printer.finish_nest()
    printer.write(f"if (!{condition.code}) break;")
    print_block(printer, after)
    _assign(printer, carried, after.yielded)
    printer.write("}")


def branch(printer: Printer, operation: Operation, print_block: Print) -> None:
    """``scf.if``: condition; one region or two."""
    printer.require(operation.operands[0])
    printer.finish_nest()
    for result in operation.results:
        declare(printer, result)
    for index, region in enumerate(operation.regions):
        printer.write("} else {" if index else f"if ({operation.operands[0].code}) {{")
        print_block(printer, region)
        for result, value in zip(operation.results, region.yielded, strict=False):
            _copy(printer, result, value)
        printer.finish_nest()
    printer.write("}")


def label(printer: Printer, operation: Operation) -> None:
    """The start of a block that branches name; its parameters are variables, declared at the top."""
    printer.finish_nest()
    printer.write(f"{operation.text}: ;")


def jump(printer: Printer, operation: Operation) -> None:
    """``cf.br`` and ``cf.cond_br``."""
    printer.finish_nest()
    conditions = [f"if ({operation.operands[0].code}) "] if len(operation.targets) > 1 else []
    for condition, (to, values) in zip([*conditions, ""], operation.jumps(), strict=True):
        printer.write(f"{condition}{{")
        for value, result in zip(values, to.results, strict=True):  # jumps go forwards: no value is a result
            _copy(printer, result, value)
        printer.finish_nest()
        printer.write(f"goto {to.text};")
        printer.write("}")


# ---- Values that are carried


def declare(printer: Printer, result: Value) -> None:
    """A variable or an array for a value that several places assign."""
    if result.is_tensor:
        result.code = printer.array(result.type)
    else:
        result.code = printer.name("c")
        printer.write(f"{c_type(result.type)} {result.code};")


def _copy(printer: Printer, result: Value, value: Value) -> None:
    if result.is_tensor:
        printer.fill(result.code, value)
    else:
        printer.require(value)
        printer.write(f"{result.code} = {value.code};")


def _keep(printer: Printer, first: Value, parameter: Value) -> _Carried:
    """An array or a variable with the first value."""
    if parameter.is_tensor:
        parameter.code, parameter.is_stored = printer.array(parameter.type), True
        printer.fill(parameter.code, first)
    else:
        printer.require(first)
        parameter.code = printer.name("c")
        printer.write(f"{c_type(parameter.type)} {parameter.code} = {first.code};")
    return _Carried(parameter, parameter.code)


def _carry(
    printer: Printer, first: list[Value], parameters: list[Value], after: list[Value], results: list[Value]
) -> list[_Carried]:
    carried = []
    for start, parameter, next_one, result in zip(first, parameters, after, results, strict=True):
        step = _step(next_one, parameter)
        if parameter.is_tensor and step is not None and not (start.is_costly and not start.is_stored):
            offset = printer.name("offset")
            printer.write(f"int64_t {offset} = 0;")
            parameter.moving = result.moving = Moving(start, offset)
            result.is_stored = False
            carried.append(_Carried(parameter, offset, step))
        else:
            carried.append(_keep(printer, start, parameter))
            carried[-1].is_in_place = parameter.is_tensor and _may_be_in_place(parameter, next_one)
    printer.finish_nest()
    for each, next_one, result in zip(carried, after, results, strict=True):
        if each.step == "":
            result.code = each.code
            if (
                each.is_in_place
                and next_one.operation is not None
                and next_one.is_stored
                and not next_one.code
            ):
                next_one.home = each.code
    return carried


def _step(value: Value, parameter: Value) -> Value | str | None:
    """The scalar, or a number's text, by which every element of a parameter moves; None if they do not."""
    operation = value.operation
    if operation is None or operation.name not in ("tt.addptr", "arith.addi"):
        return None
    if operation.operands[0] is not parameter:
        return None
    added = operation.operands[1].operation
    while added is not None and added.name in ("tt.broadcast", "tt.expand_dims"):
        added = added.operands[0].operation
    if added is None:
        return None
    if added.name == "tt.splat":
        return added.operands[0]
    number = re.search(r"dense<(-?\d+)>", added.text) if added.name == "arith.constant" else None
    return number[1] if number else None


def _may_be_in_place(parameter: Value, value: Value) -> bool:
    operation = value.operation
    return (
        operation is not None
        and operation.name not in ("scf.for", "scf.if", "scf.while")
        and (len(value.users) == 1 or value.is_stored)
        and _only_feeds(parameter, value)
    )


def _only_feeds(parameter: Value, value: Value) -> bool:
    """Whether a parameter is read for a value alone, at the value's own index."""

    def results(each: Value) -> list[Value]:
        users = [] if each is value else each.users
        return [result for user in users if user is not value.operation for result in user.results]

    return all(
        each is value or (bool(each.users) and all(_is_read_for(value, each, user) for user in each.users))
        for each in reached(parameter, results)
    )


def _is_read_for(value: Value, operand: Value, user: Operation) -> bool:
    """Whether an operation reads an operand for a value alone, at its own index."""
    assert value.operation is not None
    is_elementwise = is_expression(user) and user.name not in SHAPES
    if user is value.operation:
        return is_elementwise or (user.name == "tt.dot" and operand not in user.operands[:2])
    return (
        is_elementwise
        and user.block is value.operation.block
        and not any(each.is_stored for each in user.results)
    )


def _assign(printer: Printer, carried: list[_Carried], values: list[Value]) -> None:
    """Give the next values to what the loop carries, all at once: offsets first, whose steps may be carried too."""
    moves, late = [], []
    parameters = [each.parameter for each in carried]
    for each, value in zip(carried, values, strict=True):
        code, type = each.code, each.parameter.type
        if each.step != "":
            if isinstance(each.step, Value):
                printer.require(each.step)
            moves.append(f"{code} += {each.step.code if isinstance(each.step, Value) else each.step};")
        elif not each.parameter.is_tensor:
            if value.code != code:
                printer.require(value)
                new = printer.name("y")
                printer.write(declaration(type, new, value.code))
                late.append(f"{code} = {new};")
        elif value.code == code and value.moving is None:
            continue
        elif value.is_stored and value not in parameters:  # those are overwritten in turn
            late.append(f"memcpy({code}, {value.code}, {type.elements} * sizeof *{code});")
        elif each.is_in_place:
            printer.fill(code, value)
        else:
            new = printer.array(type)
            printer.fill(new, value)
            late.append(f"memcpy({code}, {new}, {type.elements} * sizeof *{code});")
    printer.finish_nest()
    printer.lines += moves + late
