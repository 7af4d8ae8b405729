"""Writes csrc/options/table.h from the table of options: ``python -m tools.pages.options [--check]``.

``--check`` writes nothing and fails if the header is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from isthmus._support.files import write_file
from isthmus.options import OPTIONS, Option, parse_size

HEADER = Path(__file__).resolve().parents[2] / "csrc" / "options" / "table.h"

_HEAD = """\
// Names, defaults and limits of the options. Generated from isthmus/options.py by
// `python -m tools.pages.options`; do not edit.
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


def header() -> str:
    """The text of the header."""
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


def main(arguments: list[str]) -> int:
    """Command line; returns the exit status."""
    text = header()
    stale = not HEADER.exists() or HEADER.read_text(encoding="utf-8") != text
    if stale and "--check" in arguments:
        print("csrc/options/table.h is stale; do `python -m tools.pages.options`", file=sys.stderr)
        return 1
    if stale:
        write_file(HEADER, text.encode())
        print("written: csrc/options/table.h")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
