"""Mistakes in what a kernel writes: tails, rounding, special values, order, places that are not its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from isthmus.conformance.judge import FORMATS, ulp_of
from isthmus.conformance.mutation.kernel import Array, Call, Invocation, Target, flat
from isthmus.conformance.mutation.mutant import Mutation, Wrong, simply
from isthmus.opset import dtypes as dt

_LANES = 8  # elements that a vector kernel takes at once


def _restore(x: Array, old: Array, first: int) -> None:
    """Elements from a position on, in row-major order, become what they were."""
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
        yield output.name, lambda index=index: leaving(index)


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
        yield f"{names[i]}, {names[i + 1]}", lambda i=i: swapping(i, i + 1)


def _shifted(right: Call, call: Invocation) -> None:
    right(call)
    for x in call.results():
        if x.ndim:
            x[...] = np.roll(np.array(x), 1, -1)


def _truncated(right: Call, call: Invocation) -> None:
    """Floating outputs computed in float64 and rounded toward zero when they are stored."""
    wide = [
        np.zeros(x.shape) if isinstance(x, np.ndarray) and _is_float(x) and x.dtype != np.float64 else x
        for x in call.outputs
    ]
    right(replace(call, outputs=wide))
    for x, values in zip(call.outputs, wide, strict=True):
        if values is not x:
            x[...] = toward_zero(values, dt.name_of(x.dtype))


@np.errstate(all="ignore")
def toward_zero(values: Array, dtype: str) -> Array:
    """float64 values in a dtype, rounded toward zero."""
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
    """One element is written at an offset from the end (or the beginning) of each output."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        for x in flat(call.outputs):
            if x.size:
                span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) // x.itemsize
                place = x.ctypes.data + (span * x.itemsize if offset > 0 else -x.itemsize)
                memory = (np.ctypeslib.ctypes.c_uint8 * x.itemsize).from_address(place)
                np.frombuffer(memory, np.uint8)[:] = 0x11

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


def _with_results(target: Target) -> bool:
    return bool(target.schema.outputs) or any(a.written for a in target.schema.inputs)


def _exact_floats(target: Target) -> bool:
    return target.has_floats and not target.rounds and not target.random


def _plain_floats(target: Target) -> bool:
    return target.has_floats and not target.random and _with_results(target)


MUTATIONS = (
    Mutation("last element not written", "off by one at the end of a result", simply(_last_not_written)),
    Mutation("tail of vectors not written", "what is left after whole vectors of 8 is forgotten", simply(_tail_not_written)),
    Mutation("output not written", "one output of the operator is forgotten", _output_not_written),
    Mutation("outputs swapped", "two outputs of one shape change places: the gradient of the wrong input", _outputs_swapped),
    Mutation("results shifted", "each row begins one element late", simply(_shifted)),
    Mutation("rounded toward zero", "results are truncated instead of rounded to nearest",
             simply(_truncated, lambda t: t.rounds and bool(t.schema.outputs) and not t.random)),
    Mutation("one bit off", "the last bit of the first element of a moved tensor", simply(_mapped(_one_ulp_off), _exact_floats)),
    Mutation("NaN lost", "NaN in a result becomes zero", simply(_mapped(_without_nan), _plain_floats)),
    Mutation("infinity clipped", "infinity in a result becomes the largest number", simply(_mapped(_without_infinity), _plain_floats)),
    Mutation("sign of zero lost", "-0.0 becomes 0.0 where bits are moved", simply(_mapped(_without_minus_zero), _exact_floats)),
    Mutation("written behind an output", "one element too many", simply(_written_beyond(1), lambda t: bool(t.schema.outputs))),
    Mutation("written before an output", "an index of -1", simply(_written_beyond(-1), lambda t: bool(t.schema.outputs))),
    Mutation("input modified", "the kernel writes to a tensor that it may only read", simply(_input_modified, lambda t: bool(t.tensors()) or any(a.is_list and a.is_tensor and not a.written for a in t.schema.inputs))),
    Mutation("output written before the input is read", "wrong only where an output is the memory of an input",
             simply(_written_before_read)),
)  # fmt: skip
