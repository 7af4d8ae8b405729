"""Strings, formats and comparisons of instrumented source.

These functions, under the names of calls.NAMES in ``builtins``, return what they are given, or a traced string that
is equal to it. None of them imports torch.
"""

from typing import Any

from isthmus_migrate.trace.places import MOST_VALUES, REGISTRY, Place, Side, add_count, add_shortened
from isthmus_migrate.trace.text import DEVICE_TEXT, Traced, derive, to_exact_str, traced, union

_PLACES = REGISTRY.places
_SMALL = 32  # items of a container in a comparison that are looked at
_MOST_KNOWN = 1024
_CONTAINERS = (tuple, list, set, frozenset, dict)


def text(index: int) -> str:
    """Return the string of a place, traced."""
    place = _PLACES[index]
    place.executed += 1
    found = place.text
    if type(found) is not Traced:
        found = str.__new__(Traced, found)
        found.origins = place.alone()
        place.text = found
    return found


def type_text(index: int) -> str:
    """Return the string of a place in a type, such as ``Literal["cuda"]``, as str."""
    place = _PLACES[index]
    place.executed += 1
    add_count(place.uses, "type")
    return place.text


def template(value: Any) -> Any:
    """Return text that others are put into, which the result is to remember; it has no origin of its own here."""
    if type(value) is not str:
        return value
    found = str.__new__(Traced, value)
    found.origins = frozenset()
    return found


def join(index: int, pieces: tuple[str, ...]) -> str:
    """Return the text of an f-string."""
    return made(index, derive("".join(map(to_exact_str, pieces)), *pieces))


def made(index: int, value: Any) -> Any:
    """Return the text that a format expression has made; that of another type as it is."""
    if not isinstance(value, str):
        return value
    place = _PLACES[index]
    place.executed += 1
    origins = value.origins if type(value) is Traced else frozenset()
    found = traced(to_exact_str(value), union(origins, place.alone()))
    if type(found) is Traced:
        place.notable = True
        if len(place.values) < MOST_VALUES:
            add_shortened(place.values, to_exact_str(found))
    return found


def use(name: str, value: Any) -> Any:
    """Return an argument of a function that writes text."""
    if type(value) is Traced:
        for place in value.origins:
            add_count(place.uses, name)
    return value


# ---- comparisons -------------------------------------------------------------------------------------------
def side(index: int, number: int, value: Any) -> Any:
    """Return an operand of a comparison."""
    place = _PLACES[index]
    found = place.sides[number]
    kind = type(value)
    if number == 0:
        place.executed += 1
    shown = str if kind is Traced else kind
    found.types[shown] = found.types.get(shown, 0) + 1
    if kind in _CONTAINERS:
        if len(value) <= _SMALL and found.types[kind] <= _SMALL:
            for each in list(value):
                _record_comparison(place, found, each, alone=False)
    else:
        _record_comparison(place, found, value)
    return value


def match(indices: tuple[int, ...], value: Any) -> Any:
    """Return the subject of a match statement, compared with the strings of its patterns."""
    for index in indices:
        side(index, 0, value)
    return value


def _record_comparison(place: Place, found: Side, value: Any, alone: bool = True) -> None:
    if type(value) is Traced:
        seen = value.origins, hash(value)
        if seen in found.known:
            return
        if len(found.known) < _MOST_KNOWN:
            found.known.add(seen)
        found.origins |= value.origins
    elif not is_device(type(value)) and not (type(value) is str and (alone or DEVICE_TEXT.search(value))):
        return
    name = to_exact_str(value) if isinstance(value, str) else str(value)
    place.notable |= type(value) is not str or bool(DEVICE_TEXT.search(name))
    add_shortened(found.values, name)


def is_device(kind: type) -> bool:
    """Whether the type is torch.device."""
    return kind.__name__ == "device" and kind.__module__ == "torch"
