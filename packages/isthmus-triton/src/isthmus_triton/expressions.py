"""C expressions of single elements.

Values of float16 and bfloat16 are float in C, rounded after each operation; of i1, _Bool.
"""

from __future__ import annotations

import re
import struct

from isthmus_triton import libdevice
from isthmus_triton.refusals import refuse
from isthmus_triton.ttir import Operation, Type, Value

VALUES = {
    "f32": "float", "f64": "double", "f16": "float", "bf16": "float", "i1": "_Bool", "i8": "int8_t", "i16": "int16_t",
    "i32": "int32_t", "i64": "int64_t", "index": "int64_t",
}  # fmt: skip
_BYTES = {
    "f8E5M2": "e5m2", "f8E4M3FN": "e4m3", "f8E4M3FNUZ": "e4m3_fnuz", "f8E5M2FNUZ": "e5m2_fnuz",
}  # fmt: skip
VALUES |= dict.fromkeys(_BYTES, "float")
IN_MEMORY = (
    VALUES | {"f16": "uint16_t", "bf16": "uint16_t", "i1": "uint8_t"} | dict.fromkeys(_BYTES, "uint8_t")
)
UNSIGNED = {
    "i1": "uint8_t", "i8": "uint8_t", "i16": "uint16_t", "i32": "uint32_t", "i64": "uint64_t", "index": "uint64_t",
}  # fmt: skip
_SHORT = {"f16": "half", "bf16": "bfloat16", **_BYTES}
FROM_MEMORY = {element: f"{name}_to_float" for element, name in _SHORT.items()}
TO_MEMORY = {element: f"float_to_{name}" for element, name in _SHORT.items()}
_ROUND = {element: f"round_to_{name}" for element, name in _SHORT.items()}
# Bits of the mantissa, bias of the exponent, and the largest number.
_FORMATS = {
    "f16": "10, 15, 65504.0f", "bf16": "7, 127, 0x1.fep127f", "f8E5M2": "2, 15, 57344.0f",
    "f8E4M3FN": "3, 7, 448.0f", "f8E4M3FNUZ": "3, 8, 240.0f", "f8E5M2FNUZ": "2, 16, 57344.0f",
}  # fmt: skip

_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^", "max": ">",
    "min": "<",
}  # fmt: skip
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Comparisons of floats: o... are false and u... are true if an operand is NaN.
_COMPARED_FLOATS = {
    "oeq": "{0} == {1}", "ogt": "{0} > {1}", "oge": "{0} >= {1}", "olt": "{0} < {1}", "ole": "{0} <= {1}",
    "one": "({0} < {1}) | ({0} > {1})", "ord": "({0} == {0}) & ({1} == {1})",
    "ueq": "!(({0} < {1}) | ({0} > {1}))", "ugt": "!({0} <= {1})", "uge": "!({0} < {1})", "ult": "!({0} >= {1})",
    "ule": "!({0} > {1})", "une": "{0} != {1}", "uno": "({0} != {0}) | ({1} != {1})",
}  # fmt: skip


def c_type(type: Type) -> str:
    """The C type of a value."""
    if type.is_pointer:
        return f"GLOBAL {IN_MEMORY.get(type.element, 'void')} *"
    return VALUES.get(type.element) or refuse(f"values of {type.element}")


def declaration(type: Type, name: str, code: str) -> str:
    """A constant with a value."""
    return f"{c_type(type)} const {name} = {code};"


def literal(text: str, element: str) -> str:
    """A number of TTIR."""
    text = text.strip()
    if text in ("true", "false"):
        return str(int(text == "true"))
    if element[0] == "f" or element == "bf16":
        if text.lower().startswith("0x"):
            form = {"f64": "as_double(UINT64_C({}))", "f32": "as_float({}u)"}
            return form.get(element, f"{FROM_MEMORY.get(element)}({{}})").format(text)
        if element == "f64":
            return repr(float(text))
        return repr(struct.unpack("f", struct.pack("f", float(text)))[0]) + "f"
    number = int(text)
    if element in ("i64", "index"):
        return f"INT64_C({number})" if number > -(2**63) else "INT64_MIN"
    return str(number) if number > -(2**31) else "INT32_MIN"


def convert(code: str, element: str) -> str:
    """A number as one of a floating-point type."""
    return f"{_ROUND[element]}({code})" if element in _ROUND else f"({VALUES[element]})({code})"


def _rounded(code: str, element: str) -> str:
    return f"{_ROUND[element]}({code})" if element in _ROUND else code


