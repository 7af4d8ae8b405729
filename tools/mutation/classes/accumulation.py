"""Sums are formed with too few bits or too few terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from isthmus.conformance.judge import FORMATS, ulp_of
from isthmus.opset import dtypes as dt
from tools.mutation.classes.tail import narrow
from tools.mutation.kernel import Array, Call, Invocation, Target, flat, mapped
from tools.mutation.mutant import (
    Mutation,
    Wrong,
    each,
    floats_as,
    is_float,
    mutate_simply,
    read_as,
    reads_floats,
    reads_many,
)

_OF_A_HALF = 2.0**8  # float32 roundings, far below one half-precision rounding


def _through_float32(x: Array) -> Array:
    return x.astype(np.float32).astype(x.dtype) if x.dtype == np.float64 else x


def _through_float16(x: Array) -> Array:
    return x.astype(np.float16).astype(x.dtype) if x.dtype.itemsize > 2 else x


def _wrapped(limit: int) -> Wrong:
    """Read each row modulo a limit: what lies beyond the staging buffer repeats its begin."""

    def change(x: Array) -> Array:
        if x.ndim == 0 or x.shape[-1] <= limit:
            return x
        return x[..., np.arange(x.shape[-1]) % limit]

    return read_as(change)


def _truncated(right: Call, call: Invocation) -> None:
    """Compute floating-point outputs in float64 and round them toward zero."""

    def wide(out: Array) -> Array:
        return np.zeros(out.shape) if is_float(out) and out.dtype != np.float64 else out

    outputs = mapped(wide, call.outputs)
    right(replace(call, outputs=outputs))
    for x, values in zip(flat(call.outputs), flat(outputs), strict=True):
        if values is not x:
            x[...] = toward_zero(values, dt.name_of(x.dtype))


@np.errstate(all="ignore")
def toward_zero(values: Array, dtype: str) -> Array:
    """Convert float64 values to a dtype, rounding toward zero."""
    finite = np.isfinite(values)
    plain = np.where(finite, values, 0.0)
    step = ulp_of(dtype, plain)
    cut = np.clip(np.trunc(plain / step) * step, -FORMATS[dtype].largest, FORMATS[dtype].largest)
    return np.where(finite, cut, values).astype(dt.DTYPES[dtype].numpy)


def _rounds(target: Target) -> bool:
    """Whether truncation, with errors of up to one ulp, exceeds the tolerance of some result."""
    most = {"float32": 0.0, "float64": -1.0}
    return bool(target.schema.outputs) and any(
        dtype in dt.FLOATS and 0.5 < limit.ulp < 1 and limit.accumulate <= most.get(dtype, _OF_A_HALF)
        for dtype, limit in target.operator.tolerance.items()
    )


def _has(dtype: str) -> Any:
    return lambda target: reads_floats(target) and dtype in target.dtypes


MUTATIONS = (
    Mutation("computed in bfloat16", mutate_simply(read_as(floats_as(narrow)), _has("float32"))),
    Mutation("computed in float16", mutate_simply(read_as(floats_as(_through_float16)), _has("float32"))),
    Mutation("computed in float32", mutate_simply(read_as(_through_float32), _has("float64"))),
    Mutation("rows read modulo", each((2048, 4096), _wrapped, reads_many)),
    Mutation("rounded toward zero", mutate_simply(_truncated, _rounds)),
)
