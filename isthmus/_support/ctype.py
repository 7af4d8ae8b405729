"""Replaces the constructor of an immutable type, such as ``torch.device``.

A stand-in class would fail where code compares types, annotates, pickles or scripts with ``torch.device``. Writing
the type's ``tp_new`` slot, as CPython does itself when a class assigns ``__new__``, keeps the type what it is. The
slots before ``tp_new`` have not moved since Python 3.4; they are compared with what Python says of the type before
anything is written.
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
    """A type whose tp_new is CPython's own "look up __new__ and call it"."""

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
                f"{kind.__module__}.{kind.__name__}: this Python lays out types in a way that isthmus does not know; "
                "use CPython 3.10 to 3.14"
            )


def _call(slot: int) -> Callable[..., Any]:
    """The C constructor behind a tp_new pointer, as ``new(cls, *args, **kwargs)``."""
    any_object, raw = ctypes.py_object, ctypes.c_void_p
    with_keywords = ctypes.PYFUNCTYPE(any_object, any_object, any_object, any_object)(slot)
    without = ctypes.PYFUNCTYPE(any_object, any_object, any_object, raw)(slot)

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        return with_keywords(cls, args, kwargs) if kwargs else without(cls, args, None)

    return new


def replace_new(kind: type, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Let ``kind(...)`` call ``make(original)(kind, ...)``; the result undoes it.

    Args:
        kind: a type that has its own ``__new__``.
        make: gets the original constructor and gives the replacement, both ``new(cls, *args, **kwargs)``.

    Raises:
        RuntimeError: the type has no ``__new__`` of its own, or this Python is not laid out as expected.
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
