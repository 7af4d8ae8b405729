"""Mutations of results: tails, rounding, special values, order, out-of-bounds writes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from isthmus.conformance.golden import Case, Expected, Tensor, Tolerance
from isthmus.conformance.judge import FORMATS, ulp_of
from isthmus.opset import dtypes as dt
from isthmus.opset.library import IN_PLACE
from tools.mutation.kernel import Array, Call, Invocation, Target, flat
from tools.mutation.mutant import Mutation, Wrong, simply

_OF_A_HALF = 2.0**8  # float32 roundings, far below one half-precision rounding
_LANES = 8  # elements per vector


def _restore(x: Array, old: Array, first: int) -> None:
    """Restore the elements from a position on, in row-major order."""
    for position in range(first, x.size):
        index = np.unravel_index(position, x.shape)
        x[index] = old[index]


def _last_not_written(right: Call, call: Invocation) -> None:
    before = [np.array(x) for x in call.results()]
    right(call)
    for x, old in zip(call.results(), before, strict=True):
        _restore(x, old, max(x.size - 1, 0))


def _tail_not_written(right: Call, call: Invocation) -> None:
    before = [np.array(x) for x in call.results()]
    right(call)
    for x, old in zip(call.results(), before, strict=True):
        _restore(x, old, x.size - x.size % _LANES)


def _output_not_written(target: Target) -> Iterator[tuple[str, Callable[[], Wrong]]]:
    def leaving(index: int) -> Wrong:
        def wrong(right: Call, call: Invocation) -> None:
            out = call.outputs[index]
            copies = [np.array(x) for x in flat([out])]
            right(call)
            for x, old in zip(flat([out]), copies, strict=True):
                x[...] = old

        return wrong

    for index, output in enumerate(target.schema.outputs):
        yield output.name, partial(leaving, index)


def _outputs_swapped(target: Target) -> Iterator[tuple[str, Callable[[], Wrong]]]:
    def swapping(left: int, other: int) -> Wrong:
        def wrong(right: Call, call: Invocation) -> None:
            a, b = call.outputs[left], call.outputs[other]
            single = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
            if single and (a.shape, a.dtype) == (b.shape, b.dtype):
                outputs = list(call.outputs)
                outputs[left], outputs[other] = b, a
                call = replace(call, outputs=outputs)
            right(call)

        return wrong

    names = [output.name for output in target.schema.outputs]
    for i in range(len(names) - 1):
        if any(_alike(case.outputs[i], case.outputs[i + 1]) for case in target.cases):
            yield f"{names[i]}, {names[i + 1]}", partial(swapping, i, i + 1)


def _alike(left: Any, right: Any) -> bool:
    both = isinstance(left, Expected) and isinstance(right, Expected)
    return both and (left.shape, left.dtype) == (right.shape, right.dtype)


def _shifted(right: Call, call: Invocation) -> None:
    right(call)
    for x in call.results():
        if x.ndim:
            x[...] = np.roll(np.array(x), 1, -1)


def _truncated(right: Call, call: Invocation) -> None:
    """Compute floating-point outputs in float64 and round them toward zero."""

    def wide(out: Any) -> Any:
        if isinstance(out, list):
            return [wide(item) for item in out]
        narrow = out is not None and _is_float(out) and out.dtype != np.float64
        return np.zeros(out.shape) if narrow else out

    outputs = wide(call.outputs)
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


def _is_float(x: Array) -> bool:
    return dt.DTYPES[dt.name_of(x.dtype)].kind == "float"


def _mapped(change: Callable[[Array], Array]) -> Wrong:
    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        for x in call.results():
            if _is_float(x):
                x[...] = change(x)

    return wrong


def _without_nan(x: Array) -> Array:
    return np.where(np.isnan(x), np.zeros((), x.dtype), x)


def _without_infinity(x: Array) -> Array:
    largest = np.asarray(FORMATS[dt.name_of(x.dtype)].largest).astype(x.dtype)
    return np.where(np.isinf(x), np.copysign(largest, x), x)


def _without_minus_zero(x: Array) -> Array:
    return np.where(x == 0, np.zeros((), x.dtype), x)


def _one_ulp_off(x: Array) -> Array:
    bits = np.array(x).view(f"u{x.itemsize}")
    usual = np.isfinite(x) & (x != 0)
    return (bits ^ (np.arange(bits.size).reshape(bits.shape) == 0) * usual.astype(bits.dtype)).view(x.dtype)


def _written_beyond(offset: int) -> Wrong:
    """Write one element at an offset from the end (or the beginning) of each output."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        for x in flat(call.outputs):
            if x.size:
                span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) // x.itemsize
                place = x.ctypes.data + (span * x.itemsize if offset > 0 else -x.itemsize)
                memory = (ctypes.c_uint8 * x.itemsize).from_address(place)
                ctypes.memset(memory, 0x11, x.itemsize)

    return wrong


