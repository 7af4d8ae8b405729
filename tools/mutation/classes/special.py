"""NaN, infinities, zeros with a sign, denormal and extreme numbers get lost."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np

from isthmus.conformance.judge import FORMATS
from isthmus.opset import dtypes as dt
from tools.mutation.kernel import Array, Target
from tools.mutation.mutant import Mutation, Wrong, floats_as, mutate_simply, read_as, reads_floats, written_as

_EXTREMUM = re.compile(r"aten::a?(max|min)(\.dim)?")


def _without_nan(x: Array) -> Array:
    return np.where(np.isnan(x), np.zeros((), x.dtype), x)


def _without_full_nan(x: Array) -> Array:
    """Replace NaN of all payload bits by zeros: rounding it as an integer overflows into the sign."""
    bits = np.array(x).view(f"u{x.itemsize}")
    full = bits << 1 == np.array(-2).astype(bits.dtype)
    return np.where(full, np.zeros((), x.dtype), x)


def _without_infinity(x: Array) -> Array:
    largest = np.asarray(FORMATS[dt.name_of(x.dtype)].largest).astype(x.dtype)
    return np.where(np.isinf(x), np.copysign(largest, x), x)


def _rows_without_infinity(x: Array) -> Array:
    """Replace -inf in rows that have nothing else: a maximum that begins at the lowest number."""
    if x.ndim == 0:
        return x
    hidden = np.all(np.isneginf(x.astype(np.float64)), axis=-1, keepdims=True)
    return np.where(hidden, np.asarray(-FORMATS[dt.name_of(x.dtype)].largest).astype(x.dtype), x)


def _without_minus_zero(x: Array) -> Array:
    return np.where(x == 0, np.zeros((), x.dtype), x)


def _flushed(x: Array) -> Array:
    """Replace denormal numbers by zeros of their sign."""
    normal = np.asarray(2.0 ** FORMATS[dt.name_of(x.dtype)].lowest).astype(x.dtype)
    return np.where(np.abs(x) < normal, np.copysign(np.zeros((), x.dtype), x), x)


def _range_of_float16(x: Array) -> Array:
    """Overflow where float16 does."""
    return np.where(np.abs(x) > 65504, np.copysign(np.asarray(np.inf).astype(x.dtype), x), x)


def _clipped_early(x: Array) -> Array:
    """Clip to the largest float16."""
    if x.dtype == np.float16:
        return x
    limit = np.asarray(65504).astype(x.dtype)
    return np.where(np.isfinite(x), np.clip(x, -limit, limit), x)


def _reading(change: Callable[[Array], Array]) -> Wrong:
    return read_as(floats_as(change))


def _writing(change: Callable[[Array], Array]) -> Wrong:
    changed = floats_as(change)
    return written_as(lambda new, _: changed(new))


def _reads_nan(target: Target) -> bool:
    return reads_floats(target) and bool(target.operator.special)


def _reads_infinity(target: Target) -> bool:
    return reads_floats(target) and math.inf in target.operator.special


def _may_be_nan(target: Target) -> bool:
    return target.reads and target.float_results and bool(target.operator.special)


def _may_be_infinite(target: Target) -> bool:
    return target.reads and target.float_results and math.inf in target.operator.special


def _searches(target: Target) -> bool:
    """Whether it looks for the largest or smallest number of a row, or subtracts it."""
    families = ("softmax", "llm_softmax", "llm_attention", "llm_loss", "sorting")
    searches = target.operator.family in families or _EXTREMUM.fullmatch(target.name)
    return _reads_infinity(target) and target.float_results and bool(searches)


def _moves(target: Target) -> bool:
    return target.reads and target.float_results and target.moves


def _float_results(target: Target) -> bool:
    return target.reads and target.float_results


MUTATIONS = (
    Mutation(
        "NaN of all payload bits lost",
        mutate_simply(_reading(_without_full_nan), lambda target: target.name == "aten::copy_"),
    ),
    Mutation("NaN read as zero", mutate_simply(_reading(_without_nan), _reads_nan)),
    Mutation("NaN lost", mutate_simply(_writing(_without_nan), _may_be_nan)),
    Mutation("infinity read as finite", mutate_simply(_reading(_without_infinity), _reads_infinity)),
    Mutation("infinity clipped", mutate_simply(_writing(_without_infinity), _may_be_infinite)),
    Mutation("row of -inf", mutate_simply(_reading(_rows_without_infinity), _searches)),
    Mutation("sign of zero lost", mutate_simply(_writing(_without_minus_zero), _moves)),
    Mutation("-0.0 read as 0.0", mutate_simply(_reading(_without_minus_zero), _moves)),
    Mutation("denormal inputs flushed", mutate_simply(_reading(_flushed), _float_results)),
    Mutation("denormal results flushed", mutate_simply(_writing(_flushed), _float_results)),
    Mutation("range of float16", mutate_simply(_writing(_range_of_float16), _float_results)),
    Mutation("inputs clipped", mutate_simply(_reading(_clipped_early), _float_results)),
)
