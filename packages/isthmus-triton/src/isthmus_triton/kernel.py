"""A whole kernel in C: the program, and the function that runs it for every place of a grid."""

from __future__ import annotations

from collections.abc import Callable

from isthmus_triton import control, functions, memory, products, reductions, scaled
from isthmus_triton.analysis import Sharing
from isthmus_triton.debug.printing import Checks
from isthmus_triton.expressions import IN_MEMORY, TO_MEMORY, UNSIGNED, VALUES, c_type
from isthmus_triton.printer import Printer
from isthmus_triton.ttir import Block, Operation, Type, Value, read

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
    "tt.dot_scaled": scaled.dot,
    "tt.call": functions.call,
    "tt.return": functions.leave,
    "tt.map_elementwise.return": functions.leave,
    "gpu.barrier": memory.barrier,
    "ttg.barrier": memory.barrier,
    "label": control.label,
    "cf.br": control.jump,
    "cf.cond_br": control.jump,
}
_BLOCKS = {
    "scf.for": control.for_loop,
    "scf.while": control.while_loop,
    "scf.if": control.branch,
    "tt.map_elementwise": functions.map_elements,
}
_NOTHING = ("llvm.intr.assume", "scf.yield", "scf.condition")
_CHUNKS = 64  # pieces of a grid that threads take


def to_c(text: str, sharing: Sharing = Sharing.NOTHING, is_debugged: bool = False) -> str:
    """Print a kernel's TTIR as C.

    Its function ``run`` takes an array of 8 bytes each: the sizes of the grid, and the arguments.

    Args:
        text: of the module.
        sharing: of the tensors at the launch.
        is_debugged: accesses are checked, and ``run_program`` runs the program that c/debug.c chooses.

    Raises:
        Unsupported: an operation or a type that C cannot have here.
    """
    parts = sorted(read(text), key=lambda each: each.is_public)
    *_, main = parts
    checks = Checks(parts) if is_debugged else None
    helpers: dict[str, str] = {}
    texts = []
    for each in parts:
        # Others' pointers may be any of the kernel's.
        printer = Printer(
            each.body, sharing if each is main else Sharing.PARTS, helpers=helpers, checks=checks
        )
        name = "program" if each is main else functions.c_name(each.name)
        texts.append(functions.function(printer, name, each.results, _print_block, []))
    declarations = [each.partition(" {\n")[0] + ";" for each in texts[:-1]]
    headers = ['#include "runtime.h"', *(['#include "debug.h"'] if is_debugged else [])]
    launch = _launch(main.body.parameters, is_debugged)
    return "\n".join([*headers, *declarations, *helpers.values(), *texts, *launch, ""])


def _print_block(printer: Printer, block: Block) -> None:
    for operation in block.operations:
        if operation.name in _NOTHING:
            continue
        if operation.name in _BLOCKS:
            _BLOCKS[operation.name](printer, operation, _print_block)
        elif operation.name in _STATEMENTS:
            _STATEMENTS[operation.name](printer, operation)
        elif operation.name == "tt.print":
            _print(printer, operation)
        elif operation.name == "tt.assert":
            _assert(printer, operation)
        else:
            printer.compute(operation)


def _print(printer: Printer, operation: Operation) -> None:
    """``tl.device_print``: a line for a scalar, one per element of a tensor, as on a GPU."""
    is_hexadecimal, are_signed = "hex = true" in operation.text, operation.numbers("isSigned")
    prefix = operation.string().replace("%", "%%")
    if not operation.operands:
        printer.finish_nest()
        printer.write(f'printf("pid (%d, %d, %d){prefix}\\n", program_x, program_y, program_z);')
    for place, value in enumerate(operation.operands):
        form, cast = _print_format(value.type, bool(are_signed[place]), is_hexadecimal)
        number = f"(operand {place}) " if len(operation.operands) > 1 else ""
        widths = [f"%{len(str(size - 1))}d" for size in value.shape]
        start = f'printf("pid (%d, %d, %d) idx ({", ".join(widths)}){prefix}{number}{form}\\n", '
        if not value.is_tensor:
            printer.finish_nest()
            printer.write(f"{start}program_x, program_y, program_z, {cast}{value.code});")
            continue
        nest = printer.open(value.shape, [value])
        nest.is_parallel = False
        code = printer.element(value, nest.index, nest).code
        index = ", ".join(each.code for each in nest.index)
        nest.add(f"{start}program_x, program_y, program_z, {index}, {cast}{code});")
    printer.finish_nest()


def _print_format(type: Type, is_signed: bool, is_hexadecimal: bool) -> tuple[str, str]:
    """The format of ``printf`` for a value, and the cast that it needs."""
    if type.is_pointer:
        return "%p", "(void *)"
    if VALUES.get(type.element) in ("float", "double"):
        return "%f", "(double)"
    bits = 1 if type.element == "i1" else int(VALUES[type.element][3:-2])
    cast = f"(unsigned long long)({UNSIGNED[type.element]})"
    if is_hexadecimal:
        return f"0x%0{(bits + 3) // 4}llx", cast
    return ("%lld", "(long long)") if is_signed else ("%llu", cast)


def _assert(printer: Printer, operation: Operation) -> None:
    """``tl.device_assert``, which the front end leaves out without ``debug``."""
    condition = operation.operands[0]
    place = operation.line.replace("\\", "/")
    fail = f'failed_assertion("{operation.string()}", "{place}", program_x, program_y, program_z)'
    if printer.checks:
        fail = printer.checks.failure(operation)
    if condition.is_tensor:
        nest = printer.open(condition.shape, [condition])
        code = printer.element(condition, nest.index, nest).code
        nest.is_parallel = False
        nest.add(f"if (!{code}) {fail};")
    else:
        printer.require(condition)
        printer.write(f"if (!{condition.code}) {fail};")


def _launch(parameters: list[Value], is_debugged: bool) -> list[str]:
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
    start = "int at_x = first % x, at_y = first / x % y, at_z = first / (x * y);"
    arguments = "".join(f", {each.code}" for each in parameters)
    call = f"program(at_x, at_y, at_z, (int)x, (int)y, (int)z{arguments});"
    chunks = [
        f"const int64_t count = x * y * z, chunk = count / {_CHUNKS} > 0 ? count / {_CHUNKS} : 1;",
        "#pragma omp parallel for schedule(dynamic) if (count > 1)",
        "for (int64_t first = 0; first < count; first += chunk) {",
        start,
        "for (int64_t left = count - first < chunk ? count - first : chunk; left > 0; left--) {",
        call,
        "if (++at_x == x) at_x = 0, at_y++;",
        "if (at_y == y) at_y = 0, at_z++;",
        "}",
        "}",
    ]
    return [
        *lines,
        *(["const int64_t first = debugger.program;", start, call] if is_debugged else chunks),
        "}",
        "void run(const uint64_t *call) { launch(call[0], call[1], call[2], call + 3); }",
    ]
