"""ctypes definitions of Isthmus's C interfaces, parsed from their headers.

``driver.h`` and ``operators.h`` alone define the layout of the tables; they are installed with the package
(:func:`isthmus.include_path`).
"""

import ctypes
import re
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

import isthmus


class Status(IntEnum):
    """``isthmus_status``: return value of a driver's functions."""

    OK = 0
    NOT_READY = 1
    INVALID_ARGUMENT = 2
    OUT_OF_MEMORY = 3
    NO_DEVICE = 4
    UNSUPPORTED = 5
    TIMEOUT = 6
    ABORTED = 7
    PEER_LOST = 8
    DEVICE_ERROR = 9
    INTERNAL = 10


class CopyKind(IntEnum):
    """``isthmus_copy_kind``."""

    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3


class MemoryKind(IntEnum):
    """``isthmus_memory_kind``: kind of memory at an address."""

    UNKNOWN = 0
    DEVICE = 1
    PINNED = 2


_SCALARS: dict[str, Any] = {
    "char": ctypes.c_char,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    **{
        f"{sign}int{bits}_t": getattr(ctypes, f"c_{sign}int{bits}")
        for sign in ("", "u")
        for bits in (8, 32, 64)
    },
}
_STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\} \1;", re.DOTALL)
_ENUM = re.compile(r"typedef enum (\w+) \{(.*?)\}", re.DOTALL)
_FUNCTION = re.compile(r"(?P<result>[\w ]+?\*?) ?\(\*(?P<name>\w+)\)\((?P<parameters>.*)\)$", re.DOTALL)
_FIELD = re.compile(r"(?:const )?(?P<type>\w+)(?P<pointer>\*?) (?P<names>.*)$", re.DOTALL)
_BYTES = re.compile(r"#define (ISTHMUS_\w+_BYTES) (\d+)")


class Header:
    """Structures and enumerations of a header.

    Attributes:
        structures: ctypes structures by C name, such as ``isthmus_device_properties``.
        enumerations: C name -> {member: value}.
    """

    def __init__(self, name: str) -> None:
        path = Path(isthmus.include_path()) / name
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        self._sizes = {macro: int(size) for macro, size in _BYTES.findall(text)}
        self.enumerations = {enum: _members(body) for enum, body in _ENUM.findall(text)}
        self.structures: dict[str, Any] = {
            name: self._structure(*found) for found in _STRUCT.findall(text) for name in found[:1]
        }

    def _structure(self, name: str, body: str) -> type[ctypes.Structure]:
        fields = [field for line in body.split(";") if line.strip() for field in self._fields(line.strip())]
        return type(name, (ctypes.Structure,), {"_fields_": fields})

    def _fields(self, declaration: str) -> list[tuple[str, Any]]:
        function = _FUNCTION.match(" ".join(declaration.split()))
        if function:
            return [(function["name"], self._function(function["result"], function["parameters"]))]
        field = _FIELD.match(declaration)
        if not field:
            raise ValueError(f"cannot read the declaration {declaration!r}")
        base = self._type(field["type"] + field["pointer"])
        return [self._array(name.strip(), base) for name in field["names"].split(",")]

    def _array(self, name: str, base: Any) -> tuple[str, Any]:
        name, bracket, size = name.partition("[")
        if not bracket:
            return name, base
        size = size.rstrip("]")
        return name, base * (self._sizes[size] if size in self._sizes else int(size))

    def _function(self, result: str, parameters: str) -> Any:
        types = [self._type(p) for p in parameters.split(",") if p.strip() != "void"]
        return ctypes.CFUNCTYPE(None if result == "void" else self._type(result), *types)

    def _type(self, declaration: str) -> Any:
        """Return the ctypes type of a declaration such as ``const char* name``."""
        words = declaration.replace("const ", "").replace("struct ", "").split()
        if "*" in declaration:
            return ctypes.c_char_p if words == ["char*"] else ctypes.c_void_p
        if words[0] in self.enumerations:
            return ctypes.c_int
        return _SCALARS.get(words[0], ctypes.c_void_p)


def _members(body: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", body)}


@cache
def driver_header() -> Header:
    """``driver.h``."""
    return Header("driver.h")


@cache
def operators_header() -> Header:
    """``operators.h``."""
    return Header("operators.h")


def structure(name: str) -> Any:
    """Return the ctypes structure ``isthmus_<name>`` of driver.h."""
    return driver_header().structures[f"isthmus_{name}"]