def _input_modified(right: Call, call: Invocation) -> None:
    right(call)
    for x in call.read():
        if x.size:
            first = (0,) * x.ndim
            x[first] = not x[first] if x.dtype == np.bool_ else x[first] + np.ones((), x.dtype)


def _written_before_read(right: Call, call: Invocation) -> None:
    for x in flat(call.outputs):
        x[...] = np.zeros((), x.dtype)
    right(call)


def _exact_floats(target: Target) -> bool:
    """Whether results are moved inputs, which must be exact."""
    limits = target.float_limits
    return bool(limits) and all(limit.ulp == limit.accumulate == 0 for _, limit in limits)


def _rounded_floats(target: Target) -> bool:
    """Whether truncation, with errors of up to one ulp, exceeds the tolerance of some result."""

    def strict(dtype: str, limit: Tolerance) -> bool:
        most = {"float32": 0.0, "float64": -1.0}.get(dtype, _OF_A_HALF)
        return 0.5 < limit.ulp < 1 and limit.accumulate <= most

    return bool(target.schema.outputs) and any(strict(*row) for row in target.float_limits)


def _may_be_nan(target: Target) -> bool:
    return bool(target.float_limits and target.special)


def _may_be_infinite(target: Target) -> bool:
    return bool(target.float_limits) and math.inf in target.special


def _has_outputs(target: Target) -> bool:
    return bool(target.schema.outputs)


def _reads(target: Target) -> bool:
    return target.reads_tensors


def _has_rows(target: Target) -> bool:
    return not target.random and any(shape and shape[-1] > 1 for shape in target.result_sizes())


def _may_share(target: Target) -> bool:
    """Whether an output may alias an input: the kernel allows it, and their shapes and dtypes match."""

    def alike(case: Case) -> bool:
        out = next((result for result in case.outputs if isinstance(result, Expected)), None)
        return out is not None and any(
            isinstance(value, Tensor)
            and value.is_contiguous
            and value.array.size > 1
            and (value.shape, dt.name_of(value.storage.dtype)) == (out.shape, out.dtype)
            for argument, value in zip(target.schema.inputs, case.arguments, strict=True)
            if not argument.written
        )

    return bool(target.flags & IN_PLACE) and any(alike(case) for case in target.cases)


MUTATIONS = (
    Mutation("last element not written", "off by one at the end of a result", simply(_last_not_written)),
    Mutation("tail of vectors not written", "the remainder after whole vectors of 8 is not written",
             simply(_tail_not_written)),
    Mutation("output not written", "one output of the operator is not written", _output_not_written),
    Mutation("outputs swapped", "two outputs of equal shape are swapped: the gradient of the wrong input",
             _outputs_swapped),
    Mutation("results shifted", "each row starts one element late", simply(_shifted, _has_rows)),
    Mutation("rounded toward zero", "results are truncated instead of rounded to nearest",
             simply(_truncated, _rounded_floats)),
    Mutation("one bit off", "the last bit of the first element of a moved tensor",
             simply(_mapped(_one_ulp_off), _exact_floats)),
    Mutation("NaN lost", "NaN in a result becomes zero", simply(_mapped(_without_nan), _may_be_nan)),
    Mutation("infinity clipped", "infinity in a result becomes the largest number",
             simply(_mapped(_without_infinity), _may_be_infinite)),
    Mutation("sign of zero lost", "-0.0 becomes 0.0 where bits are moved",
             simply(_mapped(_without_minus_zero), _exact_floats)),
    Mutation("written behind an output", "one element too many", simply(_written_beyond(1), _has_outputs)),
    Mutation("written before an output", "an index of -1", simply(_written_beyond(-1), _has_outputs)),
    Mutation("input modified", "the kernel writes to a tensor that it may only read",
             simply(_input_modified, _reads)),
    Mutation("output written before the input is read", "wrong only where an output aliases an input",
             simply(_written_before_read, _may_share)),
)  # fmt: skip
