"""Cases of operators over lists of tensors, as optimizers use them: one call covers every rank, size and layout."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from isthmus.opset.derivation.calls import Arguments, Scope, arrays, given_names, resize
from isthmus.opset.derivation.layouts import ALL, PACKED, expanded, laid
from isthmus.opset.derivation.shapes import RANKS, SIZES, as_imprecise
from isthmus.opset.sampling import Array, Case

Shape = tuple[int, ...]
_SHAPES: tuple[Shape, ...] = (
    *RANKS,
    *[(n,) if i % 3 else (n, 3) for i, n in enumerate(SIZES)],
    (),
    (3, 1025),
)
_EMPTY: tuple[Shape, ...] = ((0,), (2, 0, 3))
_LARGE: tuple[Shape, ...] = ((135_001, 2), (2, 4133))  # more than 2^16 rows and 2^18 elements
_COUNT = 131  # more tensors than fit the arguments of one kernel
_MORE = 160  # tensors, of which every fifth is empty
_TURNS = 3  # layouts of each shape


def is_list(scope: Scope) -> bool:
    """Whether the operator works on lists of tensors, each of any shape."""
    inputs = scope.maker.schema.inputs
    several = bool(inputs) and inputs[0].is_list and inputs[0].is_tensor
    return several and all(a.name != "dim" for a in inputs)


def lists(scope: Scope) -> Iterator[Case]:
    """Derive calls whose tensors have every shape, each in several layouts."""
    bases = settings(scope)
    shapes = [*_SHAPES, *(_EMPTY if scope.operator.empty else ())]
    if as_imprecise(scope):
        shapes = [shape for shape in shapes if math.prod(shape) < 1000]
    outputs = ("unaligned", "contiguous", "step", "reversed") if scope.operator.strided else ("unaligned",)
    rows = [(bases[i % len(bases)], i) for i in range(_TURNS)]
    if scope.pairs:
        rows = [(base, i) for base in bases for i in range(len(ALL))]
    for base, i in scope.shared(iter(rows)):
        output = outputs[i % len(outputs)]
        yield scope.case(_reshape_lists(scope, base, shapes, i), f"every-shape-{i}-out-{output}", output)
    alike: list[Shape] = [(8, 8)] * _COUNT  # shapes that fit the other tensors of the list
    for base in scope.shared(iter(bases[:2])):
        yield scope.case(
            _reshape_lists(scope, base, alike, 0, dense=2),
            "alike-out-step",
            "step" if scope.operator.strided else "unaligned",
        )
        some: list[Shape] = [(0,) if i % 5 == 1 else (i % 7 + 1,) for i in range(_MORE)]
        yield scope.case(_reshape_lists(scope, base, some, 0), "some-empty")
    if scope.leading:
        many = [*_LARGE, *[shapes[i % len(shapes)] for i in range(_COUNT - len(_LARGE))]]
        yield scope.case(_reshape_lists(scope, bases[0], many, 0), "many", "unaligned", kind="large")
        for base in bases[1:_TURNS]:
            yield scope.case(
                _reshape_lists(scope, base, [*_LARGE, (5,)], 0), "large", "unaligned", kind="large"
            )


def settings(scope: Scope) -> list[Case]:
    """Return an own case of several tensors for each setting of other arguments, those with most tensors first."""
    found: dict[str, Case] = {}
    for case in scope.own:
        skips = any(name == "found_inf" and array.view.any() for name, array in arrays(case.arguments))
        if case.kind in ("contiguous", "special") and len(_first(scope, case)) > 1 and not skips:
            single = {k: v for k, v in case.arguments.items() if not isinstance(v, list | Array)}
            dtypes = {(k, array.dtype) for k, array in arrays(case.arguments)}
            found.setdefault(repr((single, sorted(dtypes))), case)
    return sorted(found.values(), key=lambda case: -len(given_names(case)))


def single_tensor_calls(scope: Scope) -> list[Case]:
    """Return the calls of :func:`settings` with one tensor alone in their lists."""
    return [replace(case, arguments=_first_alone(scope, case)) for case in settings(scope)]


def _first_alone(scope: Scope, case: Case) -> Arguments:
    tensors = _first(scope, case)
    i = next(i for i, array in enumerate(tensors) if array.shape and array.view.size)
    return {
        name: value[i : i + 1] if isinstance(value, list) and len(value) == len(tensors) else value
        for name, value in case.arguments.items()
    }


def _first(scope: Scope, case: Case) -> list[Array]:
    found: list[Array] = case.arguments[scope.maker.schema.inputs[0].name]
    return found


def _reshape_lists(scope: Scope, base: Case, shapes: list[Shape], turn: int, dense: int = 0) -> Arguments:
    """Give the tensors of all lists these shapes; one-element lists of numbers repeat.

    Each is in another layout, but the first ``dense`` tensors of each list are contiguous.
    """
    old = [array.shape for array in _first(scope, base)]
    written = {a.name for a in scope.maker.schema.arguments if a.written}
    arguments: Arguments = {}
    for place, (name, value) in enumerate(base.arguments.items()):
        if isinstance(value, Array):
            arguments[name] = laid(value.view, "unaligned")
        elif not isinstance(value, list) or not value:
            arguments[name] = value
        elif not isinstance(value[0], Array) or [array.shape for array in value] != old:
            arguments[name] = [value[i % len(value)] for i in range(len(shapes))]
        else:
            pool = np.concatenate([array.view.reshape(-1) for array in value])
            fixed = name in written or not scope.operator.strided
            arguments[name] = [
                _tensor(
                    np.roll(pool, -7 * i),
                    shape,
                    1 if i < dense else i + turn * 3 + place * 5,
                    scope.operator.strided,
                    not fixed,
                )
                for i, shape in enumerate(shapes)
            ]
    return arguments


def _tensor(pool: Any, shape: Shape, turn: int, strided: bool, may_repeat: bool) -> Array:
    values = resize(pool, shape)
    names: list[str] = [*(ALL if strided else PACKED), *(["expanded"] if may_repeat else [])]
    name = names[turn % len(names)]
    if name == "expanded":
        return expanded(values, turn % len(shape)) if shape and values.size else laid(values, "odd")
    return laid(values, name)
