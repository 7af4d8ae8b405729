"""Mistakes in the elements that remain after whole vectors."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from tools.mutation.kernel import Array, Call, Invocation, Target, flat, mapped
from tools.mutation.mutant import (
    Mutation,
    Wrong,
    each,
    floats_as,
    has_many,
    has_rows,
    leaves,
    leaves_along,
    mutate_simply,
    reads,
    reads_floats,
    written_as,
)

_WIDTHS = (4, 8, 16)


def _tail_shifted(width: int) -> Wrong:
    """Compute the last vector again from ``n - width``, and store it where the remainder begins."""

    def change(new: Array, _: Array) -> Array:
        result = new.reshape(-1)
        rest = result.size % width
        if rest and result.size > width:
            result[-rest:] = result[result.size - width :][:rest].copy()
        return result

    return written_as(change)


def narrow(x: Array) -> Array:
    """Round float32 and float64 to bfloat16."""
    return x.astype(ml_dtypes.bfloat16).astype(x.dtype) if x.dtype.itemsize > 2 else x


def _tail_by_another_formula(width: int) -> Wrong:
    """Compute the remainder after whole vectors in lower precision."""

    def wrong(right: Call, call: Invocation) -> None:
        outputs = mapped(lambda out: np.zeros(out.shape, out.dtype), call.outputs)
        rough = replace(call.with_inputs(lambda _, x: floats_as(narrow)(x)), outputs=outputs)
        right(rough)
        right(call)
        for x, other in zip(flat(call.outputs), flat(rough.outputs), strict=True):
            values = np.array(x, order="C").reshape(-1)
            start = values.size - values.size % width
            values[start:] = other.reshape(-1)[start:]
            x[...] = values.reshape(x.shape)

    return wrong


def _reads_past(width: int) -> Wrong:
    """Read past the end of each row into the next: rows are rounded up to whole vectors."""

    def change(new: Array, _: Array) -> Array:
        if new.ndim < 2 or not new.shape[-1] % width or new.shape[-1] < width:
            return new
        rows = new.reshape(-1, new.shape[-1])
        rest = new.shape[-1] % width
        rows[:-1, -rest:] = rows[1:, :rest].copy()
        return rows

    return written_as(change)


def _pure(target: Target) -> bool:
    """Whether it can be computed twice: floating-point results, and no tensor is written in place."""
    return (
        reads_floats(target)
        and target.float_results
        and not target.moves
        and not any(a.written for a in target.schema.inputs)
    )


MUTATIONS = (
    Mutation("tail not written", each(_WIDTHS, lambda width: leaves(lambda n: n - n % width))),
    Mutation(
        "tail of rows not written",
        each(_WIDTHS, lambda width: leaves_along(-1, lambda n: n - n % width), has_many),
    ),
    Mutation("tail shifted", each(_WIDTHS, _tail_shifted, has_many)),
    Mutation("shorter than a vector", each(_WIDTHS, lambda width: leaves(lambda n: 0 if n < width else n))),
    Mutation("last element not written", mutate_simply(leaves(lambda n: n - 1))),
    Mutation("tail by another formula", each(_WIDTHS, _tail_by_another_formula, _pure)),
    Mutation(
        "tail of the next row", each(_WIDTHS, _reads_past, lambda target: has_rows(target) and reads(target))
    ),
)
