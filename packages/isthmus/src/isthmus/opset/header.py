"""Print ``isthmus_ops.h``, the header for operator libraries in C and C++; the build writes it.

For each operator it has the schema, a typed prototype, a function that unpacks a call's arguments into that
prototype, and the name for a library's table. ``aten::add.Tensor`` is ``aten_add_Tensor``.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable

from isthmus.opset import UnknownOperator, operators, schema_of, semantics
from isthmus.opset.operator import Operator, Tolerance
from isthmus.opset.schema import Argument, Schema

WIDTH = 110

_OPENING = """\
/* Isthmus operators: generated from the opset by the build.
 *
 * For each operator its schema, the parameters and the prototype of a kernel, and what a library's table needs to
 * list it:
 *
 *   static isthmus_status my_relu(ISTHMUS_PARAMETERS_aten_relu) { ... } // context, self and out
 *   static const isthmus_operator operators[] = {
 *       ISTHMUS_OPERATOR(aten_relu, my_relu, ISTHMUS_DTYPE(FLOAT32), ISTHMUS_OPERATOR_IN_PLACE),
 *   };
 *
 * Tensors that are written are DLTensor*, the others const. An absent optional tensor, number or output is a null
 * pointer, an absent optional list has size -1. C11 or C++17. No exception may leave a kernel.
 *
 * PyTorch's operator of the same name defines the results. Above each operator stand its dtypes, the shapes and
 * dtypes of its results, and the largest distance from the reference with its reason. Unless more is said there:
 *   - Shapes: tensors are broadcast only where the shape is broadcast(). Any dimension may be 0; then a kernel
 *     without elements to write does nothing, and a sum of nothing is 0.
 *   - Rounding: to nearest, ties to even. Sums and products of 16-bit floats are computed in float32 and rounded
 *     once. Denormal numbers are kept. Integers wrap around; results of bool are 0 or 1.
 *   - NaN and infinity: as IEEE 754 says for each operation; NaN in what a result depends on gives NaN.
 *   - Aliasing: outputs share no memory with inputs, except as ISTHMUS_OPERATOR_IN_PLACE says; inputs may share
 *     memory with each other.
 */
#ifndef ISTHMUS_OPS_H_
#define ISTHMUS_OPS_H_

#include "operator_arguments.h"

