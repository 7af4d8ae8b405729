"""Reductions and scans along an axis.

Every step of a reduction is a loop that the compiler vectorises whatever the combiner is. A long row is first reduced
to a running result for each place of a strip. What is left is halved until it is one element. Rows of a block are
halved to 16 elements one by one, then across the rows.
"""

from __future__ import annotations

import math

from isthmus_triton.expressions import c_type
from isthmus_triton.nests import STRIP, Nest, linear
from isthmus_triton.printer import Printer
from isthmus_triton.ttir import Block, Operation, Value

_LANES = 16
# Neutral elements of combiners: of numbers, and of integers of {} bits.
_NEUTRAL = {
    "arith.addf": "-0.0f", "arith.mulf": "1.0f", "arith.maxnumf": "NAN", "arith.minnumf": "NAN",
    "arith.maximumf": "-INFINITY", "arith.minimumf": "INFINITY", "arith.addi": "0", "arith.muli": "1",
    "arith.maxsi": "INT{}_MIN", "arith.minsi": "INT{}_MAX",
}  # fmt: skip


def reduce(printer: Printer, operation: Operation) -> None:
    """``tt.reduce``."""
    operands, shape = operation.operands, operation.operands[0].shape
    axis = int(operation.attribute("axis"))
    nest = printer.open(shape, operands)
    length, inner, outer = shape[axis], math.prod(shape[axis + 1 :]), math.prod(shape[:axis])
    by_row = inner == 1 and nest.order == sorted(nest.order)
    if outer == inner == 1 and _reduce_in_strips(printer, operation, nest):
        return
    depth = axis if by_row else 0
    sources = [_array_of(each, shape, axis, nest, by_row) for each in operands] if length > 1 else [""]
    arrays = []
    for each in operands:
        type = each.type._replace(shape=(length,) if by_row else shape)
        arrays.append(printer.array(type, nest.before[depth]))
        if not all(sources):
            at = nest.index[axis].code if by_row else linear(shape, nest.index).code
            nest.add(f"{arrays[-1]}[{at}] = {printer.element(each, nest.index, nest).code};")
    after, region = nest.after[depth], operation.regions[0]
    lanes = _LANES if by_row and axis > 0 and outer >= _LANES and length >= 2 * _LANES else 1
    halving = _Halving(printer, region, 1 if by_row else outer, inner)
    after += halving.lines(arrays, length, lanes, sources if all(sources) else arrays)
    row = linear(shape[:axis], nest.index[:axis]).code
    if lanes > 1:
        columns = [
            printer.array(each.type._replace(shape=(lanes * outer,)), nest.before[0]) for each in operands
        ]
        for array, column in zip(arrays, columns, strict=True):
            after.append(f"for (int q = 0; q < {lanes}; q++) {column}[q * {outer} + {row}] = {array}[q];")
        nest.after[0] += _Halving(printer, region, 1, outer).lines(columns, lanes, 1, columns)
        for column, result in zip(columns, operation.results, strict=True):
            array = printer.result_array(result)
            nest.after[0].append(f"memcpy({array}, {column}, {outer} * sizeof *{array});")
    else:
        for array, result in zip(arrays, operation.results, strict=True):
            after.append(_take_first(printer, result, array, row, by_row, outer, inner, length))
    for result in operation.results:
        nest.unfinished[result.number] = False


def _reduce_in_strips(printer: Printer, operation: Operation, nest: Nest) -> bool:
    """Reduce with a running result for each place of a strip, if the combiner has a neutral element."""
    combiner = operation.regions[0].operations[0]
    value = operation.operands[0]
    length, element = value.type.elements, value.type.element
    neutral = _NEUTRAL.get(combiner.name)
    if len(operation.regions[0].operations) != 2 or neutral is None or length < 2 * STRIP:
        return False
    array = printer.array(value.type._replace(shape=(STRIP,)), nest.before[0])
    nest.before[0].append(f"for (int q = 0; q < {STRIP}; q++) {array}[q] = {neutral.format(element[1:])};")
    code = printer.element(value, nest.index, nest).code
    statements, results = printer.combine(operation.regions[0], [f"{array}[q]", code])
    for each in (*statements, f"{array}[q] = {results[0]};"):
        nest.add(each)
    nest.is_in_strips = True
    after = nest.after[0]
    after += _Halving(printer, operation.regions[0], 1, 1).lines([array], STRIP, 1, [array])
    after.append(_take_first(printer, operation.result, array, "0", True, 1, 1, STRIP))
    nest.unfinished[operation.result.number] = False
    return True


