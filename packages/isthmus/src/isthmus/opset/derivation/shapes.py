"""Ranks, sizes, dimensions and layouts of operators whose tensors may have any one shape."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.derivation.calls import LARGE, Arguments, Scope, arrays, change_tensors, resize
from isthmus.opset.derivation.covering import covering_rows
from isthmus.opset.derivation.layouts import ALL, PACKED, expanded, laid
from isthmus.opset.sampling import Array, Case, Values

Shape = tuple[int, ...]

_FREE = re.compile(
    r"like\(\w+\)|broadcast\(.*\)|\(?reduced\(self.*|.* else reduced\(self.*|\(\)|None|\(self\.shape, self\.shape\)"
    r"|\(at\(self, dim, k\).*|\(bins,\)|.*if reduction else like\(self\)"
)
RANKS: tuple[Shape, ...] = (
    (2, 3, 5), (3, 4, 1, 5), (2, 3, 4, 1, 3), (2, 1, 3, 2, 1, 3), (5, 7), (2, 2, 3, 1, 2, 1, 2), (1, 7),
    (2, 1, 2, 3, 1, 2, 1, 2),
)  # fmt: skip
SIZES = (1, 3, 31, 32, 33, 63, 65, 127, 128, 129, 257, 1025)  # around widths of vectors and tiles
WIDTHS = (
    256,
    512,
    768,
    1024,
    2048,
    5120,
)  # of models: multiples of tiles, for which kernels have paths of their own
# Whole vectors and tiles.
_WHOLE: tuple[Shape, ...] = ((2,), (4,), (8,), (16,), (4, 16), (32, 64), (64, 8), (2, 4, 32))
# More than 2^18 elements, 2^16 rows and columns, and more than 8192 elements in a row.
_LARGE: tuple[Shape, ...] = ((270_001,), (65_601, 2), (9, 8209), (2, 65_601), (1031, 3, 5))
_SPARSE = 2053  # a prime
LONGEST = (1 << 20) + 4099  # elements of a row: more than 1,024 sums of 1,024 elements
# Shapes for every layout: kernels for matrices take what lies in order of columns, or with gaps, for something else.
_MATRICES: tuple[Shape, ...] = ((8, 8), (6, 7))
_ROW_OR_COLUMN: tuple[Shape, ...] = ((1, 6), (6, 1))  # in those that differ
# Dense in another order, beside dimensions of size 1, whose strides tell nothing of it.
_UNITS: tuple[Shape, ...] = ((3, 1, 5), (4, 5, 1), (1, 4, 5), (2, 3, 1, 4))
_PERMUTED = ("reversed", "rotated", "channels_last", "heads")
_OF_ONE = ("odd", "reversed", "step", "rotated", "rows", "swapped")
_OUTPUTS = ("contiguous", "unaligned", "step", "reversed", "rows", "swapped")
_DENSE = ("contiguous", "channels_last", "heads")
_MODES = 6  # most settings of the other arguments that large cases cover
# Large shapes: a long dimension inside and outside of others, and more than 2^16 rows and columns of results.
_LARGE_ALONG = (
    ((70_001,), 0),
    ((8209, 9), 0),
    ((5, 8209), 1),
    ((65_601, 2), 1),
    ((2, 65_601), 0),
    ((1031, 3, 5), 1),
    ((8209, 1), 1),
)
_LARGE_REDUCED = (
    ((70_001,), 0), ((8209, 9), 0), ((5, 8209), 1), ((65_601, 2, 2), -1), ((2, 2, 65_601), 1), ((8209, 1), 1),
)  # fmt: skip
_BROADCASTS = (
    "same",
    "row",
    "column",
    "same",
    "scalar",
    "mutual",
    "expanded",
    "ones",
    "channel",
    "first row",
    "first column",
    "last column",
    "outer",
    "batch",
    "first batch",
)
# Layouts that fit along either dimension.
_SQUARE = ("expanded", "expanded other", "row", "first row", "column", "first column")
_ALIKE = ("same", "same", "expanded")  # layouts for operators that do not broadcast
_FLAGS = ("keepdim", "descending", "largest")
_LISTS: tuple[list[int], ...] = (
    [0, 1],
    [-1, 0],
    [0, 2],
    [-3, -1],
    [2, 1, 0],
    [],
    [-2],
    [0, 1, 2, 3],
    [1, -1],
    [0, -2, -1],
    [-1, -2],
    [-1, -3],
    [1, 3],  # groups of dimensions around one that is kept
    [0, 1, 3, 4],
    [0, 1, 3, 4, 5],
)


class Place(NamedTuple):
    """A shape and the value of the argument ``dim``."""

    shape: Shape
    dim: Any = None


def is_free(scope: Scope) -> bool:
    """Whether all tensors of the operator have one shape, which may be any."""
    schema = scope.maker.schema
    lists = [
        a
        for a in schema.arguments
        if a.is_list and not a.is_tensor and a.name not in ("dim", "dims", "shifts")
    ]
    bases = [case for case in scope.bases() if case.kind != "broadcast"]
    same = all(len({array.shape for _, array in arrays(case.arguments)}) == 1 for case in bases)
    return not lists and bool(_FREE.fullmatch(scope.operator.shape)) and bool(bases) and same


def shapes(scope: Scope) -> Iterator[Case]:
    """Derive cases of every rank, dimension, size and layout."""
    bases = same_shaped(scope)
    dim = next((a for a in scope.maker.schema.arguments if a.name in ("dim", "dims")), None)
    varied = _BROADCASTS if scope.operator.broadcasts else _ALIKE
    broadcasts = ("same", "same", "expanded") if scope.operator.paired else varied
    axes = {name: (False, True) for name in _FLAGS if name in bases[0].arguments}
    common: dict[str, Any] = {"base": bases, "output": _OUTPUTS, **axes}
    ranks = [*_places_by_rank(dim.is_list)] if dim else [Place(shape) for shape in RANKS]
    decided = _decided_places(scope, dim)
    # One number of all elements: one of them decides it, or none, so that it shows which memory was read.
    values = {"values": ("last", "but last", "none")} if decided and scope.operator.shape == "()" else {}
    groups = (
        {"layout": list(ALL), "place": ranks, "broadcast": broadcasts, **values, **common},
        {"place": [*_places_by_size(dim)], "layout": [*PACKED, "step"], **common},
        {"place": [*_empty_places(dim)], "layout": ["contiguous"], **common},
    )
    for dimensions in groups:
        for i, row in enumerate(scope.shared(covering_rows(dimensions, scope.pairs))):
            # Dimensions beyond a kernel's most must not be ones that could be collapsed.
            layout = ("rotated", "reversed")[i % 2] if len(row["place"].shape) > 5 else row["layout"]
            yield from _make_case(scope, {**row, "layout": layout}, dim)
    if "row" in broadcasts:
        for row in scope.shared(_single_elements(bases), 8):
            yield from _make_case(scope, row, dim)
    units = _unit_rows(bases, axes, dim) if scope.operator.strided else ()
    for row in scope.shared(itertools.chain(_alike_rows(bases, broadcasts, axes, dim), units), 8):
        yield from _make_case(scope, row, dim)
    takes_matrices = any(len(array.shape) > 1 for base in bases for _, array in arrays(base.arguments))
    for row in scope.shared(_matrices(bases, axes, dim, "row" in broadcasts), 8) if takes_matrices else ():
        yield from _make_case(scope, row, dim)
    if dim is None:
        yield from _make_case(
            scope,
            {"base": bases[0], "place": Place((11,)), "layout": "contiguous", "broadcast": "expanded"},
            dim,
        )
    exact = {"values": "sparse"} if as_imprecise(scope) else {}  # sums of these are exact
    reduces = "reduced" in scope.operator.shape
    places, modes = [*_large_places(dim, reduces)], _modes(bases)[: _MODES if dim else len(_LARGE)]
    large: dict[str, Any] = {"place": places, "layout": ["unaligned", "contiguous"], "base": modes, **axes}
    large |= {"keepdim": [False]} if "keepdim" in axes else {}
    ends = {"place": decided, "values": ("last", "last", "but last", "but last"), "layout": ["unaligned"]}
    rows = [*covering_rows(large), *(covering_rows({**ends, "base": modes}) if decided else ())]
    if reduces or scope.operator.shape == "()":  # a sum that grows, in which each addition rounds
        rows.append({**rows[0], "values": "positive"})
    if scope.leading:
        longest = {**rows[0], "place": Place((LONGEST,), _places_along(dim, 0))}
        sums = (reduces or scope.operator.shape == "()") and scope.operator.tolerance[
            scope.maker.dtype
        ].accumulate
        rows.append(longest | {"values": "sparse"} if sums else longest)  # one element counts among few
    if scope.operator.broadcasts and not scope.operator.paired and dim is None:
        rows += [{**rows[0], "place": Place((9, 8209)), "broadcast": mode} for mode in ("row", "first row")]
    for row in scope.shared(iter(rows), 8):
        if math.prod(row["place"].shape) <= scope.operator.longest:
            yield from _make_case(scope, row | exact, dim)


def _matrices(
    bases: list[Case], axes: dict[str, Any], dim: Any, broadcasts: bool
) -> Iterator[dict[str, Any]]:
    """Yield matrices in each layout, with and without a dimension, and outputs in others."""
    dims: tuple[Any, ...] = (None,) if dim is None else (0, 1, -1, -2)
    if dim is not None and dim.is_list:
        dims = ([0], [1, 0], [-1])
    elif dim is not None and dim.optional:
        dims = (None, 0, None, 1)
    layouts = [*itertools.product(_MATRICES, ALL), *itertools.product(_ROW_OR_COLUMN, _OF_ONE)]
    for i, (shape, layout) in enumerate(layouts):
        row = {"place": Place(shape, dims[i % len(dims)]), "layout": layout, "base": bases[i % len(bases)]}
        row |= {name: values[i // 2 % 2] for name, values in axes.items()}
        yield row | {"output": _OUTPUTS[-1 - i % len(_OUTPUTS)]}
    square = {"place": Place(_MATRICES[0], dims[0]), "layout": "contiguous", "base": bases[0]}
    fits = _SQUARE if broadcasts else _SQUARE[:2]
    yield from (square | {"broadcast": mode} for mode in fits)


def _alike_rows(
    bases: list[Case], modes: tuple[str, ...], axes: dict[str, Any], dim: Any
) -> Iterator[dict[str, Any]]:
    """Yield rows whose tensors and output have one dense layout, as kernels that walk through memory expect them."""
    for i, (mode, layout) in enumerate(itertools.product(dict.fromkeys(modes), _DENSE)):
        row = {"place": Place((2, 3, 4, 5), _places_along(dim, i % 4)), "layout": layout, "broadcast": mode}
        row |= {name: values[i // 2 % 2] for name, values in axes.items()}
        yield {**row, "base": bases[i % len(bases)], "output": layout, "alike": "all"}


def _unit_rows(bases: list[Case], axes: dict[str, Any], dim: Any) -> Iterator[dict[str, Any]]:
    """Yield rows of shapes with a dimension of size 1, in which all tensors, or all but the first, are permuted."""
    for i, (layout, shape) in enumerate(itertools.product(_PERMUTED, _UNITS)):
        row: dict[str, Any] = {
            "base": bases[i % len(bases)],
            "layout": layout,
            "output": (layout, "contiguous")[i % 2],
        }
        row |= {name: values[i // 2 % 2] for name, values in axes.items()}
        row |= {"place": Place(shape, _places_along(dim, i % len(shape)))}
        yield row | {"alike": ("all", "others")[i // len(_UNITS) % 2]}


def _single_elements(bases: list[Case]) -> Iterator[dict[str, Any]]:
    """Yield rows with one full tensor, the others of one element; and rows and columns wider than a tile."""
    count = sum(1 for _ in arrays(bases[0].arguments))
    row = {"base": bases[0], "layout": "contiguous"}
    for shape in ((5, 7), (2, 3, 4, 5)):
        yield from ({**row, "place": Place(shape), "broadcast": f"only {i}"} for i in range(count))
    for mode in ("column", "first column", "row", "first row"):
        yield {**row, "place": Place((5, 131)), "broadcast": mode}


def as_imprecise(scope: Scope) -> bool:
    """Whether the reference rounds as much as the operator, or frameworks add in blocks of halves: long sums."""
    dtype = scope.maker.dtype
    return dtype in ("float64", *dt.HALVES) and scope.operator.tolerance[dtype].accumulate > 0


def same_shaped(scope: Scope) -> list[Case]:
    """Return the own cases whose tensors all have one shape with elements."""
    return [
        case for case in scope.bases() if len({array.shape for _, array in arrays(case.arguments)}) == 1
    ]  # fmt: skip


def _modes(bases: list[Case]) -> list[Case]:
    """Return one case for each setting of the arguments that are neither dimensions nor flags."""
    found: dict[str, Case] = {}
    for base in bases:
        given = {k: v for k, v in base.arguments.items() if k not in (*_FLAGS, "dim", "dims", "k", "shifts")}
        found.setdefault(repr([v for v in given.values() if not isinstance(v, Array)]), base)
    return list(found.values())


def _decided_places(scope: Scope, dim: Any) -> list[Place]:
    """Return places of long reductions that one element decides; none if the operator adds without extremes."""
    operator = scope.operator
    chooses = operator.tolerance[scope.maker.dtype].accumulate == 0 or operator.extreme
    if not chooses or operator.distinct or not (operator.shape == "()" or (dim and dim.name == "dim")):
        return []
    flat = Place((527, 521), [] if dim and dim.is_list else None)
    long = Place((270_001,), _places_along(dim, 0))
    return [long, flat if dim is None or dim.optional or dim.is_list else long]


def _places_by_rank(several: bool) -> Iterator[Place]:
    """Every dimension of ranks to 4, from both ends; the first, middle and last of higher ranks."""
    by_rank: list[Shape] = [(7,), (5, 3), (3, 4, 5), (3, 4, 1, 5), *[s for s in RANKS if len(s) > 4]]
    if several:
        for i, dims in enumerate(_LISTS):
            least = max([3, *[d + 1 for d in dims], *[-d for d in dims]])
            shape = next(s for s in (*by_rank[2 + i % 4 :], by_rank[-1]) if len(s) >= least)
            yield Place(shape, dims)
    for shape in by_rank:
        rank = len(shape)
        every = range(-rank, rank) if rank <= 4 else (0, -rank + 1, rank // 2, -2, rank - 1)
        yield from (Place(shape, [d] if several else d) for d in every)


def _places_along(dim: Any, axis: int) -> Any:
    return None if dim is None else [axis] if dim.is_list else axis


def _places_by_size(dim: Any) -> Iterator[Place]:
    for i, n in enumerate(SIZES):
        if dim is None:
            yield Place((n,) if i % 3 else (3, n))
        else:
            shape, axis = (((n,), 0), ((3, n), 1), ((n, 3), 0))[i % 3]
            yield Place(shape, _places_along(dim, axis))
    yield from (Place((3, n), _places_along(dim, 1)) for n in WIDTHS)
    for i, whole in enumerate(_WHOLE):
        yield Place(whole, _places_along(dim, i % len(whole)))


def _empty_places(dim: Any) -> Iterator[Place]:
    yield Place((), [] if dim is not None and dim.is_list else None if dim is None else 0)
    for shape, axis in (((2, 0, 3), 1), ((0,), 0), ((2, 0, 3), 0)):
        yield Place(shape, _places_along(dim, axis))


def _large_places(dim: Any, reduces: bool) -> Iterator[Place]:
    if dim is None:
        yield from map(Place, _LARGE)
        return
    rows = _LARGE_REDUCED if reduces else _LARGE_ALONG
    yield from (Place(shape, _places_along(dim, axis)) for shape, axis in rows)
    if dim.is_list:
        yield Place((67, 3, 71), [0, -1])
    if dim.optional and dim.name == "dim":
        yield Place((263, 257))


def _make_case(scope: Scope, row: dict[str, Any], dim: Any) -> Iterator[Case]:
    """Make the case of a row; none if the operator does not support it."""
    base, place, layout = row["base"], row["place"], row["layout"]
    if scope.operator.distinct and math.prod(place.shape) > _count_distinct(scope):
        return
    mode = row.get("broadcast", "same")
    last = sum(1 for _ in arrays(base.arguments)) - 1

    def change(name: str, i: int, array: Array) -> Array:
        shape = _narrowed(place.shape, mode, i, last)
        values = scope.maker.distinct(*shape).view if scope.operator.distinct else resize(array.view, shape)
        if "values" in row and array.dtype == scope.maker.dtype:
            values = _of_kind(row["values"], values, i, array.view, scope.operator.extreme)
        if mode.startswith("only ") and array.dtype == "bool" and values.size == 1:
            values = np.full(shape, len(place.shape) == 2)  # either operand is chosen for a shape
        written = next(a for a in scope.maker.schema.arguments if a.name == name).written
        turn = i * (not scope.operator.paired) + (mode == "expanded other")
        axis = _repeated_axis(shape, turn, place.dim if scope.operator.distinct else None)
        if mode.startswith("expanded") and axis is not None and not written:
            return expanded(values, axis)
        if "alike" in row:
            apart = row["alike"] == "others" and i == 0 < last
            return laid(values, layout if scope.operator.strided and not apart else "contiguous")
        packed = not scope.operator.strided or math.prod(place.shape) > LARGE
        names = list(PACKED if packed else ALL)
        first = names.index(layout) if layout in names else 0
        return laid(values, names[(first + 5 * i) % len(names)])

    arguments: Arguments = change_tensors(base.arguments, change)
    arguments |= {name: row[name] for name in _FLAGS if name in row}
    if dim is not None:
        arguments[dim.name] = place.dim
        if "shifts" in arguments:
            arguments["shifts"] = [3, -2, 5, 1][: max(1, len(place.dim))]
        if "k" in arguments and place.shape:
            arguments["k"] = min(arguments["k"], place.shape[place.dim])
    text = "x".join(map(str, place.shape)) or "scalar"
    words = [f"rank{len(place.shape)}", text, layout]
    words += [f"dim{place.dim}".replace(" ", "")] if dim is not None else []
    words += [mode] if mode != "same" else []
    words += [row["values"]] if "values" in row else []
    words += ["alike"] if "alike" in row else []
    output = row.get("output", "contiguous") if scope.operator.strided else "unaligned"
    words += [f"out-{output}"] if output != "contiguous" else []
    yield scope.case(arguments, "-".join(words).replace(" ", "-"), output)


def _narrowed(shape: Shape, mode: str, i: int, last: int) -> Shape:
    """The shape of the tensor at position i in a mode of :data:`_BROADCASTS`, or of "only" one full tensor."""
    if mode.startswith("first "):
        mode, i = mode.removeprefix("first "), 1 - i
    if mode == "last column":
        mode, i = "column", i - last + 1
    if mode.startswith("only "):
        mode, i = "ones", int(i != int(mode.removeprefix("only ")))
    if mode == "mutual":
        return tuple(1 if j % 2 == i % 2 and len(shape) > 1 else n for j, n in enumerate(shape))
    if i <= 0:
        return shape
    return {
        "row": shape[-1:],
        "column": (*shape[:-1], 1) if shape else (),
        "channel": (*shape[1:2], *[1] * (len(shape) - 2)),
        "scalar": (),
        "ones": (1,) * len(shape),
        "outer": shape[1:],
        "batch": (1, *shape[1:]),
    }.get(mode, shape)


def _repeated_axis(shape: Shape, i: int, dim: int | None) -> int | None:
    """Return the axis along which the tensor at position i has stride 0; not dim. None if there is no other."""
    rank = len(shape)
    axes = [axis for axis, n in enumerate(shape) if n > 1 and (dim is None or axis != dim % rank)]
    return axes[(i - 1 if i or rank % 3 else rank // 2) % len(axes)] if axes else None


def _of_kind(
    kind: str, values: Values, i: int, all_values: Values, extreme: tuple[float, ...] | None
) -> Values:
    """Make values positive, or mostly 0 and few 1, or the lowest: "last" is the highest, or all but the last are."""
    if kind == "positive":
        return np.abs(values)
    if kind == "sparse":
        chosen = (np.arange(values.size) + 7 * i) % _SPARSE == _SPARSE - 1
        chosen[-1:] = True  # a sum that loses its last element
        return chosen.reshape(values.shape).astype(values.dtype)
    low, high = all_values.min(), all_values.max()
    if extreme:
        high = np.asarray(max(extreme)).astype(values.dtype)
    made = np.full(values.shape, high if kind == "but last" else low, values.dtype)
    made.reshape(-1)[-1] = high if kind == "last" else low
    return made


def _count_distinct(scope: Scope) -> int:
    """Number of elements that can be distinct in the dtype under test."""
    bits = 8 * dt.DTYPES[scope.maker.dtype].numpy.itemsize
    return {8: 100, 16: 30_000}.get(bits, 1 << 24)
