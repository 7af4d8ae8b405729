"""Restore names that user modules bound to proxies, such as ``from torch import zeros`` or tables of functions.

A module imported inside the scope may bind proxies to its own names. On exit these are rebound to the originals.
"""

import functools
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from isthmus_common.patches import Scope

_PACKAGE = __name__.rpartition(".")[0]


def install(scope: Scope) -> None:
    """Restore copies when the scope exits. Call it before all patches, because undo runs in reverse order."""
    scope.record(
        "sys.modules: names that hold proxies",
        "modules imported inside the scope copy them",
        functools.partial(_put_back, scope, frozenset(sys.modules)),
    )


def _put_back(scope: Scope, imported_before: frozenset[str]) -> None:
    originals = {id(ours): original for ours, original in scope.replaced if original and _is_made_here(ours)}
    for namespace in _namespaces():
        if originals.keys().isdisjoint(map(id, vars(namespace).values())):  # true for most, and fast
            continue
        for name, value in list(vars(namespace).items()):
            if id(value) in originals:
                setattr(namespace, name, originals[id(value)])
    for module in sys.modules.keys() - imported_before:
        for value in list(getattr(sys.modules[module], "__dict__", {}).values()):
            if type(value) is dict:
                _put_back_in_table(value, originals)
    scope.replaced.clear()


def _is_made_here(value: Any) -> bool:
    """Whether the shim created this object; functions of torch.chip may also be used outside the shim."""
    function = getattr(value, "__func__", value)
    if isinstance(function, FunctionType):
        return bool(function.__globals__["__name__"].startswith(_PACKAGE + "."))
    return isinstance(value, functools.partial)


def _namespaces() -> Iterator[Any]:
    """All modules except the shim's, and the classes that they define."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and not name.startswith(_PACKAGE):
            yield module
            for value in list(vars(module).values()):
                is_class = issubclass(type(value), type)  # isinstance() may run code of the value
                if is_class and value.__module__ == name:
                    yield value


def _put_back_in_table(table: dict[Any, Any], originals: dict[int, Any]) -> None:
    for key, value in list(table.items()):
        if id(value) in originals:
            table[key] = originals[id(value)]
        if id(key) in originals:
            table.setdefault(originals[id(key)], table.pop(key))