def bitcast(code: str, source: Type, to: Type) -> str:
    """The same bits as another type."""
    if source.is_pointer or to.is_pointer:
        return f"({c_type(to)})({code})"
    if source.element == to.element or source.element[0] == to.element[0] == "i":
        return f"({VALUES[to.element]})({code})"
    as_bits = {"f32": "float_bits", "f64": "double_bits", **TO_MEMORY}
    from_bits = {"f32": "as_float", "f64": "as_double", **FROM_MEMORY}
    bits = f"{as_bits[source.element]}({code})" if source.element in as_bits else code
    return (
        f"{from_bits[to.element]}({bits})" if to.element in from_bits else f"({VALUES[to.element]})({bits})"
    )


def _call(name: str, operands: list[str], element: str) -> str:
    return _rounded(libdevice.call(name, operands, element == "f64"), element)


def expression(operation: Operation, operands: list[str], value: Value) -> str:
    """The C expression of an operation's result.

    Raises:
        Unsupported: the operation is unknown.
    """
    dialect, _, name = operation.name.partition(".")
    element = value.type.element
    if dialect == "math":
        if name == "absi":
            return f"({operands[0]} < 0 ? -{operands[0]} : {operands[0]})"
        return _call(name, operands, element)
    if name == "elementwise_inline_asm":
        return _rounded(libdevice.instruction(operation.string(), operands), element)
    if operation.name in _FORMS:
        source, to = operation.operands[0].type.element, UNSIGNED.get(element, "")
        return _FORMS[operation.name].format(
            *operands, type=c_type(value.type), unsigned=to, source=UNSIGNED.get(source, "")
        )
    if operation.name not in _FUNCTIONS:
        refuse(f"the operation {operation.name}")
    return _FUNCTIONS[operation.name](operation, operands, value)


def _float_arithmetic(operation: Operation, operands: list[str], value: Value) -> str:
    sign = _SIGNS[operation.name.partition(".")[2][:3]]
    return _rounded(f"{operands[0]} {sign} {operands[1]}", value.type.element)


def _float_extremum(operation: Operation, operands: list[str], value: Value) -> str:
    """``...numf`` ignores a NaN, ``...imumf`` returns it. In these forms gcc vectorises masked loads."""
    a, b = operands
    is_maximum = operation.name[6:9] == "max"
    if operation.name.endswith("numf"):
        return f"((!({a} {'<=' if is_maximum else '>='} {b}) & ({a} == {a})) ? {a} : {b})"
    return f"((({a} {'>' if is_maximum else '<'} {b}) | ({a} != {a})) ? {a} : {b})"


def _integer_arithmetic(operation: Operation, operands: list[str], value: Value) -> str:
    """Wraps around, but where it only feeds addresses."""
    (a, b), element = operands, value.type.element
    sign = _SIGNS[operation.name[6:9]]
    if element == "i1":
        return f"(({a} {sign} {b}) & 1)"
    if value.is_address:
        return f"({a} {sign} {b})"
    return f"({VALUES[element]})(({UNSIGNED[element]}){a} {sign} ({UNSIGNED[element]}){b})"


def _division(operation: Operation, operands: list[str], value: Value) -> str:
    """0 where the divisor is. The least number divided by -1 is itself, which C's division traps."""
    (a, b), element = operands, value.type.element
    sign, type = _SIGNS[operation.name[6:9]], VALUES[element]
    if operation.name.endswith("ui"):
        unsigned = UNSIGNED[element]
        return f"({b} ? ({type})(({unsigned}){a} {sign} ({unsigned}){b}) : 0)"
    by_minus_1 = f"({type})-({UNSIGNED[element]}){a}" if sign == "/" else "0"
    return f"({b} == -1 ? {by_minus_1} : {b} ? {a} {sign} {b} : 0)"


def _shift(operation: Operation, operands: list[str], value: Value) -> str:
    (a, b), type, unsigned = operands, VALUES[value.type.element], UNSIGNED[value.type.element]
    if operation.name == "arith.shrsi":
        return f"({a} >> {b})"
    return f"({type})(({unsigned}){a} {'<<' if operation.name == 'arith.shli' else '>>'} {b})"


def _integer_extremum(operation: Operation, operands: list[str], value: Value) -> str:
    a, b = operands
    sign = _SIGNS[operation.name[6:9]]
    cast = f"({UNSIGNED[value.type.element]})" if operation.name.endswith("ui") else ""
    return f"({cast}{a} {sign} {cast}{b} ? {a} : {b})"


def _compare_integers(operation: Operation, operands: list[str], value: Value) -> str:
    predicate = operation.kind
    of = operation.operands[0].type
    cast = f"({UNSIGNED[of.element]})" if predicate[0] == "u" and not of.is_pointer else ""
    return f"({cast}{operands[0]} {_COMPARED[predicate[-2:]]} {cast}{operands[1]})"


