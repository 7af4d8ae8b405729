"""Copies of proxies that modules made while the shim was on: ``from torch import zeros``, tables of functions.

A module that is imported inside the scope binds proxies to names of its own. When the scope is left these are
given the originals, so that nothing of the shim outlives it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from isthmus._support.patches import Scope

_PACKAGE = __name__.rpartition(".")[0]


def install(scope: Scope) -> None:
    """Look for copies when the scope is left; to be called ahead of all patches, since the first is undone last."""
    scope.record(
        "sys.modules: names that hold proxies",
        "modules that are imported inside the scope copy them",
        functools.partial(_put_back, scope, frozenset(sys.modules)),
    )


def _put_back(scope: Scope, imported_before: frozenset[str]) -> None:
    originals = {id(ours): original for ours, original in scope.replaced if original and _is_made_here(ours)}
    for namespace in _namespaces():
        for name, value in list(vars(namespace).items()):
            if id(value) in originals:
                setattr(namespace, name, originals[id(value)])
    for module in sys.modules.keys() - imported_before:
        for value in list(getattr(sys.modules[module], "__dict__", {}).values()):
            if type(value) is dict:
                _put_back_in_table(value, originals)
    scope.replaced.clear()


def _is_made_here(value: Any) -> bool:
    """Whether the shim made it; what it only names anew, such as torch.chip's functions, may be anyone's."""
    function = getattr(value, "__func__", value)
    if isinstance(function, FunctionType):
        return bool(function.__globals__["__name__"].startswith(_PACKAGE + "."))
    return isinstance(value, functools.partial)


def _namespaces() -> Iterator[Any]:
    """Every module but the shim's own, and the classes that it defines."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and not name.startswith(_PACKAGE):
            yield module
            for value in list(vars(module).values()):
                if (
                    issubclass(type(value), type) and value.__module__ == name
                ):  # isinstance() runs code of values
                    yield value


def _put_back_in_table(table: dict[Any, Any], originals: dict[int, Any]) -> None:
    for key, value in list(table.items()):
        if id(value) in originals:
            table[key] = originals[id(value)]
        if id(key) in originals:
            table.setdefault(originals[id(key)], table.pop(key))
