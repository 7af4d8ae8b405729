"""How a NumPy function becomes a kernel, and the dtype helpers that kernels share.

Half precision arrives as float32, and results are rounded once, when they are stored. Sums and transcendental
functions use float64: NumPy sums pairwise only along the fastest axis, and its float32 functions err by several ulp.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from isthmus.opset.dtypes import ALL
from isthmus.opset.library import Context, Library

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Maybe: TypeAlias = Array | None
Function: TypeAlias = Callable[..., Any]

library = Library("numpy", "operators by NumPy")


def wide(value: Any) -> Any:
    """Half precision as float32; lists item by item; the rest as it is."""
    if isinstance(value, list):
        return [wide(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.itemsize == 2 and value.dtype.kind in "fV":
        return value.astype(np.float32)
    return value


def store(out: Any, result: Any) -> None:
    """Write a result, or a list of them, into its output, rounding to the output's dtype."""
    if isinstance(out, list):
        for item, value in zip(out, result, strict=True):
            store(item, value)
    elif out is not None:
        out[...] = result


def operator(*names: str, inputs: int | None = None) -> Callable[[Function], Function]:
    """Register a function of the inputs that returns the results; it may ask for the context too.

    ``inputs`` is needed for functions that do not tell how many arguments they take, such as ufuncs.
    """

    def register(function: Function) -> Function:
        known = [] if inputs else [*inspect.signature(function).parameters]
        count = inputs or len(known) - ("context" in known)

        def kernel(*arguments: Any, context: Context) -> None:
            extra = {"context": context} if "context" in known else {}
            with np.errstate(all="ignore"):  # infinities and NaN are answers here
                results = function(*map(wide, arguments[:count]), **extra)
                outputs = list(arguments[count:])
                store(outputs, results if isinstance(results, tuple) else [results])

        library.operator(*names, dtypes=ALL, strided=True, in_place=True)(kernel)
        return function

    return register


def register(table: dict[str, Function], inputs: int | None = None) -> None:
    """Register each function of the table under its ATen name."""
    for name, function in table.items():
        operator(f"aten::{name}", inputs=inputs)(function)


def writes(*names: str) -> Callable[[Function], Function]:
    """Register a function that writes to its arguments or outputs itself."""

    def register(function: Function) -> Function:
        quiet = np.errstate(all="ignore")(function)
        library.operator(*names, dtypes=ALL, strided=True, in_place=True)(quiet)
        return function

    return register


def double(x: Any) -> Array:
    """As float64."""
    return np.asarray(x, np.float64)


def exact(x: Array) -> Array:
    """Floating point as float64; integers as they are."""
    return double(x) if x.dtype.kind == "f" else x


def like(number: Any, x: Array) -> Array:
    """A scalar in the dtype of x; integers wrap around as in C."""
    return np.asarray(number).astype(x.dtype)
