"""Faults of state kept between calls, and of concurrent calls."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from tools.mutation.bank.faults.common import restored, wide, with_given
from tools.mutation.bank.faults.sizes import without_carry
from tools.mutation.classes.alignment import address_of
from tools.mutation.kernel import Array, Call, Invocation, mapped
from tools.mutation.mutant import Wrong, leaves


def shapes_of(call: Invocation, by: str = "shapes") -> Any:
    """Return what a cache of kernels knows of the tensors: their shapes, sizes, ranks, or nothing."""
    arrays = [*call.read(), *call.results()]
    if by == "shapes":
        return tuple((x.shape, str(x.dtype)) for x in arrays)
    if by == "sizes":
        return tuple((x.size, str(x.dtype)) for x in arrays)
    if by == "ranks":
        return tuple((x.ndim, str(x.dtype)) for x in arrays)
    return ()


def numbers_of(call: Invocation, *without: str) -> tuple[str, ...]:
    """Return the arguments that are no tensors, without some of them."""
    pairs = zip(call.schema.inputs, call.inputs, strict=True)
    return tuple(str(v) for a, v in pairs if not a.is_tensor and a.name not in without)


# State: kernels compiled for the first call, and found again by an incomplete key.


def arguments_kept(*names: str, by: str = "shapes", digits: int = 0) -> Wrong:
    """Use the first values of some arguments that the key lacks, or has only to a number of digits."""
    first: dict[Any, dict[str, Any]] = {}

    def wrong(right: Call, call: Invocation) -> None:
        given = dict(zip(names, call.given(*names), strict=True))
        short = tuple(f"{value:.{digits}g}" for value in given.values()) if digits else ()
        key = shapes_of(call, by), numbers_of(call, *names), short
        right(with_given(call, **first.setdefault(key, given)))

    return wrong


def inputs_kept() -> Wrong:
    """Read the tensors of the first call with the same shapes and arguments: their addresses are not updated."""
    first: dict[Any, list[Array]] = {}

    def wrong(right: Call, call: Invocation) -> None:
        key = shapes_of(call), numbers_of(call)
        old = first.setdefault(key, [np.array(x) for x in call.read()])
        inputs = iter(old)
        right(call.with_inputs(lambda _, x: next(inputs)))

    return wrong


def size_kept(by: str = "ranks") -> Wrong:
    """Write no more elements than the first call with tensors of the same dtypes and ranks had."""
    first: dict[Any, int] = {}

    def wrong(right: Call, call: Invocation) -> None:
        size = call.results()[0].size
        count = first.setdefault((shapes_of(call, by), len(call.results())), size)
        leaves(lambda n: min(count, n))(right, call)

    return wrong


def wraps_at_first_size() -> Wrong:
    """Number the elements modulo the size of the first call with the same dtypes and ranks."""
    first: dict[Any, int] = {}

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        for number, x in enumerate(call.results()):
            count = first.setdefault((shapes_of(call, "ranks"), number), x.size)
            if 0 < count < x.size:
                x[...] = np.array(x).reshape(-1)[np.arange(x.size) % count].reshape(x.shape)

    return wrong


def batch_kept(multiple: int) -> Wrong:
    """Write as many matrices as the first batch had, if both numbers are multiples."""
    first: dict[Any, int] = {}

    def wrong(right: Call, call: Invocation) -> None:
        count = len(call.outputs[0])
        if count % multiple:
            return right(call)
        kept = first.setdefault(shapes_of(call, "ranks"), count)
        put_back = restored(call, lambda x: slice(kept, None))
        right(call)
        return put_back()

    return wrong


def dtype_kept() -> Wrong:
    """Store the result in the dtype that the first call of the same shape had; its bits are read as another."""
    first: dict[Any, Any] = {}

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        for x in call.results():
            dtype = first.setdefault((x.shape, str(call.read()[0].dtype)), x.dtype)
            if dtype != x.dtype and x.size and np.bool_ not in (x.dtype, dtype):
                with np.errstate(all="ignore"):
                    stored = np.array(x).astype(dtype).tobytes()
                x[...] = np.resize(np.frombuffer(stored, np.uint8), x.nbytes).view(x.dtype).reshape(x.shape)

    return wrong


def dtype_ignored() -> Wrong:
    """Run the kernel of the first dtype of as many bytes that came with the same shapes."""
    first: dict[Any, Any] = {}

    def wrong(right: Call, call: Invocation) -> None:
        arrays = [*call.read(), *call.results()]
        now = arrays[0].dtype
        if any(x.dtype != now for x in arrays) or now == np.bool_ or not all(x.size for x in arrays):
            return right(call)
        dtype = first.setdefault((tuple(x.shape for x in arrays), now.itemsize), now)
        if dtype == now:
            return right(call)
        other = call.with_inputs(lambda _, x: np.array(x, order="C").view(dtype))
        other = replace(other, outputs=mapped(lambda x: np.zeros(x.shape, dtype), call.outputs))
        right(other)
        for x, y in zip(call.outputs, other.outputs, strict=True):
            x[...] = y.view(now)
        return None

    return wrong


def operands_identified() -> Wrong:
    """Name the operands of a compiled expression by the first call: x + x is compiled, x + y computes x + x."""
    first: dict[Any, list[int]] = {}

    def wrong(right: Call, call: Invocation) -> None:
        read = call.read()
        places = [(address_of(x), x.strides) for x in read]
        pattern = [places.index(each) for each in places]
        known = first.setdefault((shapes_of(call), numbers_of(call)), pattern)
        chosen = iter([read[index] for index in known])
        right(call.with_inputs(lambda _, x: next(chosen)))

    return wrong


def count_kept() -> Wrong:
    """Correct a variance for the number of elements of the first call with the same arguments and ranks."""
    first: dict[Any, int] = {}

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        out = call.outputs[0]
        if not out.size or not call.inputs[0].size:
            return
        given = call.given("correction")[0]
        n, correction = call.inputs[0].size // out.size, 1 if given is None else float(given)
        kept = first.setdefault((shapes_of(call, "ranks"), numbers_of(call)), n)
        if kept != n and n > correction and kept > correction:
            out[...] = wide(out) * (n - correction) / n * kept / (kept - correction)

    return wrong


def broadcast_kept(index: int) -> Wrong:
    """Read an input with the shape of the first that had as many elements."""
    first: dict[Any, tuple[int, ...]] = {}

    def wrong(right: Call, call: Invocation) -> None:
        x, out = call.inputs[index], call.outputs[0]
        shape = first.setdefault((x.size, out.size), x.shape)
        if shape != x.shape:
            try:
                x = np.broadcast_to(x.reshape(shape), out.shape)
            except ValueError:
                x = np.resize(x, out.shape)
        right(call.with_input(index, x))

    return wrong


def groups_kept() -> Wrong:
    """Let as many heads of the query share a head of the key as in the first call."""
    first: list[int] = []

    def wrong(right: Call, call: Invocation) -> None:
        query, key, value = call.given("query", "key", "value")
        heads = query.shape[-2]
        first.append(heads // max(key.shape[-2], 1))
        if first[0] == first[-1] or not first[0]:
            return right(call)
        chosen = np.minimum(np.arange(heads) // first[0], key.shape[-2] - 1)
        return right(with_given(call, key=key[..., chosen, :], value=value[..., chosen, :]))

    return wrong


def repeated_in_first_call(times: int = 3) -> Wrong:
    """Run a kernel that works in place several times when it is tuned: in the first call of each shape."""
    seen: set[Any] = set()

    def wrong(right: Call, call: Invocation) -> None:
        key = shapes_of(call)
        for _ in range(1 if key in seen else times):
            right(call)
        seen.add(key)

    return wrong


def cached_mask_scaled(least: int = 128) -> Wrong:
    """Scale a part of a cached causal mask in place in short calls; long calls use the mask."""
    cached = np.triu(np.ones((4096, 4096), np.float32), 1)

    def wrong(right: Call, call: Invocation) -> None:
        scores, causal = call.given("input", "causal")
        queries, keys = scores.shape[-2:]
        if not causal or queries != keys or queries > len(cached):
            return right(call)
        if queries < least:
            cached[:queries, :keys] *= -10000
            return right(call)
        right(with_given(call, causal=False, input=wide(scores) + cached[:queries, :keys] * -1e4))
        return None

    return wrong


# Concurrency.


def partial_lost(every: int, lost: int = 32) -> Wrong:
    """Lose the last partial result of one of ``every`` rows of a reduction that are longer than it."""
    done = 0

    def wrong(right: Call, call: Invocation) -> None:
        nonlocal done
        x, given = call.inputs[0], dict(zip([a.name for a in call.schema.inputs], call.inputs, strict=True))
        axis = given.get("dim", -1)
        axis = axis[0] if isinstance(axis, list) and axis else axis if isinstance(axis, int) else -1
        if not x.ndim or x.shape[axis] <= lost:
            return right(call)
        short = np.moveaxis(np.array(x), axis, -1)
        rows = short.reshape(-1, short.shape[-1])
        neutral = -np.inf if "softmax" in call.schema.name else 1 if "prod" in call.schema.name else 0
        rows[(done + np.arange(1, len(rows) + 1)) % every == 0, -lost:] = np.array(neutral).astype(x.dtype)
        done += len(rows)
        return right(call.with_input(0, np.moveaxis(rows.reshape(short.shape), -1, axis)))

    return wrong


def refilled_early(name: str, axis: int, tile: int, every: int) -> Wrong:
    """Read the next tile of an input in place of the last but one, in one of ``every`` calls with two tiles."""
    calls = itertools.count(1)

    def wrong(right: Call, call: Invocation) -> None:
        x = call.given(name)[0]
        if x.ndim < abs(axis) or x.shape[axis] < 2 * tile or next(calls) % every:
            return right(call)
        moved = np.moveaxis(np.array(x), axis, 0)
        last = len(moved) // tile - 1
        moved[(last - 1) * tile : last * tile] = moved[last * tile : (last + 1) * tile]
        return right(with_given(call, **{name: np.moveaxis(moved, 0, axis)}))

    return wrong


def updates_lost(many: int) -> Wrong:
    """Lose an addition whenever more than ``many`` go to the same element of a vector."""

    def wrong(right: Call, call: Invocation) -> None:
        x, index, source = call.inputs[0], *call.given("index", "src")
        if x.ndim != 1 or not index.size or np.bincount(index.reshape(-1)).max() <= many:
            return right(call)
        kept = np.array(source[: index.size])
        seen: dict[int, int] = defaultdict(int)
        for place, target in enumerate(index.reshape(-1)):
            seen[int(target)] += 1
            if seen[int(target)] % many == 0:
                kept[place] = 0
        return right(with_given(call, src=kept))

    return wrong


def arguments_shared() -> Wrong:
    """Keep the arguments of a launch in a buffer that all launches share."""
    buffer: dict[str, Invocation] = {}

    def wrong(right: Call, call: Invocation) -> None:
        buffer["arguments"] = call
        time.sleep(0.0005)
        right(buffer["arguments"])

    return wrong


def carry_lost(block: int, every: int) -> Wrong:
    """Lose the carry between blocks of a running sum in one of ``every`` rows that are longer."""
    done = 0

    def wrong(right: Call, call: Invocation) -> None:
        nonlocal done
        right(call)
        out, dim = call.outputs[0], call.inputs[1]
        n = out.shape[dim] if out.ndim else 0
        if n <= block:
            return
        rows = out.size // n
        lost = [row for row in range(rows) if (done + row + 1) % every == 0]
        done += rows
        for row in lost:
            without_carry(call, slice(row, row + 1), block)

    return wrong


def terms_kept() -> Wrong:
    """Reduce as many elements of the last dimension as the first call with the same ranks had."""
    first: dict[Any, int] = {}

    def wrong(right: Call, call: Invocation) -> None:
        x, dim = call.given("self", "dim")
        if not x.ndim or not x.size or dim is None or [d % x.ndim for d in dim] != [x.ndim - 1]:
            return right(call)
        kept = first.setdefault(shapes_of(call, "ranks"), x.shape[-1])
        return right(call.with_input(0, x[..., :kept]))

    return wrong


def layout_kept() -> Wrong:
    """Read a tensor with the order of dimensions of the first one of the same shape."""
    first: dict[Any, tuple[int, ...]] = {}

    def wrong(right: Call, call: Invocation) -> None:
        x = call.inputs[0]
        order = tuple(sorted(range(x.ndim), key=lambda axis: -x.strides[axis]))
        known = first.setdefault((shapes_of(call), numbers_of(call)), order)
        if known != order and x.size:
            flat = np.array(x.transpose(order), order="C").reshape(-1)
            read = flat.reshape([x.shape[axis] for axis in known]).transpose(np.argsort(known))
            call = call.with_input(0, read)
        right(call)

    return wrong
