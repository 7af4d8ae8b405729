"""Forms of faults, and what they read of a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from tools.mutation.kernel import Array, Call, Invocation, flat, mapped
from tools.mutation.mutant import Wrong, is_float

LARGEST_HALF = 65504.0
ALL_DTYPES = " ".join(dt.DTYPES)


def after(change: Callable[[Invocation], None]) -> Wrong:
    """Make a kernel that changes the correct results."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        with np.errstate(all="ignore"):
            change(call)

    return wrong


def computed(function: Callable[..., Any]) -> Wrong:
    """Make a kernel that writes a function of the inputs to the first output."""

    def wrong(right: Call, call: Invocation) -> None:
        with np.errstate(all="ignore"):
            call.outputs[0][...] = function(*call.inputs)

    return wrong


def wide(x: Any) -> Any:
    """Return a floating-point array in float64; anything else as it is."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) and is_float(x) else x


def when(condition: Callable[[Invocation], bool], wrong: Wrong) -> Wrong:
    """Make a kernel that is wrong only in calls that fulfil a condition."""
    return lambda right, call: wrong(right, call) if condition(call) else right(call)


def with_given(call: Invocation, **values: Any) -> Invocation:
    """Return the call with inputs replaced by name."""
    names = [a.name for a in call.schema.inputs]
    inputs = [values.get(name, value) for name, value in zip(names, call.inputs, strict=True)]
    return replace(call, inputs=inputs)


def with_copies(call: Invocation) -> Invocation:
    """Return the call with outputs in memory of its own, zero."""
    return replace(call, outputs=mapped(np.zeros_like, call.outputs))


def restored(call: Invocation, keep: Callable[[Array], Any]) -> Callable[[], None]:
    """Return a function that puts what the outputs hold now back at ``keep(output)``."""
    old = [np.array(x) for x in flat(call.outputs)]

    def put_back() -> None:
        for x, before in zip(flat(call.outputs), old, strict=True):
            where = keep(x)
            x[where] = before[where]

    return put_back


def redone(function: Callable[..., Any]) -> Wrong:
    """Make a kernel that writes ``function(right result, *inputs before the call)`` to the first result."""

    def wrong(right: Call, call: Invocation) -> None:
        given = [np.array(x) if isinstance(x, np.ndarray) else x for x in call.inputs]
        right(call)
        out = call.results()[0]
        with np.errstate(all="ignore"):
            out[...] = function(np.array(out), *given)

    return wrong


def only(dtypes: str, wrong: Wrong) -> Wrong:
    """Make a kernel that is wrong only in calls whose first result has one of the dtypes."""
    return when(lambda call: dt.name_of(call.results()[0].dtype) in dtypes.split(), wrong)


def argument_of(call: Invocation, name: str) -> Any:
    names = [a.name for a in call.schema.inputs]
    return call.inputs[names.index(name)] if name in names else None


def axes_of(call: Invocation) -> tuple[int, ...]:
    """Return the reduced dimensions."""
    rank, dim = call.inputs[0].ndim, argument_of(call, "dim")
    if rank == 0:
        return ()
    if dim is None or dim == []:
        return tuple(range(rank))
    return tuple(sorted(d % rank for d in ([dim] if isinstance(dim, int) else dim)))


def factors_of(call: Invocation) -> tuple[int, int]:
    """Return the positions of the factors of a matrix product: its last two tensors."""
    at = [i for i, a in enumerate(call.schema.inputs) if a.is_tensor]
    return at[-2], at[-1]


def to_float32(x: Any) -> Array:
    return np.asarray(x).astype(np.float32)


def to_half(x: Any) -> Array:
    return np.asarray(x).astype(np.float16)


def in_vectors(out: Array, width: int) -> Array:
    """Whether each element is in a whole vector."""
    flat = np.arange(out.size) < out.size - out.size % width
    return flat.reshape(out.shape)


def scores_of(call: Invocation) -> Any:
    """Return the scores of ATen's attention; None for grouped heads."""
    query, key = (np.asarray(wide(x)) for x in call.inputs[:2])
    if query.shape[:-2] != key.shape[:-2]:
        return None
    causal, mask, scale = call.given("is_causal", "attn_mask", "scale")
    scores = query @ key.swapaxes(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if mask is None else scores + wide(mask)
    return np.where(np.triu(np.ones(scores.shape[-2:], bool), 1) & causal, -np.inf, scores)
