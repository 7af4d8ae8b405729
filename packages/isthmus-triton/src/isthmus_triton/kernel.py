"""A whole kernel in C: the program, and the functions through which a target launches it."""

from __future__ import annotations

from collections.abc import Callable

from isthmus_triton import control, functions, memory, products, reductions, scaled
from isthmus_triton.analysis import Sharing, walk
from isthmus_triton.debug.printing import Checks
from isthmus_triton.expressions import UNSIGNED, VALUES
from isthmus_triton.host import HOST
from isthmus_triton.printer import Module, Printer
from isthmus_triton.target import Target
from isthmus_triton.ttir import Block, Operation, Type, read

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


def to_c(text: str, sharing: Sharing = Sharing.NOTHING, target: Target = HOST, bound: str = "") -> str:
    """Print a kernel's TTIR as C.

    Args:
        text: of the module.
        sharing: of the tensors at the launch.
        target: the dialect of C.
        bound: see :meth:`isthmus_triton.target.Target.entry`.

    Raises:
        Unsupported: an operation or a type that C cannot have here.
    """
    parts = sorted(read(text), key=lambda each: each.is_public)
    *_, main = parts
    module = Module(target, Checks(parts) if target.is_checked else None)
    texts = []
    for each in parts:
        # Others' pointers may be any of the kernel's.
        printer = Printer(each.body, sharing if each is main else Sharing.PARTS, module)
        name = "program" if each is main else functions.c_name(each.name)
        texts.append(functions.function(printer, name, each.results, _print_block, []))
    declarations = [each.partition(" {\n")[0] + ";" for each in texts[:-1]]
    asserts = any(operation.name == "tt.assert" for each in parts for operation in walk(each.body))
    entry = target.entry(main.name, main.body.parameters, asserts, bound)
    return "\n".join([*target.headers(), *declarations, *module.helpers.values(), *texts, *entry, ""])


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
    cast = f"(unsigned long)({UNSIGNED[type.element]})"
    if is_hexadecimal:
        return f"0x%0{(bits + 3) // 4}lx", cast
    return ("%ld", "(long)") if is_signed else ("%lu", cast)


def _assert(printer: Printer, operation: Operation) -> None:
    """``tl.device_assert``, which the front end leaves out without ``debug``."""
    condition = operation.operands[0]
    fail = (printer.checks or printer.module.target).failure(operation)
    if condition.is_tensor:
        nest = printer.open(condition.shape, [condition])
        code = printer.element(condition, nest.index, nest).code
        nest.is_parallel = False
        nest.add(f"if (!{code}) {fail};")
    else:
        printer.require(condition)
        printer.write(f"if (!{condition.code}) {fail};")
