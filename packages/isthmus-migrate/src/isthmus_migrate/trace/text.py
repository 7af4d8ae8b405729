"""A string that remembers the places in the source that it comes from."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from isthmus_migrate.trace.places import Place

DEVICE_TEXT = re.compile(r"cuda|nccl|gpu", re.IGNORECASE)
_LONGEST = 1 << 16

# Modules in which str(text) is not meant to give an exact str: what they return goes to the script as it is.
KEEPING = {"argparse", "enum"}


class Traced(str):
    """Text with its origins. Behaves as str; text made of it is traced too."""

    __slots__ = ("origins",)
    origins: frozenset[Place]

    __class__ = property(lambda self: str)
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _meet(self, other)
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        _meet(self, other)
        return str.__ne__(self, other)

    def __str__(self) -> str:
        caller = sys._getframe().f_back  # None in sys.exit("cuda")
        return self if caller and caller.f_globals.get("__name__") in KEEPING else str.__str__(self)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, str) and hasattr(type(other), "__radd__"):
            found = type(other).__radd__(other, self)
            if found is not NotImplemented:
                return found
        return derive(str.__add__(self, other), self, other)  # raises str's own error

    def __radd__(self, other: str) -> str:
        return derive(str.__add__(other, self), self, other) if isinstance(other, str) else NotImplemented

    def __rmod__(self, other: str) -> str:
        return derive(str.__mod__(other, self), self, other) if isinstance(other, str) else NotImplemented

    def __mod__(self, values: Any) -> str:
        parts = values if isinstance(values, tuple) else (values,)
        parts = tuple(values.values()) if isinstance(values, dict) else parts
        return derive(str.__mod__(self, values), self, *parts)

    def join(self, parts: Iterable[str]) -> str:
        """Do the same as the method of str."""
        parts = list(parts)
        return derive(str.join(self, parts), self, *parts)

    def format_map(self, mapping: Any) -> str:
        """Do the same as the method of str."""
        return derive(str.format_map(self, mapping), self, *mapping.values())

    def __copy__(self) -> Traced:
        return self

    def __deepcopy__(self, memo: Any) -> Traced:
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple[type, tuple[str]]:
        return str, (to_exact_str(self),)


def _traced_method(name: str) -> Callable[..., Any]:
    original = getattr(str, name)

    def method(self: Traced, *args: Any, **kwargs: Any) -> Any:
        return derive(original(self, *args, **kwargs), self, *args, *kwargs.values())

    method.__name__ = name
    return method


for _name in (
    "__getitem__ __format__ __mul__ __rmul__ format split rsplit partition rpartition splitlines replace translate "
    "lower upper casefold title capitalize swapcase strip lstrip rstrip removeprefix removesuffix ljust rjust center "
    "zfill expandtabs"
).split():
    setattr(Traced, _name, _traced_method(_name))
Traced.__name__ = Traced.__qualname__ = "str"  # in messages of errors


_met: set[tuple[frozenset[Place], frozenset[Place]]] = set()


def to_exact_str(value: Any) -> Any:
    """Return an exact str for traced text, and any other value as it is."""
    return str.__str__(value) if type(value) is Traced else value


def traced(text: str, origins: frozenset[Place]) -> str:
    """Return text with origins; plain text if none of them names a device, nor the text itself."""
    if not text or len(text) > _LONGEST or not (_is_strong(origins) or DEVICE_TEXT.search(text)):
        return text
    made = str.__new__(Traced, text)
    made.origins = origins
    return made


@functools.cache
def _is_strong(origins: frozenset[Place]) -> bool:
    return any(place.strong for place in origins)


@functools.cache
def union(one: frozenset[Place], other: frozenset[Place]) -> frozenset[Place]:
    """Return the places of both."""
    return one | other


def derive(result: Any, *sources: Any) -> Any:
    """Return the text, or the list or tuple of texts, made of some sources with the origins of these."""
    origins: frozenset[Place] = frozenset()
    for source in sources:
        if type(source) is Traced:
            origins = union(origins, source.origins)
    if isinstance(result, str):
        return traced(to_exact_str(result), origins)
    if isinstance(result, (list, tuple)):
        return type(result)(traced(to_exact_str(each), origins) for each in result)
    return result


def _meet(one: Traced, other: object) -> None:
    """Record that texts were compared."""
    if type(other) is Traced and (one.origins, other.origins) not in _met:
        _met.add((one.origins, other.origins))
        for place in one.origins:
            place.met |= other.origins
        for place in other.origins:
            place.met |= one.origins
