"""Cases derived from an operator's own cases and its rules.

The dimensions of difficulty are ranks, sizes, dimensions, layouts, values, dtypes of indices and optional arguments.
Every value of each is covered; with ``pairs``, every pair of values. Values come from the operator's own cases, so
that they are in its domain. A derived call that PyTorch rejects is not a case (:mod:`isthmus.conformance.generate`).
"""

from __future__ import annotations

from collections.abc import Iterator

from isthmus.opset.derivation.arguments import (
    derive_repeated,
    derive_shared,
    layouts,
    mixed_dtypes,
    mixed_outputs,
    narrow_indices,
    options,
    outputs,
)
from isthmus.opset.derivation.axes import ranks
from isthmus.opset.derivation.calls import Scope, change_tensors
from isthmus.opset.derivation.combinations import derive_combined
from isthmus.opset.derivation.expansions import expansions
from isthmus.opset.derivation.layouts import laid
from isthmus.opset.derivation.lists import is_list, lists, single_tensor_calls
from isthmus.opset.derivation.numbers import numbers
from isthmus.opset.derivation.shapes import is_free, same_shaped, shapes
from isthmus.opset.derivation.sizes import sizes
from isthmus.opset.derivation.values import derive_planted, derive_scaled, of_any_shape
from isthmus.opset.operator import Operator
from isthmus.opset.sampling import Case, Maker


def cases_of(operator: Operator, dtype: str, seed: int = 0, pairs: bool = False) -> list[Case]:
    """Return the test cases of an operator for one dtype; deterministic for a seed.

    With ``pairs``, derived cases cover every pair of values of what they vary, not every value only.
    """
    maker = Maker(operator.name, dtype, seed)
    own = list(operator.samples(maker))
    if operator.law:
        return [*own, *derive_unaligned(operator, maker, own)]
    return [*own, *derive_cases(operator, maker, own, pairs)]


def derive_unaligned(operator: Operator, maker: Maker, own: list[Case]) -> Iterator[Case]:
    """Derive random draws at addresses that break the alignment of vectors, from the last case of each kind."""
    scope = Scope(operator, maker, own, False)
    for case in {case.kind: case for case in own if case.kind in ("contiguous", "large")}.values():
        arguments = change_tensors(case.arguments, lambda _, i, array: laid(array.view, "unaligned"))
        yield scope.case(arguments, "unaligned", "unaligned", case.kind)
    yield from mixed_outputs(scope)


def derive_cases(operator: Operator, maker: Maker, own: list[Case], pairs: bool = False) -> Iterator[Case]:
    """Derive cases for the dtype of the maker.

    Args:
        operator: the operator.
        maker: the maker of its own cases.
        own: these cases.
        pairs: cover every pair of values.
    """
    scope = Scope(operator, maker, own, pairs)
    yield from derive_planted(scope)
    yield from derive_scaled(scope)
    yield from numbers(scope)
    if is_list(scope):
        yield from lists(scope)
        if scope.operator.shape != "None":
            yield from of_any_shape(scope, single_tensor_calls(scope))
    elif is_free(scope):
        yield from shapes(scope)
        yield from of_any_shape(scope, same_shaped(scope))
    else:
        yield from layouts(scope)
        yield from ranks(scope)
        yield from sizes(scope)
        yield from expansions(scope)
    yield from options(scope)
    yield from outputs(scope)
    yield from mixed_outputs(scope)
    yield from mixed_dtypes(scope)
    yield from narrow_indices(scope)
    yield from derive_repeated(scope)
    yield from derive_shared(scope)
    yield from derive_combined(scope)
