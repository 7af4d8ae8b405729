"""Number arguments that a narrower type rounds: float32 for float64, half precision, float64 for integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from isthmus.opset.derivation.calls import Arguments, Change, Scope, arrays, change_tensors
from isthmus.opset.derivation.values import beyond_float, marked, only_moves, plain
from isthmus.opset.sampling import Array, Case, place

_INEXACT = 1 - 2.0**-26  # a factor after which float32 rounds a number
_TERMS = ("other", "scalar", "scalars")  # that PyTorch does not round to half precision
_CLOSE = (1.0000051, 1.0000149)  # equal to six digits, but not in float32
_SHORT = (0, 1, -1, 2)  # numbers for which kernels have shortcuts
_BEYOND_HALF = 2.0**17
_SMALL = 2.0**-10  # a factor of the tensors, so that their products with such numbers do not overflow


def numbers(scope: Scope) -> Iterator[Case]:
    """Derive cases whose numbers lose digits, or overflow, in a type narrower than the operator computes in."""
    cases = [case for case in scope.own if plain(case) and any(_numbers(scope, case))]
    if not cases or scope.operator.paired:
        return
    base = max(
        cases,
        key=lambda case: (sum(map(bool, _numbers(scope, case))), sum(1 for _ in arrays(case.arguments))),
    )
    given, dtype = base.arguments, scope.maker.dtype
    yield from _plain_numbers(scope, base)
    yield from _close_numbers(scope, base)
    if dtype == "float64":
        inexact = _map_arguments(scope, given, lambda x: x * _INEXACT)
        yield scope.case(_met(given | inexact, inexact), "inexact-numbers", kind="special")
    elif dtype == "float16" and not only_moves(scope) and _map_arguments(scope, given, abs, ("Scalar",)):
        large = _map_arguments(scope, given, lambda x: x * _BEYOND_HALF, ("Scalar",))
        yield scope.case(change_tensors(given, _scaled(dtype)) | large, "beyond-half-numbers", kind="special")
    elif dtype in ("int32", "int64"):
        wide = change_tensors(given, beyond_float(dtype))
        values = next(array for _, array in arrays(wide) if array.view.size).view.reshape(-1)
        for name in _map_arguments(scope, given, abs, ("Scalar",)):
            for below in (0, 2):  # consecutive odd numbers are rounded up and down
                number = int(values.max()) - below
                one = [number] * len(given[name]) if isinstance(given[name], list) else number
                yield scope.case(wide | {name: one}, f"beyond-float-{name}", kind="special")


def _plain_numbers(scope: Scope, base: Case) -> Iterator[Case]:
    """Derive calls with numbers for which kernels have shortcuts, beside NaN and infinity."""
    if not scope.operator.name.startswith("aten::") or not scope.operator.pointwise:
        return
    found = change_tensors(base.arguments, marked(scope))
    names = [
        a.name
        for a in scope.maker.schema.inputs
        if a.base == "Scalar" and a.name in _map_arguments(scope, found, abs)
    ]
    for name, number in scope.shared(iter([(name, number) for name in names for number in _SHORT])):
        factor = {"alpha": 2} if "alpha" in found and name != "alpha" else {}
        yield scope.case(found | factor | {name: number}, f"{name}-{number}", kind="special")


def _close_numbers(scope: Scope, base: Case) -> Iterator[Case]:
    """Derive two calls whose numbers differ after the sixth digit, to which keys of caches may print them."""
    limit = scope.operator.tolerance[scope.maker.dtype]
    if scope.maker.dtype not in ("float32", "float64") or not scope.operator.pointwise:
        return
    # Their products are rounded; in float64 the reference's are, too.
    factors = scope.maker.dtype == "float32" and (limit.accumulate > 0 or limit.ulp > 1)
    for name in _names(scope, base.arguments, ("Scalar", "float"), factors):
        for close in _CLOSE:
            near = {name: _signed(float(np.float32(close)), base.arguments[name])}
            yield scope.case(base.arguments | near, f"close-numbers-{name}", kind="special")


def _signed(number: float, value: Any) -> Any:
    return (
        [math.copysign(number, x) for x in value] if isinstance(value, list) else math.copysign(number, value)
    )


def _names(scope: Scope, given: Arguments, bases: tuple[str, ...], factors: bool = False) -> Iterator[str]:
    """Yield the arguments that are numbers, or lists of them; not a factor whose product a kernel may round."""
    for a in scope.maker.schema.inputs:
        value = given[a.name]
        values = value if isinstance(value, list) else [value]
        finite = all(isinstance(x, int | float) and np.isfinite(x) for x in values)
        if (
            a.base in bases
            and values
            and finite
            and (factors or a.name != "alpha")
            and (scope.maker.dtype != "float16" or a.name in _TERMS)
        ):
            yield a.name


def _numbers(scope: Scope, case: Case) -> list[float]:
    found: list[float] = []
    for name in _names(scope, case.arguments, ("Scalar", "float")):
        value = case.arguments[name]
        found += value if isinstance(value, list) else [value]
    return found


def _map_arguments(
    scope: Scope,
    given: Arguments,
    function: Callable[[Any], Any],
    bases: tuple[str, ...] = ("Scalar", "float"),
) -> Arguments:
    return {
        name: [function(x) for x in given[name]] if isinstance(given[name], list) else function(given[name])
        for name in _names(scope, given, bases)
    }


def _met(arguments: Arguments, found: Arguments) -> Arguments:
    """Insert the numbers that are arguments into the tensors, so that comparisons meet them."""
    alone = [x for x in found.values() if not isinstance(x, list) and x]

    def change(_: str, i: int, array: Array) -> Array:
        if array.dtype != "float64" or array.view.size <= len(alone):
            return array
        values = np.array(array.view)
        values.reshape(-1)[: len(alone)] = alone
        return place(values)

    return change_tensors(arguments, change)


def _scaled(dtype: str) -> Change:
    def change(_: str, i: int, array: Array) -> Array:
        return (
            place((array.view.astype(np.float64) * _SMALL).astype(array.storage.dtype))
            if array.dtype == dtype
            else array
        )

    return change