def _array_of(value: Value, shape: tuple[int, ...], axis: int, nest: Nest, by_row: bool) -> str:
    """Where an operand is an array already: the first halving reads it there. "" for others."""
    if not value.is_stored or not value.code or value.in_panels or value.moving:
        return ""
    row = linear(shape[:axis], nest.index[:axis]).code if by_row else "0"
    return value.code if row == "0" else f"({value.code} + {math.prod(shape[axis:])} * ({row}))"


def _take_first(
    printer: Printer, result: Value, array: str, row: str, by_row: bool, outer: int, inner: int, length: int
) -> str:
    """The statement that copies what is left of a reduction into its result."""
    if not result.is_tensor:
        result.code = printer.name("s")
        printer.write(f"{c_type(result.type)} {result.code};")
        return f"{result.code} = {array}[0];"
    into = printer.result_array(result)
    if by_row:
        return f"{into}[{row}] = {array}[0];"
    return (
        f"for (int o = 0; o < {outer}; o++) for (int q = 0; q < {inner}; q++) "
        f"{into}[o * {inner} + q] = {array}[o * {length * inner} + q];"
    )


class _Halving:
    """Prints the halving of arrays [outer][length][inner] along the middle."""

    def __init__(self, printer: Printer, region: Block, outer: int, inner: int) -> None:
        self._printer, self._region, self._outer, self._inner = printer, region, outer, inner

    def lines(self, arrays: list[str], length: int, until: int, sources: list[str]) -> list[str]:
        """Halve until ``until`` are left. The first step reads the sources."""
        inner = self._inner
        offset = f"o * {length * inner} + " if self._outer > 1 else ""
        lines = [f"for (int o = 0; o < {self._outer}; o++)"] if self._outer > 1 else []
        lines.append("{")
        if inner == self._outer == 1 and length >= 4 * STRIP:
            lines += self._run(arrays, length, sources)
            sources, length = arrays, STRIP
        half = length // 2
        while half >= until:
            low = [f"{each}[{offset}q]" for each in sources]
            high = [f"{each}[{offset}q + {half * inner}]" for each in sources]
            lines.append(
                f"for (int q = 0; q < {half * inner}; q++) {self._combined(arrays, low, high, offset)}"
            )
            sources, half = arrays, half // 2
        return [*lines, "}"]

    def _run(self, arrays: list[str], length: int, sources: list[str]) -> list[str]:
        """Reduce to a result for each place of a strip: the first elements, with which the others are combined."""
        low = [f"{each}[q]" for each in arrays]
        high = [f"{each}[k + q]" for each in sources]
        first = " ".join(
            f"{array}[q] = {source}[q];"
            for array, source in zip(arrays, sources, strict=True)
            if array is not source
        )
        return [
            *([f"for (int q = 0; q < {STRIP}; q++) {{ {first} }}"] if first else []),
            f"for (int k = {STRIP}; k < {length}; k += {STRIP})",
            "INDEPENDENT",
            f"for (int q = 0; q < {STRIP}; q++) {self._combined(arrays, low, high, '')}",
        ]

    def _combined(self, arrays: list[str], low: list[str], high: list[str], offset: str) -> str:
        statements, results = self._printer.combine(self._region, low + high)
        stores = [f"{array}[{offset}q] = {code};" for array, code in zip(arrays, results, strict=True)]
        return f"{{ {' '.join(statements + stores)} }}"


def scan(printer: Printer, operation: Operation) -> None:
    """``tt.scan``: each element combined with those before it, or behind it."""
    shape, axis = operation.operands[0].shape, int(operation.attribute("axis"))
    is_reverse = operation.attribute("reverse") == "true"
    arrays = [printer.result_array(each) for each in operation.results]
    nest = printer.open(shape, operation.operands)
    for each, array, result in zip(operation.operands, arrays, operation.results, strict=True):
        code = printer.element(each, nest.index, nest).code
        nest.add(f"{array}[{linear(shape, nest.index).code}] = {code};")
        nest.unfinished[result.number] = False
    length, inner, outer = shape[axis], math.prod(shape[axis + 1 :]), math.prod(shape[:axis])
    here = f"o * {length * inner} + k * {inner} + q"
    before = f"o * {length * inner} + (k {'+' if is_reverse else '-'} 1) * {inner} + q"
    operands = [f"{each}[{before}]" for each in arrays] + [f"{each}[{here}]" for each in arrays]
    statements, results = printer.combine(operation.regions[0], operands)
    stores = [f"{array}[{here}] = {code};" for array, code in zip(arrays, results, strict=True)]
    steps = (
        f"for (int k = {length - 2}; k >= 0; k--)" if is_reverse else f"for (int k = 1; k < {length}; k++)"
    )
    nest.after[0].append(
        f"for (int o = 0; o < {outer}; o++) {steps} for (int q = 0; q < {inner}; q++) "
        f"{{ {' '.join(statements + stores)} }}"
    )
