"""Functions of libascendcl.so as functions of Python, in pyACL's conventions.

A function returns what the C function writes, then its aclError: ``pointer, ret = acl.rt.malloc(size, 0)``. One that
writes nothing returns the aclError alone. Handles and addresses are integers.
"""

import ctypes
import operator
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

LIBRARY = ctypes.CDLL(str(Path(__file__).resolve().parents[2] / "lib64" / "libascendcl.so"))
LIBRARY.isthmus_ascend_report.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)

INT32, UINT32, INT64, UINT64 = ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64
SIZE, FLOAT, TEXT, POINTER = ctypes.c_size_t, ctypes.c_float, ctypes.c_char_p, ctypes.c_void_p

# Values of aclError.
SUCCESS, INVALID_PARAMETER, INVALID_FILE, INVALID_MODEL = 0, 100000, 100003, 100011
OPERATOR_NOT_FOUND, FEATURE_UNSUPPORTED = 100024, 200006


class Out(NamedTuple):
    """A parameter to which the C function writes a value of this type."""

    type: Any


def function(symbol: str, *parameters: Any) -> Callable[..., Any]:
    """Return the function that calls a symbol of the library.

    Args:
        symbol: of libascendcl.so; it returns an aclError.
        parameters: types of the C parameters, in their order; those of :class:`Out` are results.
    """
    native = getattr(LIBRARY, symbol)
    given = [each for each in parameters if not isinstance(each, Out)]

    def call(*values: Any) -> Any:
        if len(values) != len(given):
            raise TypeError(f"{symbol} takes {len(given)} arguments ({len(values)} given)")
        remaining = iter(values)
        results = []
        converted = []
        for parameter in parameters:
            if isinstance(parameter, Out):
                results.append(parameter.type())
                converted.append(ctypes.byref(results[-1]))
            else:
                converted.append(convert(next(remaining), parameter))
        status: int = native(*converted)
        return (*(each.value or 0 for each in results), status) if results else status

    call.__name__ = symbol
    call.__doc__ = f"Call {symbol}; return {', '.join([*['value'] * (len(parameters) - len(given)), 'ret'])}."
    return call


def returning(symbol: str, result: Any, *parameters: Any) -> Callable[..., Any]:
    """Return the function that calls a symbol whose result is a value, not an aclError."""
    native = getattr(LIBRARY, symbol)
    native.restype = result

    def call(*values: Any) -> Any:
        if len(values) != len(parameters):
            raise TypeError(f"{symbol} takes {len(parameters)} arguments ({len(values)} given)")
        value = native(*map(convert, values, parameters))
        return value.decode() if isinstance(value, bytes) else 0 if value is None and result else value

    call.__name__ = symbol
    call.__doc__ = f"Call {symbol}; return its value."
    return call


def convert(value: Any, kind: Any) -> Any:
    """Return an argument in its C type; an address is an integer, never an object of Python."""
    if kind is TEXT:
        return kind(value.encode() if isinstance(value, str) else value)
    return kind(float(value) if kind is FLOAT else operator.index(value))


def integers(values: Any, kind: Any = INT64) -> Any:
    """Return a C array of integers."""
    numbers = [operator.index(each) for each in values]
    return (kind * len(numbers))(*numbers)


def refuse(name: str, status: int, problem: str) -> int:
    """Report an error as the library does, also in one line on stderr, and return it.

    Args:
        name: of the function, such as ``mdl.load_from_file``.
        status: an aclError.
        problem: what failed and why.
    """
    LIBRARY.isthmus_ascend_report(status, f"acl.{name}".encode(), problem.encode())
    print(f"isthmus: acl.{name}: {problem} ({status})", file=sys.stderr, flush=True)
    return status


def unknown(module: str) -> Callable[[str], Any]:
    """Return a module's ``__getattr__``, which names what the reference runtime lacks."""

    def find(name: str) -> Any:
        raise AttributeError(f"{module}.{name}: not in pyACL of the reference runtime")

    return find
