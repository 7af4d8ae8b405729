"""Generate csrc/options/table.h from the table of options."""

from __future__ import annotations

from pathlib import Path

from isthmus.options import OPTIONS, Option, parse_size

HEADER = Path(__file__).resolve().parents[2] / "csrc" / "options" / "table.h"

_HEAD = """\
// Names, defaults and limits of the options. Generated from isthmus/options.py by
// `make docs`; do not edit.
#pragma once

#include <cstddef>
#include <cstdint>

// clang-format off
namespace isthmus::options {

struct Switch { const char* variable; bool initial; };
struct Integer { const char* variable; int64_t initial, least, most; };
struct Size { const char* variable; uint64_t initial, least, most; };  // bytes
struct Text { const char* variable; const char* initial; };
struct Choice { const char* variable; const char* initial; size_t count; const char* values[4]; };

"""
_FOOT = """
}  // namespace isthmus::options
// clang-format on
"""


def files() -> dict[Path, str]:
    """Return the header with its text."""
    return {HEADER: header()}


def header() -> str:
    """Return the text of the header."""
    return _HEAD + "".join(f"{_constant(option)}\n" for option in OPTIONS) + _FOOT


def _constant(option: Option) -> str:
    type_name = option.kind.capitalize()
    name = "k" + "".join(word.capitalize() for word in option.name.split("_"))
    return f'constexpr {type_name} {name}{{"{option.variable}", {_values(option)}}};'


def _values(option: Option) -> str:
    if option.kind == "switch":
        return str(bool(option.default)).lower()
    if option.kind == "integer":
        return f"{option.default or 0}, {option.least}, {'INT64_MAX' if option.most is None else option.most}"
    if option.kind == "size":
        return f"{parse_size(str(option.default))}u, {option.least}u, {option.most}u"
    if option.kind == "text":
        return f'"{option.default}"'
    values = [f'"{choice}"' for choice in option.choices if choice]
    return f'"{option.default}", {len(values)}, {{{", ".join(values)}}}'
