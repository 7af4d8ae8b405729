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

    if a.in_bits != b.in_bits:
        _widen(printer, a if a.in_bits else b)
    arguments = f"{part(a, m * k)}, {part(b, k * n)}, {part(result, m * n)}"
    if VALUES[a.type.element] == "float" and result.type.element in ("f32", "f16"):
        kind = "bfloat16" if b.in_bits else "panels" if b.in_panels else "rows"
        function = _float_product(printer, m, n, k, kind)
    else:
        function = _any_product(printer, m, n, k, [a, b, result])
    if batches > 1:
        printer.write(f"for (int o = 0; o < {batches}; o++)")
    printer.write(f"{function}({arguments});")


def _widen(printer: Printer, value: Value) -> None:
    """Turn an array of bits, whose other factor is none, into one of float."""
    array = printer.array(value.type)
    printer.write(
        f"for (int q = 0; q < {value.type.elements}; q++) {array}[q] = bfloat16_to_float({value.code}[q]);"
    )
    value.code, value.in_bits = array, False


def _float_product(printer: Printer, m: int, n: int, k: int, kind: str) -> str:
    """One function per size, not inlined: within a long function the compiler spills the accumulators."""
    name, factor = f"product_{kind}_{m}_{n}_{k}", "int16_t" if kind == "bfloat16" else "float"
    if kind == "bfloat16":
        printer.module.helpers[kind] = printer.module.target.bfloat16_header
    printer.module.helpers[name] = (
        f"static NOT_INLINED void {name}(const {factor} *a, const {factor} *b, float *c) "
        f"{{ product_{kind}({m}, {n}, {k}, a, b, c); }}"
    )
    return name


def _any_product(printer: Printer, m: int, n: int, k: int, values: list[Value]) -> str:
    of_a, of_b, of_c = (c_type(each.type) for each in values)
    name = f"product_{values[0].type.element}_{values[2].type.element}_{m}_{n}_{k}"
    printer.module.helpers[name] = (
        f"static NOT_INLINED void {name}(const {of_a} *a, const {of_b} *b, {of_c} *c) {{ "
        f"for (int i = 0; i < {m}; i++) for (int l = 0; l < {k}; l++) for (int j = 0; j < {n}; j++) "
        f"c[i * {n} + j] += ({of_c})a[i * {k} + l] * b[l * {n} + j]; }}"
    )
    return name
