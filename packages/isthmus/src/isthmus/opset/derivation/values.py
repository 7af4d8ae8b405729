"""Values that expose errors: NaN, infinities, signed zeros, denormals, extremes, limits of integers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.derivation.calls import Arguments, Change, Scope, arrays, change_tensors, elements, resize
from isthmus.opset.sampling import Array, Case, place

_MOVED = 4  # more cases of operators that move data
_SETTINGS_MET = 8  # most settings of the numbers of an operator that computes
_MOST = 8192  # maximum elements of a base case
_BEYOND_FLOAT = {"int32": (1 << 24) + 1, "int64": (1 << 53) + 1}  # not representable in float32 and float64
_POSITIONS = ("index", "indices", "target", "shifts", "offsets", "repeats")  # integers that are positions
# Tensors that the forward operator saves.
_SAVED = ("mean", "rstd", "save_mean", "save_invstd", "out", "logsumexp", "lse")
# Tensors of a gradient scaler, always float32; and numbers of steps.
SETTINGS = ("grad_scale", "found_inf", "inv_scale", "state_steps", "steps")
_IN_TILES = (0, 17, 33, 66)  # positions in such a row: the ends, and second tiles
_LONG = 4133  # elements of a row of many blocks
# Positions in a row of 67: ends of vectors, and the ends of the row.
_PLACES = (0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 66)


def derive_planted(scope: Scope) -> Iterator[Case]:
    """Derive cases with NaN, infinity and integers beyond the floats' precision among ordinary values."""
    base = _base(scope, only_moves(scope))
    if base is None:
        return
    operator, dtype = scope.operator, scope.maker.dtype
    shapes = [array.shape for _, array in arrays(base.arguments)]
    if operator.strided and any(shapes):
        yield scope.case(change_tensors(base.arguments, _sliced), "sliced", kind="strided")
    if operator.broadcasts and len(shapes) > 1 and all(len(shape) > 1 for shape in shapes):
        yield scope.case(change_tensors(base.arguments, _narrowed), "narrowed", kind="broadcast")
    if scope.maker.is_float:
        # Indices select a few of the elements that are moved: several cases together, special ones too.
        if only_moves(scope):
            bases = [case for case in scope.own if plain(case) and _indexed(case)][:_MOVED]
        else:  # each setting of the other arguments
            settings = [case for case in scope.bases() if plain(case) and _is_clear(case)]
            bases = [*scope.shared(iter(settings[:_SETTINGS_MET]))]
        for value in operator.special:
            label = "nan" if math.isnan(value) else "inf"
            for each in [base, *[each for each in bases if each is not base]]:
                change = _planted(value, dtype, only_moves(scope), operator.strided)
                yield scope.case(change_tensors(each.arguments, change), label, kind="special")
            factors = {name: 0 for name in ("alpha", "value") if base.arguments.get(name) is not None}
            if operator.pointwise and factors:
                change = _planted(value, dtype, False, operator.strided)
                yield scope.case(
                    change_tensors(base.arguments, change) | factors, f"{label}-times-0", kind="special"
                )
        yield from _derive_nan_rows(scope, base)
        several = [base] if len(shapes) > 1 and not operator.paired else []
        for each in scope.shared(iter(several)):
            yield scope.case(
                change_tensors(each.arguments, _first_is_one(dtype)), "first-is-1", kind="special"
            )
    if dtype in _BEYOND_FLOAT:
        yield from _derive_beyond_float(scope, change_tensors(base.arguments, beyond_float(dtype)))


def _derive_nan_rows(scope: Scope, base: Case) -> Iterator[Case]:
    """Derive calls in which one row of a tensor begins with NaN, of operators that read several elements."""
    if scope.operator.pointwise or not any(map(math.isnan, scope.operator.special)):
        return
    for name, value in base.arguments.items():
        if isinstance(value, Array) and _has_rows(name, value, scope.maker.dtype):
            one = {name: _nan_in_one_row(value)}
            yield scope.case({**base.arguments, **one}, f"nan-in-row-{name}", kind="special")


def _has_rows(name: str, array: Array, dtype: str) -> bool:
    return _is_data(name, array, dtype) and len(array.shape) > 1 and array.shape[-2] > 2


