"""Registration of NumPy functions as kernels, and their dtype helpers.

Half precision arrives as float32, and results are rounded once, when they are stored. Sums and transcendental
functions use float64: NumPy sums pairwise only along the fastest axis, and its float32 functions err by several ulp.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from isthmus import opset
from isthmus.opset.dtypes import ALL
from isthmus.opset.errors import ONE_DTYPE
from isthmus.opset.indices import INDICES, Index, indexed_size
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


def operator(
    *names: str, inputs: int | None = None, numbers: str = "", cast: bool = False
) -> Callable[[Function], Function]:
    """Register a function of the inputs, and optionally the context, that returns the results.

    Args:
        names: overloads.
        inputs: number of inputs, for functions without a signature such as ufuncs.
        numbers: how ATen's CPU kernels convert numbers: ``rounded`` to the dtype of the operation, or ``wide``, to
            float32 with half precision; "" passes them as they are.
        cast: convert integers to float64 first if the result is floating point, as reductions with a dtype do.
    """

    def register(function: Function) -> Function:
        known = [] if inputs else [*inspect.signature(function).parameters]
        count = inputs or len(known) - ("context" in known)

        def kernel(*arguments: Any, context: Context) -> None:
            extra = {"context": context} if "context" in known else {}
            with np.errstate(all="ignore"):  # infinities and NaN are valid results
                outputs = list(arguments[count:])
                given = (
                    arguments[:count] if not numbers else _converted(arguments[:count], outputs[0], numbers)
                )
                if cast and outputs[0].dtype.kind in "fV" and given[0].dtype.kind in "iub":
                    given = (double(given[0]), *given[1:])
                results = function(*map(wide, given), **extra)
                store(outputs, results if isinstance(results, tuple) else [results])

        _add(names, kernel)
        return function

    return register


def _add(names: Sequence[str], kernel: Function, more: tuple[str, ...] = ()) -> None:
    """Register a kernel, behind a check of arguments for which no result is right; ``more`` dtypes than ALL."""
    for name in names:
        checks = name in INDICES or name in ONE_DTYPE
        checked = _checking(name, kernel) if checks else kernel
        library.operator(name, dtypes=(*ALL, *more), strided=True, in_place=True)(checked)


def _checking(name: str, kernel: Function) -> Function:
    """Return a kernel that raises IndexError for an index out of range, and TypeError for products of two dtypes.

    NumPy counts negative indices from the end, and promotes.
    """
    schema = opset.schema_of(name)
    names = [each.name for each in (*schema.inputs, *schema.outputs)]

    @functools.wraps(kernel)
    def checked(*arguments: Any, **context: Context) -> None:
        given = dict(zip(names, arguments, strict=True))
        if name in INDICES:
            _check_indices(INDICES[name], given)
        elif given[ONE_DTYPE[name]].dtype != given["self"].dtype:
            other = ONE_DTYPE[name]
            raise TypeError(f"{other} is {given[other].dtype}, expected {given['self'].dtype} as self")
        kernel(*arguments, **context)

    return checked


def _check_indices(rule: Index, given: dict[str, Any]) -> None:
    value = given[rule.argument]
    for i, index in enumerate(value if isinstance(value, list) else [value]):
        if index is None or index.dtype.kind != "i" or not index.size:
            continue
        size = indexed_size(rule, i, given)
        wrong = (index < (-size if rule.negative else 0)) | (index >= size)
        if rule.ignored:
            wrong &= index != given[rule.ignored]
        if wrong.any():
            raise IndexError(
                f"{rule.argument}: index {index[wrong].flat[0]} is out of range for a size of {size}"
            )


def _converted(arguments: Sequence[Any], out: Array, numbers: str) -> list[Any]:
    """The arguments with numbers in the dtype of the operation; the tensor of a comparison is converted, too."""
    tensor = next(each for each in arguments if isinstance(each, np.ndarray))
    dtype = out.dtype
    if dtype.kind == "b":
        given = [each for each in arguments if isinstance(each, int | float)]
        dtype = _common(tensor.dtype, given)
        arguments = [each.astype(dtype) if each is tensor else each for each in arguments]
    if numbers == "wide" and dtype.kind in "fV" and dtype.itemsize == 2:
        dtype = np.dtype(np.float32)
    return [like(each, dtype).item() if isinstance(each, int | float) else each for each in arguments]


def _common(dtype: np.dtype[Any], numbers: Sequence[int | float]) -> np.dtype[Any]:
    """The dtype in which a tensor is compared with numbers: its own unless a number is of a higher kind."""
    if dtype.kind in "fV":
        return dtype
    if any(isinstance(each, float) for each in numbers):
        return np.dtype(np.float32)
    return (
        np.dtype(np.int64)
        if dtype.kind == "b" and any(not isinstance(each, bool) for each in numbers)
        else dtype
    )


def register(
    table: dict[str, Function], inputs: int | None = None, numbers: str = "", cast: bool = False
) -> None:
    """Register each function of a table under its ATen name; see :func:`operator`."""
    for name, function in table.items():
        operator(f"aten::{name}", inputs=inputs, numbers=numbers, cast=cast)(function)


def writes(*names: str, more: tuple[str, ...] = ()) -> Callable[[Function], Function]:
    """Register a function that writes to its arguments or outputs itself; ``more`` dtypes than those of ATen's."""

    def register(function: Function) -> Function:
        quiet = np.errstate(all="ignore")(function)
        _add(names, quiet, more)
        return function

    return register


def double(x: Any) -> Array:
    """Return the array as float64."""
    return np.asarray(x, np.float64)


def exact(x: Array) -> Array:
    """Convert floating point to float64; return integers unchanged."""
    return double(x) if x.dtype.kind == "f" else x


def number(value: Any, x: Array) -> Array:
    """Convert a scalar to float64 if x is floating point, else to the integer dtype of x."""
    return double(value) if x.dtype.kind == "f" else like(value, x)


def like(number: Any, x: Array | np.dtype[Any]) -> Array:
    """Convert a scalar to a dtype, or to that of x; integers wrap around as in C."""
    return np.asarray(number).astype(x.dtype if isinstance(x, np.ndarray) else x)


def fitting(number: Any, x: Array) -> Array:
    """Convert a scalar to the dtype of x as ``c10::checked_convert``: unsigned integers take small negative ones.

    Raises:
        RuntimeError: an integer dtype does not hold the number.
    """
    if x.dtype.kind in "iu":
        limits, value = np.iinfo(x.dtype), np.asarray(number).item()
        lowest = -limits.max if x.dtype.kind == "u" and isinstance(value, int) else limits.min
        if not lowest <= value <= limits.max:
            raise RuntimeError(f"value {value} cannot be converted to type {x.dtype} without overflow")
    return like(number, x)
