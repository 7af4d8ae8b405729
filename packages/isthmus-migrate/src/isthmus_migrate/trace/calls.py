"""Calls and attributes of instrumented source, and the names of all functions that it calls."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from isthmus_migrate.trace import generated, values
from isthmus_migrate.trace.places import (
    BACKEND,
    DEVICE,
    DEVICE_TYPE,
    REGISTRY,
    TENSOR_TYPE,
    Owner,
    Place,
    add_count,
    add_shortened,
    type_name,
)
from isthmus_migrate.trace.text import Traced, to_exact_str, traced
from isthmus_migrate.trace.values import is_device

_PLACES = REGISTRY.places


def receiver(index: int, value: Any) -> Any:
    """Return the object that a method is called on or an attribute is read from."""
    place = _PLACES[index]
    place.executed += 1
    kind = type(value)
    if issubclass(kind, (ModuleType, type)):  # isinstance() may run code of the value
        kind = value
    place.last = kind
    owner = place.owners.get(kind)
    if owner is None:
        owner = place.owners[kind] = owner_of(value, place.name)
        place.notable |= _concerns_devices(place, owner)
    add_count(place.types, owner.receiver)
    if owner.member:
        add_count(place.members, owner.member)
    REGISTRY.write_if_due()
    return value


def owner_of(value: Any, name: str) -> Owner:
    """Return what an attribute means on a receiver."""
    if issubclass(type(value), ModuleType):
        found = value.__name__
        return Owner(f"module {found}", f"{found}.{name}")
    kind = value if issubclass(type(value), type) else type(value)
    shown = type_name(str if kind is Traced else kind)
    if type(value) is super:
        bound: Any = vars(super)["__self_class__"].__get__(value)
        kind, shown = bound, f"super of {type_name(bound)}"
        classes = bound.__mro__[bound.__mro__.index(vars(super)["__thisclass__"].__get__(value)) + 1 :]
    else:
        classes = kind.__mro__
    definer = next((each for each in classes if name in vars(each)), None)
    if definer is None:
        return Owner(shown, "")
    return Owner(shown, f"{type_name(definer)}.{name}")


def _concerns_devices(place: Place, owner: Owner) -> bool:
    if place.name in ("type", "str", "device_type", "getattr"):
        return owner.receiver in ("torch.device", "torch.Tensor") or owner.member == "torch.Tensor.type"
    if place.name in ("cuda", "to", "is_cuda"):
        return True
    return owner.receiver.startswith("module torch")


def result(index: int, value: Any) -> Any:
    """Return what was read from the last receiver of a place, traced if it is the name of a device or a backend."""
    place = _PLACES[index]
    if not _produces(place, value):
        if place.notable and type(value) is bool:
            add_shortened(place.values, str(value))
        return value
    place.notable = True
    add_shortened(place.values, value)
    return traced(value, place.alone())


def _produces(place: Place, value: Any) -> bool:
    kind = place.last
    if not place.role or type(value) is not str:
        return False
    if isinstance(kind, ModuleType):
        return place.role == BACKEND and kind.__name__.startswith("torch.")
    if place.role == TENSOR_TYPE or place.name == "device_type":
        return any(each.__module__.partition(".")[0] == "torch" for each in kind.__mro__)
    return is_device(kind) and place.role in (DEVICE, DEVICE_TYPE)


def name(index: int, function: Any) -> Any:
    """Return a function that is called by a name of torch.cuda."""
    place = _PLACES[index]
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and vars(cuda).get(place.name) is function:
        place.executed += 1
        place.notable = True
        add_count(place.members, f"torch.cuda.{place.name}")
    return function


def by_name(index: int, value: Any, attribute: Any, *more: Any) -> tuple[Any, ...]:
    """Return the arguments of getattr() and its like, with a plain name."""
    if type(attribute) is Traced:
        place = _PLACES[index]
        place.executed += 1
        place.notable = True
        owner = owner_of(value, attribute)
        add_count(place.types, owner.receiver)
        add_shortened(place.values, attribute)
        if owner.member:
            add_count(place.members, owner.member)
        for each in attribute.origins:
            add_count(each.uses, f"{place.name} of {owner.receiver}")
    return (value, to_exact_str(attribute), *more)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(values.text, values.type_text, values.template, values.join, values.made, values.use),
        *(values.side, values.match, to_exact_str),
        *(receiver, result, name, by_name),
        *(generated.derived, generated.code),
    )
} | {"compile": generated.compile_text}
NAMES = {f"__isthmus_trace_{name}__": function for name, function in _FUNCTIONS.items()}