def _nan_in_one_row(array: Array) -> Array:
    """Make the first element of a row in the middle NaN, which no other row may read."""
    values = np.array(array.view)
    values[..., values.shape[-2] // 2, 0] = math.nan
    return place(values)


def _derive_beyond_float(scope: Scope, enlarged: Arguments) -> Iterator[Case]:
    """Derive calls of integers beyond the floats' precision; of each tensor that is broadcast, one alone."""
    yield scope.case(enlarged, "beyond-float", kind="special")
    names = [name for name, _ in arrays(enlarged)] if scope.operator.broadcasts else []
    for name in names if len(names) > 1 else ():
        alone = {name: place(enlarged[name].view.flat[0])}
        yield scope.case(enlarged | alone, f"beyond-float-{name}-alone", kind="special")
    if "alpha" in enlarged:
        yield scope.case(enlarged | {"alpha": 3}, "beyond-float-alpha", kind="special")


def derive_scaled(scope: Scope) -> Iterator[Case]:
    """Derive cases with one argument at a time so large that float16 or cubes overflow, or denormal.

    Pointwise operators and those that move data have extremes of their own.
    """
    operator, dtype = scope.operator, scope.maker.dtype
    base = _base(scope)
    if base is None or not scope.maker.is_float or only_moves(scope) or operator.pointwise or operator.paired:
        return
    info = ml_dtypes.finfo(dt.DTYPES[dtype].numpy)
    tensors = arrays(base.arguments)
    names = (name for name, array in tensors if _is_data(name, array, dtype) and name not in _SAVED)
    found = [*dict.fromkeys(names)]
    # Values so small that sums of hundreds are denormal, where digits are left; products would be rounded.
    adds = operator.shape == "()" or "reduced" in operator.shape
    part = 1024 if adds and len(found) == 1 and dtype not in dt.HALVES else 4
    factors = {"large": 2.0 ** (8 if dtype == "float16" else 50)}
    factors |= {"denormal": float(info.tiny) / part} if operator.denormal else {}
    rows: list[tuple[tuple[str, ...], str]] = [((name,), label) for name in found for label in factors]
    # A denormal term is lost beside others that are not.
    if operator.denormal and "beta" in base.arguments:
        rows += [((found[0], name), "denormal") for name in found[1:]]
    for chosen, label in scope.shared(iter(rows)):
        arguments = change_tensors(base.arguments, _multiplied(chosen, dtype, factors[label]))
        yield scope.case(arguments, "-".join([label, *chosen]), kind="special")


def _is_clear(case: Case) -> bool:
    """Whether NaN has one meaning: it may be counted, lost in a maximum, skipped, or multiplied by 0."""
    given = case.arguments
    numbers = [given.get(name) for name in ("alpha", "beta", "value", "p")]
    skips = any(given.get("padding") or ()) or given.get("causal") or given.get("transposed")
    return not skips and all(x != 0 and math.isfinite(x) for x in numbers if isinstance(x, int | float))


def only_moves(scope: Scope) -> bool:
    """Whether the operator computes nothing, so that its results are bit-equal."""
    tolerance = scope.operator.tolerance[scope.maker.dtype]
    return tolerance.ulp == tolerance.accumulate == 0


def _is_data(name: str, array: Array, dtype: str) -> bool:
    return array.dtype == dtype and name not in SETTINGS


def _multiplied(arguments: tuple[str, ...], dtype: str, factor: float) -> Change:
    """Multiply the tensors of the dtype of some arguments by a power of two."""

    def change(name: str, _: int, array: Array) -> Array:
        if name not in arguments or array.dtype != dtype:
            return array
        return place((array.view.astype(np.float64) * factor).astype(array.storage.dtype))

    return change


def of_any_shape(scope: Scope, bases: list[Case]) -> Iterator[Case]:
    """Derive cases of operators whose tensors may have any one shape: special rows, extremes, denormals, limits."""
    operator, dtype = scope.operator, scope.maker.dtype
    along = next((a for a in scope.maker.schema.arguments if a.name in ("dim", "dims")), None)
    if operator.pointwise and scope.maker.is_float and not operator.denormal:
        yield scope.case(change_tensors(bases[0].arguments, _denormal_sum(scope)), "denormal", kind="special")
    for i, (label, found) in enumerate(_sets(scope, operator.pointwise)):
        # Pointwise operators meet all pairs of the values, or every number; others get them as rows and as columns.
        alone = operator.pointwise and _tensors(bases[0]) == 1
        parts = 3 if alone and scope.maker.is_float else 1
        several = scope.shared(iter(bases if alone else [bases[i % len(bases)]]), parts)
        for base in several if scope.leading or scope.maker.is_float else [bases[i % len(bases)]]:
            for flags in _settings(base.arguments, along.is_list) if along else ({"axis": -1},):
                axis = flags["axis"]
                filled = change_tensors(base.arguments, _fill(base, found, dtype, operator.pointwise))
                arguments = filled | {k: v for k, v in flags.items() if k != "axis"}
                if along:
                    arguments[along.name] = axis
                if "shifts" in arguments:
                    arguments["shifts"] = [3]
                words = [label, *[f"{name}-{value}".lower() for name, value in flags.items()]]
                yield scope.case(arguments, "-".join(words), kind="special")


def _denormal_sum(scope: Scope) -> Change:
    """Make the first tensor denormal and the second 0, so that valid formulas give the first, whatever they round."""
    dtype = scope.maker.dtype
    tiny = float(ml_dtypes.finfo(dt.DTYPES[dtype].numpy).tiny)

    def change(_: str, i: int, array: Array) -> Array:
        if i > 1 or array.dtype != dtype:
            return array
        values = np.resize([0.75 * tiny, -0.5 * tiny, 0.25 * tiny], array.shape) * (i == 0)
        return place(values.astype(array.storage.dtype))

    return change


def _fill(base: Case, found: np.ndarray[Any, Any], dtype: str, pairs: bool) -> Change:
    """Fill the tensors of a call, but no single number beside tensors, with the values or with all pairs of them.

    Without pairs, each tensor has the values of a row at other places.
    """
    several = any(array.shape for _, array in arrays(base.arguments))
    tensors = [(name, array) for name, array in arrays(base.arguments) if array.shape or not several]
    count = sum(1 for name, array in tensors if _is_data(name, array, dtype))
    grids = (
        np.meshgrid(*[found] * min(count, 2), indexing="ij")
        if pairs
        else [np.roll(found, i, -1) for i in range(count)]
    )
    rest = iter(grids)

    def change(name: str, _: int, array: Array) -> Array:
        if several and not array.shape:
            return array
        grid = next(rest, None) if _is_data(name, array, dtype) else None
        return place(resize(array.view, grids[0].shape) if grid is None else grid)

    return change


def _settings(arguments: Arguments, several: bool) -> Iterator[dict[str, Any]]:
    """Yield the axes of rows, of columns, and of both, with each order of sorting."""
    order = next((name for name in ("descending", "largest") if name in arguments), None)
    for axis in ([-1], [0], [1, 0]) if several else (-1, 0):
        for value in (False, True) if order else (None,):
            yield {"axis": axis, **({order: value} if order else {})}


def _sets(scope: Scope, pointwise: bool) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield (label, values of the dtype under test): 1-D for pointwise operators, else rows."""
    operator, dtype = scope.operator, scope.maker.dtype
    kind = dt.DTYPES[dtype].numpy
    if not pointwise and not operator.distinct and operator.tolerance[dtype].accumulate == 0:
        yield from _decided_rows(kind, any(a.name in ("dim", "dims") for a in scope.maker.schema.arguments))
    if not scope.maker.is_float:
        if scope.maker.kind_of_dtype in ("int", "uint") and operator.limits:
            rows = _limits(kind) if pointwise else _limit_rows(kind)
            one = not pointwise and operator.shape == "()"  # one number of all elements
            yield from (("limits", each) for each in (rows if one else [rows]))
        return
    limit = operator.tolerance[dtype]
    extreme = operator.extreme
    if pointwise:
        if extreme is None:
            found = _of_sums(dtype, operator.denormal) if limit.accumulate else _of_functions(dtype)
            found = np.append(found, -np.array(operator.special).astype(kind))
        else:
            found = _finite(np.array([*extreme, *_near_limits(dtype, operator.denormal)]), kind)
        if extreme != ():
            yield "extremes", np.append(found, np.array(operator.special).astype(kind))
        return
    if extreme:
        lists = [row for x in extreme for row in ([x, x - 1, 0.5, -x, 1.0], [x, x - 1, x - 0.5, x, x - 2])]
        rows = np.array([row for row in lists if _finite(np.array(row), kind).size == len(row)])
        yield "extremes", rows.astype(kind)
    if operator.distinct:
        if extreme is None:
            scales = {
                "far": 2.0 ** (15 if dtype == "float16" else 50),
                "denormal": float(ml_dtypes.finfo(kind).tiny),
            }
            for label, scale in scales.items():
                yield label, (np.linspace(-1, 1, 67)[np.arange(67) * 29 % 67] * scale).astype(kind)[None]
        return
    if limit.accumulate == 0:
        yield from _zero_rows(kind, any(a.name in ("dim", "dims") for a in scope.maker.schema.arguments))
    yield from _special_rows(scope, kind)


def _zero_rows(kind: np.dtype[Any], rows: bool) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield rows of one zero, of either sign, among numbers of one sign: it is the least or the most of them."""
    signed = np.stack([np.full(67, x) for x in (-1.5, 1.5) for _ in range(2)])
    signed[range(4), (40, 0, 66, 17)] = (-0.0, 0.0, -0.0, 0.0)
    yield from (("zero-by-sign", each.astype(kind)) for each in ([signed] if rows else signed))


def _special_rows(scope: Scope, kind: np.dtype[Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield rows of ordinary numbers with NaN and infinities."""
    operator, dtype = scope.operator, scope.maker.dtype
    ordinary = np.linspace(-1.7, 2.3, 67)
    long = operator.longest >= _LONG and dtype in ("float32", "bfloat16")
    if not any(a.name in ("dim", "dims") for a in scope.maker.schema.arguments):
        yield from _alone(operator.special, ordinary, kind)
        for row in _blocks(operator.special) if long else ():
            yield "special-block", row.astype(kind)
        return
    if long and operator.special:
        yield "special-blocks", np.stack([*_blocks(operator.special)]).astype(kind)
    if operator.special:
        yield "special-single", np.array([[each] for each in (*operator.special, 1.7)]).astype(kind)
    if any(map(math.isnan, operator.special)):
        yield "nan-by-place", _missing(ordinary, math.inf in operator.special).astype(kind)
    if math.inf in operator.special:
        yield "infinite-rows", _infinite(ordinary).astype(kind)


def _decided_rows(kind: np.dtype[Any], rows: bool) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield tensors of ones and a zero, and of zeros and a one, which decides the result, at each place."""
    one = np.zeros((len(_PLACES), 67))
    one[range(len(_PLACES)), _PLACES] = 1
    if rows:
        yield "one-by-place", np.concatenate([one, 1 - one]).astype(kind)
        return
    for i in (_PLACES.index(16), _PLACES.index(32), _PLACES.index(66)):
        yield f"one-at-{_PLACES[i]}", one[i].astype(kind)
        yield f"zero-at-{_PLACES[i]}", np.where(one[i], -0.0, 1).astype(kind)
    for i in (200, 1500):  # in the second of many tiles
        found = np.arange(_LONG) == i
        yield f"one-at-{i}", found.astype(kind)
        yield f"zero-at-{i}", (~found).astype(kind)


def _alone(
    special: tuple[float, ...], ordinary: np.ndarray[Any, Any], kind: np.dtype[Any]
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield tensors with one special value, with a row of -inf, and of nothing else."""
    for value in special:
        for i in _IN_TILES:
            row = ordinary.copy()
            row[i] = value
            yield f"{value}-at-{i}", row.astype(kind)
    if math.inf in special:
        yield "infinite-row", np.stack([ordinary, np.full(67, -math.inf)]).astype(kind)
        yield "all-infinite", np.full(67, -math.inf).astype(kind)


def _blocks(special: tuple[float, ...]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield long rows with a special value in one of many blocks, or with -inf in all of the first ones."""
    ordinary = np.resize(np.linspace(-1.7, 2.3, 67), _LONG)
    for value in special:
        for i in (300, 1500, _LONG - 1):
            yield np.where(np.arange(_LONG) == i, value, ordinary)
    if math.inf in special:
        for first in (70, 1100, 4100, _LONG):
            yield np.where(np.arange(_LONG) < first, -math.inf, ordinary)


def _missing(ordinary: np.ndarray[Any, Any], infinite: bool) -> np.ndarray[Any, Any]:
    rows = np.stack([ordinary] * len(_PLACES))
    rows[range(len(_PLACES)), _PLACES] = math.nan
    rows[1::2, 40] = math.nan
    if infinite:
        rows[0, 1:] = -math.inf
    return rows


def _infinite(ordinary: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    rows = np.stack([ordinary] * 7)
    rows[0], rows[1] = -np.inf, np.inf
    rows[2, 3::2] = -np.inf
    rows[3, 66] = np.inf
    rows[4, :66] = -np.inf
    rows[5, [0, -1]] = -np.inf
    return rows


def _limits(kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    info = np.iinfo(kind)
    half = 1 << (info.bits // 2)
    narrow = [1 << bits for bits in (8, 16, 32)]  # 0 in a narrower type
    numbers = [info.min, info.max, info.min + 1, info.max - 1, 0, 1, 2, half - 1, *narrow]
    numbers += [info.max // 2, info.max // 2 + 1]
    return np.array(sorted({n for n in numbers if n <= info.max} | {info.min, info.max}), kind)


def _near_limits(dtype: str, denormal: bool) -> list[float]:
    """Values at which exp overflows float16, near 0, at which 1 / (1 + exp(-x)) is denormal, and denormal ones."""
    info = ml_dtypes.finfo(dt.DTYPES[dtype].numpy)
    tiny = float(info.tiny)
    return [
        -11.5,
        3e-4,
        -2e-5,
        0.5 - math.log(float(info.max)),
        *([0.75 * tiny, -0.5 * tiny] if denormal else []),
    ]


def _limit_rows(kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Rows of all limits, and of numbers near one of them only."""
    limits, info = _limits(kind), np.iinfo(kind)
    near = np.arange(limits.size).astype(kind)
    return np.stack([limits, np.roll(limits, 5), info.min + near, info.max - near])


def _of_functions(dtype: str) -> np.ndarray[Any, Any]:
    """Values at which functions overflow, underflow, become denormal, or round: halves, quotients, large numbers."""
    info = ml_dtypes.finfo(dt.DTYPES[dtype].numpy)
    largest, tiny, least = float(info.max), float(info.tiny), float(info.smallest_subnormal)
    top, bottom, floor = math.log(largest), math.log(tiny), math.log(least)
    numbers = [
        top * 0.998, math.log2(largest) * 0.998, top * 1.004, bottom * 0.99, (bottom + floor) / 2,
        math.sqrt(largest) * 0.9, math.sqrt(tiny) * 0.7, tiny * 0.5, least, least * 5, tiny, largest, largest / 3,
        0.5, 1.5, 2.5, -0.0, 1e-3, 1.0, 0.1,
        2.0**21 + 1.5, 2.0**22 + 3, 2.0**23 - 0.5, 2.0**51 + 1.5,
        0.5 - float(info.eps) / 4, 1 / float(info.eps) + 1, math.pi / 2, 70_000.5, 256.0, 3e-4, 2e-5, 3e-7,
    ]  # fmt: skip
    signed = sorted({*numbers, *[-n for n in numbers]})
    with np.errstate(over="ignore"):
        return np.array([*signed, -0.0]).astype(dt.DTYPES[dtype].numpy)


def _indexed(case: Case) -> bool:
    return any(array.dtype == "int64" for _, array in arrays(case.arguments))


def _base(scope: Scope, largest: bool = False) -> Case | None:
    """Return the plain own case with the most tensors, the first or the largest of them."""
    cases = (case for case in scope.own if plain(case))
    return max(cases, key=lambda case: (_tensors(case), largest and elements(case.arguments)), default=None)


def _finite(numbers: np.ndarray[Any, Any], kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the numbers that are finite in a dtype, in that dtype."""
    with np.errstate(over="ignore"):
        made = numbers.astype(kind)
    return made[np.isfinite(made.astype(np.float64))]


def _of_sums(dtype: str, denormal: bool) -> np.ndarray[Any, Any]:
    """Values beyond float16 whose products of three do not overflow, zeros of both signs, and denormal ones."""
    info = ml_dtypes.finfo(dt.DTYPES[dtype].numpy)
    large = 2.0 ** (int(math.log2(float(info.max))) // 3)
    beyond = 70_000.0 if dtype != "float16" else 0.5 * large
    numbers = [large * 0.75, large, beyond, 1.5, 2.0**-10, 0.0]
    numbers += [float(info.tiny) * 0.75] if denormal else []
    return np.array([*numbers, *[-n for n in numbers]]).astype(dt.DTYPES[dtype].numpy)


def plain(case: Case) -> bool:
    """Whether a case is contiguous, small and not empty."""
    sizes = [math.prod(array.shape) for _, array in arrays(case.arguments)]
    return case.kind == "contiguous" and any(sizes) and max(sizes) <= _MOST


def _tensors(case: Case) -> int:
    return sum(1 for _ in arrays(case.arguments))


def _sliced(_: str, i: int, array: Array) -> Array:
    return place(array.view, "sliced") if array.shape else array


def _narrowed(_: str, i: int, array: Array) -> Array:
    """Alternately reduce the last dimension, and the one before it, to size 1."""
    return place(array.view[..., :1, :] if i % 2 else array.view[..., :1])


def _planted(value: float, dtype: str, everywhere: bool, strided: bool) -> Change:
    """Insert the value (NaN with its sign bit set), -0.0 and 0.0 into every tensor of the dtype.

    Each tensor has them at different positions, the first tensor at its end too; at half of all positions, with
    denormals and the largest number, if elements are moved.
    """
    numbers = [math.copysign(value, -1) if math.isnan(value) else value, -0.0, 0.0]
    if everywhere:
        info = ml_dtypes.finfo(dt.DTYPES[dtype].numpy)
        numbers += [-float(info.smallest_subnormal), float(info.tiny) / 2, float(info.max)]
    count = 0

    def change(name: str, _: int, array: Array) -> Array:
        nonlocal count
        if not _is_data(name, array, dtype) or not array.view.size:
            return array
        found = np.array(array.view)
        flat = found.reshape(-1)
        count += 1
        turn = count % len(numbers) - 1  # each small tensor has another number
        for i, number in reversed([*enumerate(numbers[turn:] + numbers[:turn])]):
            first = 5 * count + 2 * i
            if everywhere:
                flat[first % 12 :: 12] = number
            flat[first % flat.size] = number
        if count == 1:
            flat[-1] = numbers[0]
        return place(found, "sliced" if strided and found.ndim else "contiguous")

    return change


def marked(scope: Scope) -> Change:
    """Put NaN and infinities of both signs at the start of tensors."""
    marks = [*scope.operator.special, *[-x for x in scope.operator.special]]

    def change(_: str, i: int, array: Array) -> Array:
        if not scope.maker.is_float or array.dtype != scope.maker.dtype or array.view.size < len(marks):
            return array
        values = np.array(array.view)
        values.reshape(-1)[: len(marks)] = np.roll(marks, i)
        return place(values)

    return change


def _first_is_one(dtype: str) -> Change:
    """Make the first element of each tensor 1: a kernel that takes it for the only one has a shortcut."""

    def change(name: str, _: int, array: Array) -> Array:
        if not _is_data(name, array, dtype) or name in _SAVED or not array.view.size:
            return array
        values = np.array(array.view)
        values.flat[0] = 1
        return place(values)

    return change


def beyond_float(dtype: str) -> Change:
    """Make integers that float32, or float64, does not represent."""

    def change(name: str, _: int, array: Array) -> Array:
        if name in _POSITIONS or array.dtype != dtype:
            return array
        values = array.view.astype(np.int64)
        least = values.min(initial=0)  # all are beyond, so that a minimum is
        return place(((values - least) * 2 + _BEYOND_FLOAT[dtype]).astype(dt.DTYPES[dtype].numpy))

    return change