#ifdef __cplusplus
extern "C" {
#endif
"""

_CLOSING = """
#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ISTHMUS_OPS_H_ */
"""

# Words that cannot name a parameter: keywords of C and C++, and names used by the unpackers.
_RESERVED = frozenset(
    "alignas alignof and asm auto bool break case catch char class const continue default delete do double else "
    "enum explicit export extern false float for friend goto if inline int long mutable namespace new not operator "
    "or private protected public register restrict return short signed sizeof static struct switch template this "
    "throw true try typedef typeid typename union unsigned using virtual void volatile while xor "
    "context function items count result a".split()
)

# Schema type -> parameter type and expression that reads the argument.
_NUMBERS = {
    "Scalar": ("isthmus_scalar", "scalar"),
    "int": ("int64_t", "int"),
    "float": ("double", "float"),
    "bool": ("bool", "bool"),
    "str": ("const char*", "str"),
}


def identifier(name: str) -> str:
    """Return an operator's name in C: ``aten_add_Tensor`` for ``aten::add.Tensor``."""
    return name.replace("::", "_").replace(".", "_")


def render(
    schemas: Iterable[Schema], notes: dict[str, list[str]] | None = None, absent: Container[str] = ()
) -> str:
    """Return the text of the header.

    Args:
        schemas: schemas of the operators, in the order of the header.
        notes: comment lines of an operator, by name: dtypes, shape rule, tolerance, semantics.
        absent: names of operators of which outputs may be absent; so may those that a mask of the schema disables.
    """
    notes = notes or {}
    texts = (_operator(each, notes.get(each.name, []), each.name in absent) for each in schemas)
    return "".join([_OPENING, *texts, _CLOSING])


def _operator(schema: Schema, notes: list[str], absent: bool) -> str:
    name = identifier(schema.name)
    parameters = _parameters(schema, absent)
    return "\n".join(
        [
            "",
            *_comment([schema.text, *notes]),
            f'#define ISTHMUS_NAME_{name} "{schema.name}"',
            *_continued(
                _wrapped(
                    f"#define ISTHMUS_PARAMETERS_{name} ",
                    ["isthmus_context* context", *(_declaration(p) for p in parameters)],
                    "",
                )
            ),
            f"typedef isthmus_status (*isthmus_{name}_fn)(ISTHMUS_PARAMETERS_{name});",
            *_unpacker(parameters, name),
            "",
        ]
    )


class _Parameter:
    """A parameter of a kernel."""

    def __init__(self, argument: Argument, name: str, written: bool, optional: bool) -> None:
        self.argument, self.written, self.optional = argument, written, optional
        self.name = f"{name}_" if name in _RESERVED else name

    @property
    def type(self) -> str:
        """C type of the parameter."""
        argument = self.argument
        if argument.is_list:
            return "isthmus_list"
        if argument.is_tensor:
            return "DLTensor*" if self.written else "const DLTensor*"
        value = _NUMBERS[argument.base][0]
        return f"const {value}*" if self.optional and not value.endswith("*") else value

    def reading(self) -> list[str]:
        """Return the statements that read the parameter from the arguments."""
        prefix = "optional_" if self.optional else ""
        left = f'{self.name} = isthmus_take_{prefix}{{}}(&a, "{self.argument.name}");'
        if self.argument.is_list or self.argument.is_tensor:
            return [f"{self.type} {left.format('list' if self.argument.is_list else 'tensor')}"]
        value, kind = _NUMBERS[self.argument.base]
        if not self.optional:
            return [f"{value} {left.format(kind)}"]
        taken = f'isthmus_take_{kind}(&a, "{self.argument.name}")'
        if value.endswith("*"):
            return [f"{value} {self.name} = isthmus_present(&a) ? {taken} : ({value})0;"]
        return [
            f"{value} {self.name}_value;",
            f"const {value}* {self.name} = (const {value}*)0;",
            f"if (isthmus_present(&a)) {self.name}_value = {taken}, {self.name} = &{self.name}_value;",
        ]


def _parameters(schema: Schema, absent: bool) -> list[_Parameter]:
    optional = absent or any(
        a.base == "bool" and a.is_list and a.name.endswith("mask") for a in schema.inputs
    )
    taken = {a.name for a in schema.inputs}
    outputs = [(a, f"{a.name}_out" if a.name in taken else a.name) for a in schema.outputs]
    return [
        *(_Parameter(a, a.name, a.written, a.optional) for a in schema.inputs),
        *(_Parameter(a, name, True, optional and not a.is_list) for a, name in outputs),
    ]


def _declaration(parameter: _Parameter) -> str:
    return f"{parameter.type} {parameter.name}"


def _unpacker(parameters: list[_Parameter], name: str) -> list[str]:
    call = _wrapped(
        f"    status = ISTHMUS_KERNEL_OF(isthmus_{name}_fn, function)(",
        ["a.context", *(p.name for p in parameters)],
        ");",
    )
    braces = len(call) > 1
    return [
        *_wrapped(
            f"static inline int isthmus_call_{name}(",
            ["void* function", "const TVMFFIAny* items", "int32_t count", "TVMFFIAny* result"],
            ") {",
        ),
        "  isthmus_arguments a = isthmus_arguments_of(items, count);",
        "  isthmus_status status = ISTHMUS_INVALID_ARGUMENT;",
        *(f"  {line}" for p in parameters for line in p.reading()),
        f"  if (isthmus_arguments_ready(&a, function)){' {' if braces else ''}",
        *call,
        *(["  }"] if braces else []),
        "  return isthmus_arguments_end(&a, result, status);",
        "}",
    ]


def _wrapped(head: str, items: list[str], tail: str) -> list[str]:
    """Return the head and the items, separated by commas and wrapped into lines."""
    lines, line = [], head
    for i, item in enumerate(items):
        piece = item + (tail if i == len(items) - 1 else ",")
        if line not in {head, "        "} and len(line) + 1 + len(piece) > WIDTH:
            lines.append(line)
            line = "        "
        line += piece if line in {head, "        "} else f" {piece}"
    return [*lines, line]


def _continued(lines: list[str]) -> list[str]:
    """Return the lines of a macro."""
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _comment(lines: list[str]) -> list[str]:
    words = [piece for line in lines for piece in _folded(line)]
    if len(words) == 1 and len(words[0]) + 6 <= WIDTH:
        return [f"/* {words[0]} */"]
    return [f"/* {words[0]}", *(f" * {word}" for word in words[1:-1]), f" * {words[-1]} */"]


def _folded(text: str) -> list[str]:
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > WIDTH - 6:
            lines.append(line)
            line = "    "
        line += word if line in {"", "    "} else f" {word}"
    return [*lines, line]


def opset() -> str:
    """Return the header of the opset."""
    found = operators()
    absent = {name for name, each in found.items() if "None" in str(each.shape) and each.shape != "None"}
    return render(
        (schema_of(name) for name in sorted(found)), {n: _notes(o) for n, o in found.items()}, absent
    )


def _notes(operator: Operator) -> list[str]:
    tolerances: dict[Tolerance, list[str]] = {}
    for dtype, tolerance in operator.tolerance.items():
        tolerances.setdefault(tolerance, []).append(dtype)
    shown: dict[str, list[str]] = {}  # by reason
    for tolerance, dtypes in tolerances.items():
        of_dtypes = "" if len(tolerances) == 1 else f" ({', '.join(dtypes)})"
        shown.setdefault(tolerance.reason, []).append(_tolerance(tolerance) + of_dtypes)
    return [
        f"dtypes: {', '.join(operator.dtypes)}",
        f"shape: {operator.shape}; dtype: {operator.dtype}",
        "random: its properties are judged"
        if schema_of(operator.name).random
        else "within " + "; ".join(f"{', '.join(limits)}: {reason}" for reason, limits in shown.items()),
        *semantics.lines_of(operator, schema_of(operator.name)),
    ]


def _tolerance(tolerance: Tolerance) -> str:
    if not tolerance.ulp and not tolerance.accumulate:
        return "0 ulp"
    sums = f" + {tolerance.accumulate:g} roundings of the sum" if tolerance.accumulate else ""
    return f"{tolerance.ulp:g} ulp{sums}"


if __name__ == "__main__":
    try:
        print(opset(), end="")
    except UnknownOperator as error:
        sys.exit(f"isthmus_ops.h: {error}")
