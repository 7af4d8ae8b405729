"""Functions of a module beside the kernel, and the function that ``tl.map_elementwise`` calls for each element."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from isthmus_triton import control
from isthmus_triton.analysis import Sharing, walk
from isthmus_triton.expressions import c_type
from isthmus_triton.nests import linear
from isthmus_triton.printer import Printer
from isthmus_triton.target import PLACES
from isthmus_triton.ttir import Block, Operation, Type, Value

Print = Callable[[Printer, Block], None]  # prints the operations of a block


def function(
    printer: Printer, name: str, results: list[Type], print_block: Print, captured: list[Value]
) -> str:
    """The C function of a block, whose results go where its last parameters point.

    Args:
        printer: of the block.
        name: of the function.
        results: their types.
        print_block: prints the operations of a block.
        captured: scalars from around the block, which the function takes by their names.
    """
    body = printer.body
    for each in body.parameters:
        each.code = printer.name("p")
    for operation in body.operations:
        for result in operation.results if operation.name == "label" else ():
            control.declare(printer, result)
    printer.outs = [printer.name("out") for _ in results]
    print_block(printer, body)
    printer.finish_nest()
    parameters = [
        *(f"const int {each}" for each in PLACES),
        *(f"{c_type(each.type)} {each.code}" for each in (*captured, *body.parameters)),
        *(f"{c_type(type)} *{out}" for type, out in zip(results, printer.outs, strict=True)),
    ]
    return "\n".join([f"static void {name}({', '.join(parameters)}) {{", *indented(printer.lines), "}"])


def leave(printer: Printer, operation: Operation) -> None:
    """``tt.return``, and the end of a mapped function."""
    for value, out in zip(operation.operands, printer.outs, strict=True):
        if value.is_tensor:
            printer.fill(out, value)
        else:
            printer.require(value)
            printer.write(f"*{out} = {value.code};")
    printer.finish_nest()
    printer.write("return;")


def call(printer: Printer, operation: Operation) -> None:
    """``tt.call``: scalars; results are scalars or tensors."""
    arguments = [each.code for each in operation.operands]
    for each in operation.operands:
        printer.require(each)
    printer.finish_nest()
    for result in operation.results:
        if result.is_tensor:
            arguments.append(printer.result_array(result))
        else:
            result.code = printer.name("s")
            printer.write(f"{c_type(result.type)} {result.code};")
            arguments.append(f"&{result.code}")
    name = c_name(re.findall(r'@("[^"]*"|[\w$.-]+)', operation.text)[0])
    printer.write(f"{name}({', '.join([*PLACES, *arguments])});")


def c_name(name: str) -> str:
    """The C function of a function of the module."""
    return "function_" + re.sub(r"\W", lambda found: f"_{ord(found[0]):x}_", name.strip('"'))


def map_elements(printer: Printer, operation: Operation, print_block: Print) -> None:
    """``tt.map_elementwise``: a function of as many neighbours of each operand as ``pack`` states."""
    region, pack, shape = operation.regions[0], int(operation.attribute("pack")), operation.result.shape
    known = {id(result) for each in walk(region) for result in each.results} | set(map(id, region.parameters))
    outer = {id(each): each for inner in walk(region) for each in inner.operands if id(each) not in known}
    captured = [each for each in outer.values() if each.code.isidentifier()]
    results = [each.type._replace(shape=None) for each in operation.results for _ in range(pack)]
    name = printer.name("mapped")
    inner = Printer(region, Sharing.NOTHING, printer.module)
    printer.module.helpers[name] = function(inner, name, results, print_block, captured)
    printer.finish_nest()
    arrays = [printer.result_array(each) for each in operation.results]
    nest = printer.open(shape, operation.operands)
    nest.is_parallel = False
    outs = [each.code for each in captured]
    if pack == 1:
        at = linear(shape, nest.index).code
        codes = [printer.element(each, nest.index, nest).code for each in operation.operands]
        nest.add(f"{name}({', '.join([*PLACES, *outs, *codes, *(f'&{each}[{at}]' for each in arrays)])});")
        for each in operation.results:
            nest.unfinished[each.number] = True
        return
    copies = [printer.array(each.type) for each in operation.operands]
    for copy, value in zip(copies, operation.operands, strict=True):
        printer.fill(copy, value)
    printer.finish_nest()
    places = [f"{copy}[q + {i}]" for copy in copies for i in range(pack)]
    places += [f"&{array}[q + {i}]" for array in arrays for i in range(pack)]
    printer.write(f"for (int q = 0; q < {math.prod(shape)}; q += {pack})")
    printer.write(f"{name}({', '.join([*PLACES, *outs, *places])});")


def indented(lines: list[str]) -> list[str]:
    """Lines with four blanks for each brace around them."""
    found, depth = [], 1
    for line in lines:
        depth -= line.startswith("}")
        found.append(line if line.startswith("#") else "    " * depth + line)
        depth += len(re.findall(r"\{$", line))
    return found
