"""Tensors of operators with several shapes that repeat along a dimension, with stride 0."""

from __future__ import annotations

from collections.abc import Iterator

from isthmus.opset.derivation.calls import Change, Scope, change_tensors, given_names
from isthmus.opset.derivation.layouts import expanded
from isthmus.opset.sampling import Array, Case

_BASES = 3
_READ = (
    "index",
    "indices",
    "target",
    "positions",
    "offsets",
    "rows",
    "rng",
)  # integers that name places to read
_STORED = ("src", "source", "values")  # at indices


def expansions(scope: Scope) -> Iterator[Case]:
    """Derive cases whose floating-point inputs and masks have stride 0: the last dimension, and the one before it.

    The dimensions alternate between the tensors of a call. Indices to read from repeat as well; those to write to
    keep their values, which may have to differ unless the operator adds to what is there.
    """
    if not scope.operator.strided or not scope.maker.is_float:
        return
    # Those of the most optional tensors, first.
    bases = sorted(scope.bases(), key=lambda case: -len(given_names(case)))
    bases = bases if scope.pairs else bases[:_BASES]
    for base, back in scope.shared(iter([(base, back) for base in bases for back in (0, 1)])):
        arguments = change_tensors(base.arguments, _repeated(scope, back))
        yield scope.case(arguments, f"expanded{back}", kind="broadcast")


def _repeated(scope: Scope, back: int) -> Change:
    written = {a.name for a in scope.maker.schema.arguments if a.written}
    names = {a.name for a in scope.maker.schema.arguments}
    adds = scope.operator.tolerance[scope.maker.dtype].accumulate > 0 and "accumulate" not in names
    read = _READ if adds or (not written and names.isdisjoint(_STORED)) else ()
    kinds = (scope.maker.dtype, "bool")

    def change(name: str, i: int, array: Array) -> Array:
        if (array.dtype not in kinds and name not in read) or name in written or not array.shape:
            return array
        return expanded(array.view, -1 - (i + back) % len(array.shape))

    return change
