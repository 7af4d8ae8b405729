"""A whole kernel in C: the program, and the function that runs it for every place of a grid."""

from __future__ import annotations

import re
from collections.abc import Callable

from isthmus_triton import control, memory, products, reductions
from isthmus_triton.analysis import Sharing
from isthmus_triton.expressions import IN_MEMORY, TO_MEMORY, VALUES, c_type
from isthmus_triton.printer import Printer
from isthmus_triton.refusals import refuse
from isthmus_triton.ttir import Block, Operation, Value, read

_STATEMENTS: dict[str, Callable[[Printer, Operation], None]] = {
    "tt.store": memory.store,
    "tt.atomic_rmw": memory.atomic_update,
    "tt.atomic_cas": memory.atomic_exchange,
    "tt.histogram": memory.histogram,
    "tt.gather": memory.gather,
    "tt.cat": memory.concatenate,
    "tt.reduce": reductions.reduce,
    "tt.scan": reductions.scan,
    "tt.dot": products.dot,
    "gpu.barrier": memory.barrier,
    "ttg.barrier": memory.barrier,
    "label": control.label,
    "cf.br": control.jump,
    "cf.cond_br": control.jump,
}
_BLOCKS = {"scf.for": control.for_loop, "scf.while": control.while_loop, "scf.if": control.branch}
_NOTHING = ("llvm.intr.assume", "scf.yield", "scf.condition")
_CHUNKS = 64  # pieces of a grid that threads take


def to_c(text: str, sharing: Sharing = Sharing.NOTHING) -> str:
    """Print a kernel's TTIR as C.

    Its function ``run`` takes an array of 8 bytes each: the sizes of the grid, and the arguments. ``run_and_free``
    frees the array too; ``copy`` makes one for it.

    Args:
        text: of the module.
        sharing: of the tensors at the launch.

    Raises:
        Unsupported: an operation or a type that C cannot have here.
    """
    functions = read(text)
    if len(functions) != 1:
        refuse("a function that is not inlined")
    body = functions[0].body
    printer = Printer(body, sharing)
    for place, each in enumerate(body.parameters):
        each.code = f"p{place}"
    for operation in body.operations:
        for result in operation.results if operation.name == "label" else ():
            result.code = printer.name("c")
            printer.write(f"{c_type(result.type)} {result.code};")
    _print_block(printer, body)
    printer.finish_nest()
    program = _program(body, printer.lines)
    return "\n".join(
        ['#include "runtime.h"', *printer.helpers.values(), *program, *_launch(body.parameters), ""]
    )


def _print_block(printer: Printer, block: Block) -> None:
    for operation in block.operations:
        if operation.name in _NOTHING:
            continue
        if operation.name in _BLOCKS:
            _BLOCKS[operation.name](printer, operation, _print_block)
        elif operation.name in _STATEMENTS:
            _STATEMENTS[operation.name](printer, operation)
        elif operation.name == "tt.return":
            printer.finish_nest()
            printer.write("return;")
        elif operation.name == "tt.print":
            _print(printer, operation)
        elif operation.name == "tt.assert":
            _assert(printer, operation)
        else:
            printer.compute(operation)


def _print(printer: Printer, operation: Operation) -> None:
    """``tl.device_print``: a line for a scalar, one per element of a tensor, as on a GPU."""
    prefix = operation.string().replace("%", "%%")
    for value in operation.operands:
        is_float = VALUES.get(value.type.element) in ("float", "double")
        form, cast = ("%f", "double") if is_float else ("%lld", "long long")
        if not value.is_tensor:
            printer.require(value)
            printer.write(
                f'printf("pid (%d, %d, %d) idx ()%s{form}\\n", program_x, program_y, program_z, "{prefix}", '
                f"({cast}){value.code});"
            )
            continue
        nest = printer.open(value.shape, [value])
        nest.is_parallel = False
        code = printer.element(value, nest.index, nest).code
        places = ", ".join(["%d"] * len(value.shape))
        index = ", ".join(each.code for each in nest.index)
        nest.add(
            f'printf("pid (%d, %d, %d) idx ({places})%s{form}\\n", program_x, program_y, program_z, {index}, '
            f'"{prefix}", ({cast}){code});'
        )
    printer.finish_nest()


def _assert(printer: Printer, operation: Operation) -> None:
    """``tl.device_assert``, which the front end leaves out without ``debug``."""
    condition = operation.operands[0]
    place = operation.line.replace("\\", "/")
    fail = f'failed_assertion("{operation.string()}", "{place}", program_x, program_y, program_z)'
    if condition.is_tensor:
        nest = printer.open(condition.shape, [condition])
        code = printer.element(condition, nest.index, nest).code
        nest.is_parallel = False
        nest.add(f"if (!{code}) {fail};")
    else:
        printer.require(condition)
        printer.write(f"if (!{condition.code}) {fail};")


def _program(body: Block, lines: list[str]) -> list[str]:
    names = [f"const int {kind}_{axis}" for kind in ("program", "grid") for axis in "xyz"]
    parameters = [f"{c_type(each.type)} {each.code}" for each in body.parameters]
    return [f"static void program({', '.join(names + parameters)}) {{", *_indented(lines), "}"]


def _launch(parameters: list[Value]) -> list[str]:
    """Threads take chunks of the grid; they are OpenMP's, which PyTorch's kernels use too."""
    lines = [
        "static void launch(const int64_t x, const int64_t y, const int64_t z, const uint64_t *arguments) {"
    ]
    for place, each in enumerate(parameters):
        # A float16 argument comes as float.
        type = c_type(each.type)
        if not each.type.is_pointer and each.type.element not in TO_MEMORY:
            type = IN_MEMORY[each.type.element]
        lines += [f"{type} {each.code}; memcpy(&{each.code}, arguments + {place}, sizeof {each.code});"]
    arguments = "".join(f", {each.code}" for each in parameters)
    return [
        *lines,
        f"const int64_t count = x * y * z, chunk = count / {_CHUNKS} > 0 ? count / {_CHUNKS} : 1;",
        "#pragma omp parallel for schedule(dynamic) if (count > 1)",
        "for (int64_t first = 0; first < count; first += chunk) {",
        "int at_x = first % x, at_y = first / x % y, at_z = first / (x * y);",
        "for (int64_t left = count - first < chunk ? count - first : chunk; left > 0; left--) {",
        f"program(at_x, at_y, at_z, (int)x, (int)y, (int)z{arguments});",
        "if (++at_x == x) at_x = 0, at_y++;",
        "if (at_y == y) at_y = 0, at_z++;",
        "}",
        "}",
        "}",
        "void run(const uint64_t *call) { launch(call[0], call[1], call[2], call + 3); }",
        "void run_and_free(uint64_t *call) { run(call); free(call); }",
        "void *copy(const void *call, size_t size) { return memcpy(malloc(size), call, size); }",
    ]


def _indented(lines: list[str]) -> list[str]:
    found, depth = [], 1
    for line in lines:
        depth -= line.startswith("}")
        found.append(line if line.startswith("#") else "    " * depth + line)
        depth += len(re.findall(r"\{$", line))
    return found
