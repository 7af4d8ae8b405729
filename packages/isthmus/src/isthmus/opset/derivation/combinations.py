"""Calls that combine at random what other cases vary one by one: arguments, sizes, values and layouts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset.derivation.arguments import DIMENSIONS, FIXED
from isthmus.opset.derivation.calls import Arguments, Change, Scope, change_tensors, in_layouts, rank_of
from isthmus.opset.derivation.layouts import ALL, STRIDED, laid
from isthmus.opset.derivation.lists import is_list
from isthmus.opset.derivation.sizes import elements_with, has_indices, replace_sizes, results_of, sizes_of
from isthmus.opset.derivation.values import only_moves
from isthmus.opset.sampling import Array, Case

_CASES = 24
_SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 17, 24, 33, 40, 67)
_MOST = 20_000  # elements of a call
# Numbers that select a method, or name it: PyTorch may accept others without a meaning.
_KEPT = (
    "reduction", "mode", "compute_mode", "interpolation_mode", "padding_mode", "normalization", "groups", "group",
    "k", "N", "C", "HxW", "transposed", "ignore_index", "padding_idx", "num_weights", "dtype", "last_dim_size",
)  # fmt: skip
_SIGNED = ("pad", "diagonal", "shifts")


def derive_combined(scope: Scope) -> Iterator[Case]:
    """Derive random calls of an operator that takes integers or flags."""
    bases = [] if scope.operator.paired or is_list(scope) else scope.bases()
    if not bases or not any(_varies(scope, base.arguments) for base in bases):
        return
    for _ in scope.shared(iter(range(_CASES))):
        rng = scope.maker.rng
        base = bases[rng.integers(len(bases))]
        arguments = change_tensors(_resize(scope, base), _valued(scope, rng))
        arguments |= _numbers(scope, arguments, rank_of(base), rng)
        if sum(map(math.prod, results_of(scope, arguments))) > 4 * _MOST:
            continue
        layout = str(rng.choice([*ALL]))
        place = (
            in_layouts(layout)
            if scope.operator.strided
            else lambda _, i, array: laid(array.view, "unaligned")
        )
        arguments = change_tensors(arguments, place)
        output = str(rng.choice([*STRIDED])) if scope.operator.strided else "unaligned"
        yield scope.case(arguments, f"combined-out-{output}", output)


def _varies(scope: Scope, given: Arguments) -> list[str]:
    """Return the arguments that are flags, or integers that are not sizes.

    PyTorch checks neither the integers of extensions, nor whether those of a gradient fit its shape.
    """
    names = []
    unchecked = not scope.operator.name.startswith("aten::") or any(name.startswith("grad") for name in given)
    for a in scope.maker.schema.inputs:
        values = given[a.name] if isinstance(given[a.name], list) else [given[a.name]]
        kept = a.name in (*_KEPT, *FIXED) or (a.is_list and a.name in DIMENSIONS)
        integral = a.base == "int" and not unchecked
        if values and not kept and (a.base == "bool" or integral) and all(isinstance(x, int) for x in values):
            names.append(a.name)
    return names


def _numbers(scope: Scope, given: Arguments, rank: int, rng: np.random.Generator) -> Arguments:
    """Change about half of these arguments."""

    def other(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [other(name, each) for each in value]
        if isinstance(value, bool):
            return bool(rng.random() < 0.5)
        if name == "dim":
            return int(rng.integers(-rank, rank)) if rank else value
        low, high = (-3, 4) if name in _SIGNED else (-1 if value > 1 else 0, 3)
        return value + int(rng.integers(low, high))

    return {name: other(name, given[name]) for name in _varies(scope, given) if rng.random() < 0.5}


def _resize(scope: Scope, base: Case) -> Arguments:
    """Replace sizes; indices stay within bounds if sizes only grow."""
    rng, grows = scope.maker.rng, has_indices(scope, base.arguments)
    least = 4 if "dilation" in base.arguments else 0  # windows of padding alone have no maximum
    sizes = {
        n: int(rng.choice([m for m in (n, *_SIZES) if m >= max(least, n * grows)])) for n in sizes_of(base)
    }
    fits = scope.operator.resizable and elements_with(base.arguments, sizes) <= _MOST
    return replace_sizes(base.arguments, sizes) if fits else base.arguments


def _valued(scope: Scope, rng: np.random.Generator) -> Change:
    """Round the numbers of a third of the calls to integers, so that rows, sums and elements are equal."""
    dtype, rounds = (
        scope.maker.dtype,
        rng.random() < 1 / 3 and not scope.operator.distinct and only_moves(scope),
    )

    def change(_: str, i: int, array: Array) -> Array:
        if not rounds or not scope.maker.is_float or array.dtype != dtype:
            return array
        return laid(np.rint(array.view.astype(np.float64)).astype(array.storage.dtype), "contiguous")

    return change