def _compare_floats(operation: Operation, operands: list[str], value: Value) -> str:
    return "(" + _COMPARED_FLOATS[operation.kind].format(*operands) + ")"


def _sign_extend(operation: Operation, operands: list[str], value: Value) -> str:
    minus = "-" if operation.operands[0].type.element == "i1" else ""
    return f"{minus}({VALUES[value.type.element]}){operands[0]}"


def _truncate(operation: Operation, operands: list[str], value: Value) -> str:
    element = value.type.element
    return f"({operands[0]} & 1)" if element == "i1" else f"({VALUES[element]}){operands[0]}"


def _from_integer(operation: Operation, operands: list[str], value: Value) -> str:
    source = operation.operands[0].type.element
    code = operands[0]
    if operation.name == "arith.uitofp":
        code = f"({UNSIGNED[source]}){code}"
    elif source == "i1":
        code = f"-(int){code}"
    return convert(code, value.type.element)


def _convert(operation: Operation, operands: list[str], value: Value) -> str:
    code, element = operands[0], value.type.element
    if "rounding = rtz" in operation.text:
        code = f"toward_zero({code}, {_FORMATS[element]})"
    return convert(code, element)


def _bitcast(operation: Operation, operands: list[str], value: Value) -> str:
    return bitcast(operands[0], operation.operands[0].type, value.type)


def _float_remainder(operation: Operation, operands: list[str], value: Value) -> str:
    return _call("fmod", operands, value.type.element)


def _high_product(operation: Operation, operands: list[str], value: Value) -> str:
    a, b = operands
    if value.type.element == "i32":
        return f"(int32_t)(((uint64_t)(uint32_t){a} * (uint32_t){b}) >> 32)"
    return f"(int64_t)(((unsigned __int128)(uint64_t){a} * (uint64_t){b}) >> 64)"


def _clamp(operation: Operation, operands: list[str], value: Value) -> str:
    """A NaN becomes the lower bound, unless it is to be propagated: then it fails both comparisons."""
    x, low, high = operands
    if "propagateNan = all" in operation.text:
        return f"({x} < {low} ? {low} : {x} > {high} ? {high} : {x})"
    return f"({x} > {low} ? {x} > {high} ? {high} : {x} : {low})"


def _external(operation: Operation, operands: list[str], value: Value) -> str:
    symbol = re.search(r'symbol = "(\w+)"', operation.text)
    is_double = "f64" in (operation.operands[0].type.element, value.type.element)
    return libdevice.call_external(symbol[1] if symbol else "", operands, is_double)


def _root(operation: Operation, operands: list[str], value: Value) -> str:
    return _call("sqrt", operands, value.type.element)


# {type} is that of the result, {unsigned} the unsigned one of as many bits, {source} that of the operand.
_FORMS = {
    **{f"arith.{each}i": f"({{0}} {_SIGNS[each]} {{1}})" for each in ("and", "or", "xor")},
    **dict.fromkeys(("arith.fptosi", "arith.index_cast", "tt.int_to_ptr"), "({type}){0}"),
    **dict.fromkeys(("arith.extui", "arith.index_castui"), "({type})({source}){0}"),
    "arith.fptoui": "({type})({unsigned}){0}",
    "arith.negf": "(-{0})",
    "arith.select": "({0} ? {1} : {2})",
    "tt.addptr": "({0} + {1})",
    "tt.precise_divf": "{0} / {1}",
    "tt.ptr_to_int": "(int64_t){0}",
}
_FUNCTIONS = {
    **dict.fromkeys(("arith.addf", "arith.subf", "arith.mulf", "arith.divf"), _float_arithmetic),
    **dict.fromkeys(("arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.minimumf"), _float_extremum),
    **dict.fromkeys(("arith.addi", "arith.subi", "arith.muli"), _integer_arithmetic),
    **dict.fromkeys(("arith.divsi", "arith.divui", "arith.remsi", "arith.remui"), _division),
    **dict.fromkeys(("arith.shli", "arith.shrsi", "arith.shrui"), _shift),
    **dict.fromkeys(("arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui"), _integer_extremum),
    **dict.fromkeys(("arith.extf", "arith.truncf", "tt.fp_to_fp"), _convert),
    **dict.fromkeys(("arith.sitofp", "arith.uitofp"), _from_integer),
    **dict.fromkeys(("arith.bitcast", "tt.bitcast"), _bitcast),
    "arith.cmpf": _compare_floats,
    "arith.cmpi": _compare_integers,
    "arith.extsi": _sign_extend,
    "arith.remf": _float_remainder,
    "arith.trunci": _truncate,
    "tt.clampf": _clamp,
    "tt.extern_elementwise": _external,
    "tt.mulhiui": _high_product,
    "tt.precise_sqrt": _root,
}
