"""Register the routes of the open driver: operator libraries, and decompositions for drivers without a delegate."""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus import _C, options
from isthmus.chip import compute_dtypes
from isthmus.drivers import Candidate

if TYPE_CHECKING:
    from isthmus.drivers.generators import Generator
    from isthmus.drivers.libraries import LoadedOperator, OperatorLibrary

# Never freed: the dispatcher holds addresses in them.
_libraries: list[OperatorLibrary] = []
_code_generator = ""
_batch_invariant = False  # declared by the driver


def libraries() -> tuple[OperatorLibrary, ...]:
    """The loaded operator libraries, in order of preference."""
    return tuple(_libraries)


@functools.cache
def code_generator() -> Generator | None:
    """The driver's generator of pointwise kernels, or None.

    Raises:
        RuntimeError: its ``driver.toml`` names one that cannot be loaded.
    """
    from isthmus.drivers.generators import load

    return load(_code_generator) if _code_generator else None


def register(candidate: Candidate) -> None:
    """Load the operator libraries and register the route of each overload.

    Libraries of ``ISTHMUS_LIBRARIES`` come first. For a driver that prefers its delegate, its own libraries are
    loaded only if ``ISTHMUS_ROUTE`` requests the route kernel and names no other library.

    Raises:
        RuntimeError: a library cannot be used, or ISTHMUS_ROUTE requests an unavailable route.
    """
    global _code_generator, _batch_invariant
    _code_generator = candidate.code_generator
    _batch_invariant = candidate.batch_invariant
    if options.switch("batch_invariant"):
        check_batch_invariant()
    for path in _library_paths(candidate):
        _add(path)
    decompositions = {} if _C.driver()["delegate"] else python_decompositions()
    _C.register_routes(
        candidate.prefer == "delegate",
        candidate.fallback,
        decompositions,
        compute_dtypes.rules(),
        now=bool(
            decompositions or _libraries or options.text("route")
        ),  # some raise errors, which users expect here
    )


def check_batch_invariant() -> None:
    """Raise RuntimeError unless the driver's operators can compute rows alike in every batch."""
    driver = _C.driver()
    if not driver["delegate"] and not _batch_invariant:
        raise RuntimeError(
            f"driver {driver['name']}: its operators are not batch-invariant; a driver whose rows do not depend on "
            "their batch declares batch_invariant = true in its driver.toml"
        )


def _library_paths(candidate: Candidate) -> list[str]:
    """Paths in order of preference."""
    extra = [path for path in options.text("libraries").split(os.pathsep) if path]
    routes = options.text("route")
    if routes.startswith("@") and Path(routes[1:]).is_file():
        routes = Path(routes[1:]).read_text(encoding="utf-8")
    asked = candidate.prefer == "kernel" or ("=kernel" in routes and not extra)
    return extra + list(candidate.operators if asked else ())


def _add(path: str) -> None:
    from isthmus.drivers.libraries import load

    library = load(path)
    _libraries.append(library)
    add_operators(library.name, list(library.operators.values()))


def add_operators(library: str, operators: list[LoadedOperator]) -> None:
    """Make kernels available to the dispatcher, under the name of a library."""
    from isthmus.drivers.libraries import schema_of
    from isthmus.opset.indices import rule_of
    from isthmus.opset.refusals import refusals_of

    _set_operator_runtime()
    rows = []
    for each in operators:
        schema = schema_of(each.name, library)
        rows.append((*each, *((rule_of(schema), refusals_of(schema)) if schema else (None, None))))
    _C.add_operators(library, rows)


@functools.cache
def _set_operator_runtime() -> None:
    _C.set_operator_runtime(_operator_runtime())


def _operator_runtime() -> int:
    """dlopen handle of libtvm_ffi, for the errors of kernels."""
    from tvm_ffi import libinfo

    return ctypes.CDLL(libinfo.find_libtvm_ffi())._handle


def python_decompositions() -> dict[str, Callable[..., Any]]:
    """PyTorch's decompositions into ATen operators, and ours, which come first.

    Excludes torch._refs: they decompose into prims, which are implemented by the operator itself.
    """
    from torch._decomp import decomposition_table
    from torch._ops import OpOverload

    from isthmus.chip.decompositions import DECOMPOSITIONS, in_place

    found: dict[str, Callable[..., Any]] = {}
    for operator, function in decomposition_table.items():
        if isinstance(operator, OpOverload) and not _is_reference(function):
            name = operator._schema.name
            overload = operator._overloadname
            # A nonlocal of register_inplace.
            functional = inspect.getclosurevars(function).nonlocals.get("outplace_op")
            formula = function if functional is None else in_place(functional)
            found[name if overload == "default" else f"{name}.{overload}"] = formula
    return {name: _checked(name, formula) for name, formula in (found | DECOMPOSITIONS).items()}


def _checked(name: str, formula: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decomposition that refuses the dtypes that PyTorch's CPU kernels refuse."""

    import torch

    from isthmus.opset import dtypes as dt
    from isthmus.opset.refusals import DECOMPOSED

    base, _, overload = name.removeprefix("aten::").partition(".")
    rules = DECOMPOSED.get(base.removesuffix("_"))
    if rules is None:
        return formula
    declared = getattr(getattr(torch.ops.aten, base), overload or "default")._schema.arguments
    places = {i: (each.name, rules[each.name]) for i, each in enumerate(declared) if each.name in rules}

    @functools.wraps(formula)
    def check(*arguments: Any, **named: Any) -> Any:
        for i, (argument, dtypes) in places.items():
            given = arguments[i] if i < len(arguments) else named[argument]
            dtype = str(given.dtype).removeprefix("torch.")
            if dtype in dt.ALL and dtype not in dtypes:
                raise NotImplementedError(
                    f"{name}: {argument} has dtype {dtype}; expected one of {' '.join(dtypes)}."
                )
        return formula(*arguments, **named)

    return check


def _is_reference(function: Callable[..., Any]) -> bool:
    inner = inspect.unwrap(function)
    return Path(inner.__code__.co_filename).parent.name == "_refs" if hasattr(inner, "__code__") else True
