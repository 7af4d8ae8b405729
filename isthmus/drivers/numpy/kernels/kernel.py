"""Registration of NumPy functions as kernels, and their dtype helpers.

Half precision arrives as float32, and results are rounded once, when they are stored. Sums and transcendental
functions use float64: NumPy sums pairwise only along the fastest axis, and its float32 functions err by several ulp.
"""

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
    """Convert half precision to float32, also in lists; return other values unchanged."""
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
    """Register a function of the inputs, and optionally the context, that returns the results.

    ``inputs`` is the number of inputs, for functions without a signature such as ufuncs.
    """

    def register(function: Function) -> Function:
        known = [] if inputs else [*inspect.signature(function).parameters]
        count = inputs or len(known) - ("context" in known)

        def kernel(*arguments: Any, context: Context) -> None:
            extra = {"context": context} if "context" in known else {}
            with np.errstate(all="ignore"):  # infinities and NaN are valid results
                results = function(*map(wide, arguments[:count]), **extra)
                outputs = list(arguments[count:])
                store(outputs, results if isinstance(results, tuple) else [results])

        library.operator(*names, dtypes=ALL, strided=True, in_place=True)(kernel)
        return function

    return register


def register(table: dict[str, Function], inputs: int | None = None) -> None:
    """Register each function of a table under its ATen name."""
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
    """Convert floating point to float64; return integers unchanged."""
    return double(x) if x.dtype.kind == "f" else x


def like(number: Any, x: Array) -> Array:
    """Convert a scalar to the dtype of x; integers wrap around as in C."""
    return np.asarray(number).astype(x.dtype)
