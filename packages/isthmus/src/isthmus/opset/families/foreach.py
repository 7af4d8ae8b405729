"""Operators over lists of tensors, as optimizers use them."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.families._common import denormals, several
from isthmus.opset.operator import (
    CHOSEN,
    EXACT,
    LIBRARY,
    ONLY_NAN,
    POWER,
    POWERS,
    ROOT,
    ROUNDED,
    SCALED,
    Operator,
    Tolerance,
    accumulated,
    op,
    transcendental,
)
from isthmus.opset.sampling import Array, Case, Maker

# Parameters of a small model: a matrix, a vector, a scalar, an empty one, an odd one.
_SIZES: tuple[tuple[int, ...], ...] = ((7, 13), (35,), (), (0, 5), (3, 1, 17))
_SHAPES = "[t.shape for t in self]"
_DTYPES = "[t.dtype for t in self]"


def _list(m: Maker, low: float = -2.7, high: float = 3.1) -> list[Array]:
    return [m.tensor(*size, low=low, high=high) for size in _SIZES]


def _lists(*ranges: tuple[float, float], scalars: Any = ((),), by_item: Any = None) -> Any:
    """Calls with one list for each range, then the other arguments."""

    def samples(m: Maker) -> Iterator[Case]:
        for scalar in scalars:
            if not m.is_float and any(isinstance(item, float) for item in scalar):
                continue
            extra = tuple(by_item(m) if item == "item" else item for item in scalar)
            yield m.case("contiguous", *[_list(m, low, high) for low, high in ranges], *extra, model="llama")

    return samples


def _item_scalars(m: Maker) -> list[Any]:
    return [0.875, -1.75, 1.0, 2.0, 0.00390625] if m.is_float else [2, -1, 3, 1, 5]


def _item_tensor(m: Maker) -> Array:
    return m.tensor(low=0.3, high=1.7)


def _each(function: Any) -> Any:
    """Magnitude of a list operator, item by item: ``function(i, **arguments)``."""

    def magnitude(**arguments: Any) -> Any:
        return ([function(i, arguments) for i in range(len(arguments["self"]))],)

    return magnitude


def _at(value: Any, i: int) -> Any:
    return abs(value[i] if isinstance(value, list) else value)


def _sum_size(i: int, a: dict[str, Any]) -> Any:
    other = a["other"] if "other" in a else a["scalars"] if "scalars" in a else a["scalar"]
    alpha = a.get("alpha", 1)
    return a["self"][i] * 0 + (0 if alpha == 1 else _at(other, i) * abs(alpha))


def _three_size(divide: bool) -> Any:
    def size(i: int, a: dict[str, Any]) -> Any:
        value = a["value"] if "value" in a else a["scalars"]
        first, second = _at(a["tensor1"], i), _at(a["tensor2"], i)
        factor = value[i] if getattr(value, "ndim", 0) or isinstance(value, list) else value
        return _at(a["self"], i) + abs(factor) * (first / second if divide else first * second)

    return _each(size)


def _lerp_size(i: int, a: dict[str, Any]) -> Any:
    weight = a["weight"] if "weight" in a else a["weights"]
    return _at(a["self"], i) + (_at(a["tensors1"], i) + _at(a["self"], i)) * _at(weight, i)


def _norm_size(i: int, a: dict[str, Any]) -> Any:
    return a["self"][i].norm(a["ord"]) if a["self"][i].numel() else a["self"][i].abs().sum()


def _norm(self: list[Any], ord: Any, dtype: Any = None) -> list[Any]:
    import torch

    return [torch.linalg.vector_norm(each, ord) for each in self]


ANY, APART = (-2.7, 3.1), (0.3, 3.1)
_SUM = Tolerance(0.501, 1, "correctly rounded; with an alpha, its product is rounded before")
_FUSED = Tolerance(0.51, 4, "up to four roundings before the last")
_WRAPPING = (-1, 200, -200, 40_000, -70_000, 3_000_000_000, -(1 << 40) - 5)  # in narrower integers
_NUMBERS = ((2,), (0.375,), (-1.5,), (0,), (1,), (-1000,))
_FRACTIONS = ((2,), (0.1,), (-1.5,), (1,), (-1000,))

_WEIGHTS = ((0.1,), (0.9,), (0,), (1,), (0.5,), (-0.3,), (1.7,))


def _unchanged(zero: Any) -> Any:
    """Denormal numbers beside zeros, which leave them."""

    def samples(m: Maker) -> Iterator[Case]:
        if m.is_float:
            yield m.case("special", [denormals(m, 9), denormals(m, 2, 3)], zero(m))

    return samples


def _no_numbers(m: Maker) -> list[float]:
    return [0.0, 0.0]


def _no_tensor(m: Maker) -> Array:
    return m.values(0.0)


def _binary(name: str, limit: Tolerance, second: tuple[float, float] = ANY) -> Iterator[Operator]:
    add = name in ("add", "sub")
    size = _each(_sum_size) if add else None
    kinds = dt.FLOATS if name == "div" else (*dt.FLOATS, "int64")
    rule = (kinds, _SHAPES, _DTYPES)
    yield op(
        f"_foreach_{name}.Scalar",
        *rule,
        _lists(ANY, scalars=_NUMBERS if add else _FRACTIONS),
        limit if add else SCALED,
        magnitude=size,
    )
    scaled: Any = ((), (2,), (-2,), (0,), (-0.125,)) if add else ((),)  # alpha
    yield op(f"_foreach_{name}.List", *rule, _lists(ANY, second, scalars=scaled), limit, magnitude=size)
    yield op(f"_foreach_{name}.ScalarList", *rule, several(
        _lists(ANY, scalars=(("item",),), by_item=_item_scalars), *([_unchanged(_no_numbers)] * add)), limit,
             magnitude=size)  # fmt: skip
    if name != "sub":
        yield op(f"_foreach_{name}.Tensor", *rule, several(_lists(
            ANY, scalars=tuple(("item", *alpha) for alpha in scaled), by_item=_item_tensor),
            *([_unchanged(_no_tensor)] * add)), limit,
                 magnitude=size)  # fmt: skip


def _far_terms(divides: bool, several: bool) -> Any:
    """Terms of which a part overflows in float32 if they are combined in another order."""
    first, second, value = (2e-38, 1e-39, 0.5) if divides else (1e25, 1e25, 1e-30)

    def samples(m: Maker) -> Iterator[Case]:
        if m.dtype in ("float32", "bfloat16"):
            tensors = [[m.values([x, 1.0])] for x in (1.0, first, second)]
            yield m.case("special", *tensors, [value] if several else value)

    return samples


def _ternary(name: str) -> Iterator[Operator]:
    divides = name == "addcdiv"
    last = (0.3, 3.1) if divides else ANY
    rule, size = (dt.FLOATS, _SHAPES, _DTYPES), _three_size(divides)
    yield op(
        f"_foreach_{name}.Scalar",
        *rule,
        several(_lists(ANY, ANY, last, scalars=((1,), (-0.01,), (2.5,))), _far_terms(divides, False)),
        _FUSED,
        magnitude=size,
        denormal=False,
    )
    by_item = several(
        _lists(ANY, ANY, last, scalars=(("item",),), by_item=_item_scalars), _far_terms(divides, True)
    )
    yield op(f"_foreach_{name}.ScalarList", *rule, by_item, _FUSED, magnitude=size, denormal=False)


def _unary(name: str, low: float, high: float, limit: Any) -> Operator:
    return op(f"_foreach_{name}", dt.FLOATS, _SHAPES, _DTYPES, _lists((low, high)), limit)


def _norms(m: Maker) -> Iterator[Case]:
    for order in (2, 1, float("inf"), 0, 3, 0.5, -1, float("-inf")):
        tensors = [each for each in _list(m) if 0 not in each.shape]
        yield m.case("contiguous", tensors, order, model="llama")
    for order in (2, 1):
        yield m.case("zero-size", [m.tensor(7), m.tensor(0, 5), m.tensor()], order)
    yield m.case("contiguous", [m.values([0.0, -3.0, 4.0]), m.values([0.0, 0.0]), m.values(-2.0)], 2)
    yield m.case("contiguous", [m.values([0.0, -3.0, -0.0]), m.values([0.0, 0.0]), m.values(-2.0)], 0)
    # Squares whose sum is beyond float16.
    yield m.case("contiguous", [m.tensor(35, low=100, high=300), m.tensor(3, 4, low=100, high=300)], 2)
    for order in (1, float("inf")):
        yield m.case("special", [denormals(m, 9), denormals(m, 3, 1), denormals(m)], order)
    for order in (float("inf"), float("-inf")):  # the extremum is the last element; NaN is not dropped
        down = np.linspace(2.5, 0.25, 70_001 if m.dtype == "float32" else 67)
        ends = [m.values(down), m.values(3.0 - down), m.values([-3.0, math.nan, 4.0, -0.5])]
        yield m.case("large" if m.dtype == "float32" else "special", ends, order)


def _powers(m: Maker) -> Iterator[Case]:
    yield from _lists(APART, scalars=((2,), (0.5,), (-1.7,), (-0.5,)))(m)
    for exponent in (0, 1, 2, 3, -1, -2):  # also of negative numbers
        yield m.case("contiguous", _list(m), exponent)


def _copies(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", _list(m), _list(m), model="llama")
    for source in dt.ALL:
        if source == m.dtype:
            continue
        kind = dt.DTYPES[source].kind
        wraps = kind in ("int", "uint") and not m.is_float  # floats that overflow integers are left out
        low = 0 if m.kind_of_dtype == "uint" else -9.6
        plain = m.tensor(7, 9, dtype=source, low=low, high=25)
        yield m.case("contiguous", [m.tensor(7, 9), m.tensor(9 - 2 * wraps)],
                     [plain, m.values(_WRAPPING if wraps else plain.view[0], source)])  # fmt: skip
        if {source, m.dtype} == {"int64", "float64"}:  # exact in both, not in float32
            yield m.case("contiguous", [m.tensor(3)], [m.values([2**24 + 1, 1 - 2**53, 2**40 + 3], source)])


def _zeros(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", _list(m), model="llama")


OPERATORS: list[Operator] = [
    *_binary("add", _SUM), *_binary("sub", _SUM), *_binary("mul", ROUNDED), *_binary("div", ROUNDED, APART),
    *_ternary("addcmul"), *_ternary("addcdiv"),
    op("_foreach_lerp.Scalar", dt.FLOATS, _SHAPES, _DTYPES, _lists(ANY, ANY, scalars=_WEIGHTS), _FUSED,
       magnitude=_each(_lerp_size), special=ONLY_NAN),
    op("_foreach_lerp.List", dt.FLOATS, _SHAPES, _DTYPES, _lists(ANY, ANY, (-0.7, 1.9)), _FUSED,
       magnitude=_each(_lerp_size), special=ONLY_NAN),
    op("_foreach_maximum.List", dt.FLOATS, _SHAPES, _DTYPES, _lists(ANY, ANY), CHOSEN),
    op("_foreach_minimum.List", dt.FLOATS, _SHAPES, _DTYPES, _lists(ANY, ANY), CHOSEN),
    op("_foreach_pow.Scalar", dt.FLOATS, _SHAPES, _DTYPES, _powers,
       transcendental(16, POWER), extreme=POWERS),
    _unary("abs", *ANY, EXACT), _unary("neg", *ANY, EXACT), _unary("sign", *ANY, EXACT),
    _unary("sqrt", 0, 50, ROOT), _unary("reciprocal", -3.1, -0.3, ROUNDED),
    _unary("rsqrt", *APART, transcendental(2)), _unary("exp", -5, 5, transcendental(3, LIBRARY)),
    op("_foreach_norm.Scalar", dt.FLOATS, "[() for t in self]", _DTYPES, _norms,
       accumulated(32, "pairwise or blocked sums, then a root"), reference=_norm, magnitude=_each(_norm_size),
       empty=False, denormal=False),
    op("_foreach_copy_", dt.NUMBERS, "None", "None", _copies, ROUNDED),
    op("_foreach_zero_", dt.FLOATS, "None", "None", _zeros),
]  # fmt: skip
