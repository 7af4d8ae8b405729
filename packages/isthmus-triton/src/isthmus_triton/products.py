"""Products of matrices: ``tt.dot``."""

from __future__ import annotations

from isthmus_triton.expressions import VALUES, c_type
from isthmus_triton.printer import Printer
from isthmus_triton.ttir import Operation, Value


def dot(printer: Printer, operation: Operation) -> None:
    """``tt.dot``: a [.., m, k], b [.., k, n] and the accumulator [.., m, n]."""
    a, b, accumulator = operation.operands[:3]
    result = operation.result
    array = printer.result_array(result)
    if not (accumulator.is_stored and accumulator.code == array):
        printer.fill(array, accumulator)
    printer.finish_nest()
    (m, k), n = a.shape[-2:], b.shape[-1]
    batches = a.type.elements // (m * k)

    def part(value: Value, count: int) -> str:
        return value.code if batches == 1 else f"{value.code} + o * {count}"

    arguments = f"{part(a, m * k)}, {part(b, k * n)}, {part(result, m * n)}"
    if VALUES[a.type.element] == "float" and result.type.element in ("f32", "f16"):
        function = _float_product(printer, m, n, k, b.in_panels)
    else:
        function = _any_product(printer, m, n, k, [a, b, result])
    if batches > 1:
        printer.write(f"for (int o = 0; o < {batches}; o++)")
    printer.write(f"{function}({arguments});")


def _float_product(printer: Printer, m: int, n: int, k: int, in_panels: bool) -> str:
    """One function per size, not inlined: within a long function the compiler spills the accumulators."""
    kind = "panels" if in_panels else "rows"
    name = f"product_{kind}_{m}_{n}_{k}"
    printer.helpers[name] = (
        f"static NOT_INLINED void {name}(const float *a, const float *b, float *c) "
        f"{{ product_{kind}({m}, {n}, {k}, a, b, c); }}"
    )
    return name


def _any_product(printer: Printer, m: int, n: int, k: int, values: list[Value]) -> str:
    of_a, of_b, of_c = (c_type(each.type) for each in values)
    name = f"product_{values[0].type.element}_{values[2].type.element}_{m}_{n}_{k}"
    printer.helpers[name] = (
        f"static NOT_INLINED void {name}(const {of_a} *a, const {of_b} *b, {of_c} *c) {{ "
        f"for (int i = 0; i < {m}; i++) for (int l = 0; l < {k}; l++) for (int j = 0; j < {n}; j++) "
        f"c[i * {n} + j] += ({of_c})a[i * {k} + l] * b[l * {n} + j]; }}"
    )
    return name
