"""Replaces the constructor of an immutable type, such as ``torch.device``.

A replacement class would break code that compares types, annotates, pickles or scripts with ``torch.device``. Writing
the type's ``tp_new`` slot, as CPython does when a class assigns ``__new__``, keeps the type itself. The slots before
``tp_new`` have not moved since Python 3.4; they are verified before anything is written.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

_POINTER = ctypes.sizeof(ctypes.c_void_p)
_HEAD = object.__basicsize__ + _POINTER  # PyObject_VAR_HEAD
_FLAGS, _BASE, _DICT, _NEW = 18, 29, 30, 36  # index of the slot after the head


class _HasNew:
    """A type whose tp_new is CPython's generic slot, which looks up and calls ``__new__``."""

    def __new__(cls) -> _HasNew:
        return object.__new__(cls)


def _slot(kind: type, index: int) -> ctypes.c_void_p:
    return ctypes.c_void_p.from_address(id(kind) + _HEAD + index * _POINTER)


def _namespace(kind: type) -> dict[str, Any]:
    return next(item for item in gc.get_referents(vars(kind)) if isinstance(item, dict))


def _check_layout(kind: type) -> None:
    expected = {_FLAGS: kind.__flags__, _BASE: id(kind.__base__), _DICT: id(_namespace(kind))}
    for index, value in expected.items():
        if _slot(kind, index).value != value:
            raise RuntimeError(
                f"{kind.__module__}.{kind.__name__}: unknown layout of types in this Python; use CPython 3.10 to 3.14"
            )


def _call(slot: int) -> Callable[..., Any]:
    """Return the C constructor of a tp_new pointer as ``new(cls, *args, **kwargs)``."""
    any_object, raw = ctypes.py_object, ctypes.c_void_p
    with_keywords = ctypes.PYFUNCTYPE(any_object, any_object, any_object, any_object)(slot)
    without = ctypes.PYFUNCTYPE(any_object, any_object, any_object, raw)(slot)

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        return with_keywords(cls, args, kwargs) if kwargs else without(cls, args, None)

    return new


def replace_new(kind: type, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Make ``kind(...)`` call ``make(original)(kind, ...)``; return a function that undoes it.

    Args:
        kind: a type with its own ``__new__``.
        make: maps the original constructor to the replacement, both ``new(cls, *args, **kwargs)``.

    Raises:
        RuntimeError: the type has no ``__new__`` of its own, or this Python has an unknown layout.
    """
    if "__new__" not in vars(kind):
        raise RuntimeError(f"{kind.__name__} has no constructor of its own to replace")
    _check_layout(kind)
    namespace, slot = _namespace(kind), _slot(kind, _NEW)
    original, entry = slot.value, namespace["__new__"]
    assert original is not None

    def write(new: Any, pointer: int | None) -> None:
        namespace["__new__"] = new
        _slot(kind, _NEW).value = pointer
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))

    write(staticmethod(make(_call(original))), _slot(_HasNew, _NEW).value)
    return lambda: write(entry, original)
