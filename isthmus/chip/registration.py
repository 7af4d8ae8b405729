"""Registering the routes of the opened driver: its operator libraries, and PyTorch's decompositions without them."""

from __future__ import annotations

import ctypes
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus import _C, options
from isthmus.drivers import Candidate

if TYPE_CHECKING:
    from isthmus.drivers.libraries import OperatorLibrary

# Kept for ever: the dispatcher holds addresses in them.
_libraries: list[OperatorLibrary] = []


def libraries() -> tuple[OperatorLibrary, ...]:
    """The operator libraries that are loaded, in the order of preference."""
    return tuple(_libraries)


def register(candidate: Candidate) -> None:
    """Add the driver's operator libraries and register what serves each overload.

    Libraries of ``ISTHMUS_LIBRARIES`` come ahead. A driver whose delegate comes first has its own added only where
    ``ISTHMUS_ROUTE`` asks for the route kernel and no other library is named.

    Raises:
        RuntimeError: a library cannot be used, or ISTHMUS_ROUTE asks for what there is not; one line.
    """
    for path in _library_paths(candidate):
        _add(path)
    delegates = _C.driver()["delegate"] != ""
    _C.register_routes(
        candidate.prefer == "delegate", candidate.fallback, {} if delegates else _decompositions()
    )


def _library_paths(candidate: Candidate) -> list[str]:
    """In the order of preference."""
    extra = [path for path in options.text("libraries").split(os.pathsep) if path]
    routes = options.text("route")
    if routes.startswith("@") and Path(routes[1:]).is_file():
        routes = Path(routes[1:]).read_text(encoding="utf-8")
    asked = candidate.prefer == "kernel" or ("=kernel" in routes and not extra)
    return extra + list(candidate.operators if asked else ())


def _add(path: str) -> None:
    from isthmus.drivers.libraries import load

    library = load(path)
    if not _libraries:
        _C.set_operator_runtime(_operator_runtime())
    _libraries.append(library)
    _C.add_operators(
        library.name, [(o.name, o.dtypes, o.flags, o.call, o.handle) for o in library.operators.values()]
    )


def _operator_runtime() -> int:
    """dlopen handle of libtvm_ffi, which errors of kernels are fetched from."""
    from tvm_ffi import libinfo

    return ctypes.CDLL(libinfo.find_libtvm_ffi())._handle


def _decompositions() -> dict[str, Callable[..., Any]]:
    """PyTorch's decompositions into other ATen operators, and ours.

    Those of torch._refs are left out: they end in prims, whose implementation is the operator itself.
    """
    from torch._decomp import decomposition_table
    from torch._ops import OpOverload

    from isthmus.chip.decompositions import DECOMPOSITIONS

    found = dict(DECOMPOSITIONS)
    for operator, function in decomposition_table.items():
        if isinstance(operator, OpOverload) and not _is_reference(function):
            name = operator._schema.name
            overload = operator._overloadname
            found[name if overload == "default" else f"{name}.{overload}"] = function
    return found


def _is_reference(function: Callable[..., Any]) -> bool:
    inner = inspect.unwrap(function)
    return Path(inner.__code__.co_filename).parent.name == "_refs" if hasattr(inner, "__code__") else True
