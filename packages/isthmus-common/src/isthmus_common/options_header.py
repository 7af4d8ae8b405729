"""Print the header with the options of a package for its C++ sources, which the build writes.

``python -m isthmus_common.options_header isthmus.options``; the types are those of ``options.h``, which isthmus
installs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module

from isthmus_common.options import Option
from isthmus_common.units import parse_size

_HEAD = """\
// Names, defaults and limits of the options of {module}, written by the build.
#pragma once

#include "options.h"

namespace isthmus::options {

"""
_FOOT = """
}  // namespace isthmus::options
"""


def header(module: str, options: Iterable[Option]) -> str:
    """Return the text of the header."""
    return _HEAD.replace("{module}", module) + "".join(f"{_constant(option)}\n" for option in options) + _FOOT


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


if __name__ == "__main__":
    print(header(sys.argv[1], import_module(sys.argv[1]).TABLE.options), end="")
