"""Faults of strides and of channels-last tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from isthmus.opset.schema import Argument
from tools.mutation.bank.faults.common import when, wide
from tools.mutation.classes.alignment import address_of
from tools.mutation.classes.layout import dense, with_strides
from tools.mutation.kernel import Array, Call, Invocation, mapped
from tools.mutation.mutant import Wrong, leaves

ALLOCATION = 64  # bytes to which the start of every tensor's memory is aligned


def _steps(x: Array) -> list[int]:
    return [stride // x.itemsize for stride in x.strides]


def is_strided(x: Array) -> bool:
    return not x.flags.c_contiguous


def _is_expanded(x: Array) -> bool:
    return any(n > 1 and s == 0 for n, s in zip(x.shape, x.strides, strict=True))


def _is_permuted(x: Array) -> bool:
    """Whether the tensor is dense in another order of dimensions."""
    kept = [(n, s) for n, s in zip(x.shape, _steps(x), strict=True) if n > 1]
    ordered = sorted(kept, key=lambda pair: -pair[1])
    return ordered != kept and [s for _, s in ordered] == dense(tuple(n for n, _ in ordered))


def _has_gaps(x: Array) -> bool:
    return is_strided(x) and not _is_expanded(x) and not _is_permuted(x)


def has_columns(x: Array) -> bool:
    """Whether neighbors in a row are not neighbors in memory."""
    return x.ndim > 0 and x.shape[-1] > 1 and _steps(x)[-1] != 1


def _has_pitch(x: Array) -> bool:
    """Whether only the rows are dense."""
    return is_strided(x) and not has_columns(x)


def _is_channels_last(x: Array) -> bool:
    if x.ndim not in (4, 5) or x.shape[1] == 1 or x.flags.c_contiguous:
        return False
    return bool(np.moveaxis(x, 1, -1).flags.c_contiguous)


def _is_channels_sliced(x: Array) -> bool:
    """Whether the tensor is a slice of the channels of a channels-last tensor."""
    if x.ndim not in (4, 5) or x.shape[-1] == 1:
        return False
    last = np.moveaxis(x, 1, -1)
    steps = _steps(last)
    return steps[-1] == 1 and steps[-2] > last.shape[-1] and steps == sorted(steps, reverse=True)


LAYOUTS: dict[str, Callable[[Array], bool]] = {
    "any": lambda x: True,
    "strided": is_strided,
    "expanded": _is_expanded,
    "permuted": _is_permuted,
    "gaps": _has_gaps,
    "columns": has_columns,
    "pitch": _has_pitch,
    "channels-last": _is_channels_last,
    "channels-sliced": _is_channels_sliced,
    "offset": lambda x: address_of(x) % ALLOCATION != 0,
    "view": lambda x: is_strided(x) or address_of(x) % ALLOCATION != 0,
    "unit": lambda x: x.ndim > 1 and 1 in x.shape,
    "permuted unit": lambda x: 1 in x.shape and _is_permuted(x),
}


def fits(x: Array, layout: str, rank: int, itemsize: int) -> bool:
    """Whether a tensor has a layout, a rank (-1: any) and a size of its elements (0: any)."""
    return bool(x.size) and rank in (-1, x.ndim) and itemsize in (0, x.itemsize) and LAYOUTS[layout](x)


def reading(
    change: Callable[[Array], Array], argument: str, layout: str = "any", rank: int = -1, itemsize: int = 0
) -> Wrong:
    """Make a kernel that reads tensors of a layout, of all arguments or of some, as ``change(array)``."""
    names = argument.split()

    def changed(a: Argument, x: Array) -> Array:
        named = not names or a.name in names
        return change(x) if named and fits(x, layout, rank, itemsize) else x

    return lambda right, call: right(call.with_inputs(changed))


def _storing(
    store: Callable[[Array, Array], None], layout: str, rank: int = -1, itemsize: int = 0, output: int = -1
) -> Wrong:
    """Make a kernel that stores results of a layout by ``store(unchanged result, correct values)``."""

    def wrong(right: Call, call: Invocation) -> None:
        before = [np.array(x, order="C") for x in call.results()]
        right(call)
        for index, (x, old) in enumerate(zip(call.results(), before, strict=True)):
            if output in (-1, index) and fits(x, layout, rank, itemsize):
                values = np.array(x, order="C")
                x[...] = old
                store(x, values)

    return wrong


def _memory(x: Array, count: int) -> Array:
    """Return the memory from an array's first element on."""
    return np.lib.stride_tricks.as_strided(x, (count,), (x.itemsize,))


def flipped(x: Array) -> Array:
    """Return an element with all bits inverted, in place of unknown memory."""
    return ~x if x.dtype == np.bool_ else (~np.array(x).view(np.uint8)).view(x.dtype)


def _channels_last_steps(shape: tuple[int, ...]) -> list[int]:
    steps = dense((shape[0], *shape[2:], shape[1]))
    return [steps[0], steps[-1], *steps[1:-1]]


# Strides


def packed(layout: str = "strided", argument: str = "", rank: int = -1) -> Wrong:
    """Read tensors of a layout as contiguous."""
    return reading(lambda x: with_strides(x, dense(x.shape)), argument, layout, rank)


def packed_half(layout: str, argument: str) -> Wrong:
    """Read float16 tensors of a layout as contiguous."""
    fault = packed(layout, argument)
    return when(lambda call: call.inputs[0].dtype == np.float16, fault)


def packed_result(layout: str = "strided", rank: int = -1, output: int = -1) -> Wrong:
    """Write results of a layout as contiguous."""

    def store(x: Array, values: Array) -> None:
        _memory(x, x.size)[...] = values.reshape(-1)

    return _storing(store, layout, rank, output=output)


def lost_result(layout: str, output: int = -1) -> Wrong:
    """Do not write results of a layout."""
    return _storing(lambda x, values: None, layout, output=output)


def packed_in_place(right: Call, call: Invocation) -> None:
    """Read and write modified arguments as contiguous."""

    def inner(x: Array) -> Array:
        return np.array(_memory(x, x.size)).reshape(x.shape) if is_strided(x) else x

    written = [a.is_tensor and a.written for a in call.schema.inputs]
    changed = [mapped(inner, x) if w else x for x, w in zip(call.inputs, written, strict=True)]
    right(replace(call, inputs=changed))
    for x, new in zip(call.inputs, changed, strict=True):
        if isinstance(x, np.ndarray) and x is not new:
            _memory(x, x.size)[...] = new.reshape(-1)


def unit_last_stride(argument: str = "") -> Wrong:
    """Read neighbors in a row as neighbors in memory; use only the other strides."""
    return reading(lambda x: with_strides(x, [*_steps(x)[:-1], 1]), argument, "columns")


def _units_used(x: Array) -> Array:
    steps = _steps(x)
    for axis in range(x.ndim - 1):
        if x.shape[axis] == 1:
            steps[axis + 1] = steps[axis]
    return x if steps == _steps(x) else with_strides(x, steps)


def unit_strides_used(argument: str = "") -> Wrong:
    """Use the stride of a dimension of size 1 for the next dimension."""
    return reading(_units_used, argument, "unit")


def channels_packed(argument: str) -> Wrong:
    """Read a slice of channels as a dense channels-last tensor."""
    return reading(lambda x: with_strides(x, _channels_last_steps(x.shape)), argument, "channels-sliced")


packed_if_accumulating = when(lambda call: bool(call.given("accumulate")[0]), packed("strided", "self"))
packed_if_transposed = when(lambda call: bool(call.given("transposed")[0]), packed_result("channels-last"))
packed_if_decoding = when(
    lambda call: call.inputs[0].ndim == 4 and call.inputs[0].shape[1] <= 8,
    packed("strided", "query key value"),
)


def argmin_in_memory_order(right: Call, call: Invocation) -> None:
    x, dim = call.inputs[:2]
    if dim is not None or x.flags.c_contiguous or not x.size:
        return right(call)
    axes = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
    call.outputs[0][...] = np.argmin(wide(x).transpose(axes).reshape(-1))
    return None


def rows_in_memory_order(right: Call, call: Invocation) -> None:
    """Sort the rows of a dense tensor in the order of memory, and store them in the order of dimensions."""
    right(call)
    x, dim = call.inputs[0], call.given("dim")[0]
    if x.ndim < 3 or not x.size or not _is_permuted(x):
        return
    outer = np.moveaxis(x, dim, -1).strides[:-1]
    order = sorted(range(len(outer)), key=lambda axis: -outer[axis])
    for out in call.outputs:
        rows = np.moveaxis(out, dim, -1)
        rows[...] = np.array(rows.transpose(*order, len(outer)), order="C").reshape(rows.shape)


def first_batch_alone(right: Call, call: Invocation) -> None:
    """Multiply with the vector of the first batch if the vectors are strided."""
    mat2 = call.inputs[1]
    if mat2.size and is_strided(mat2) and mat2.shape[-1] == 1:
        call = call.with_input(1, np.broadcast_to(mat2[:1], mat2.shape))
    right(call)


def input_transposed(right: Call, call: Invocation) -> None:
    """Add the input in the order of its transpose to a result that is neither row- nor column-major."""
    out = call.outputs[0]
    if out.size and min(_steps(out)) > 1:
        x = np.broadcast_to(call.inputs[0], out.shape)
        call = call.with_input(0, np.ascontiguousarray(x.T).reshape(out.shape))
    right(call)


def unsorted_in_strided_values(right: Call, call: Invocation) -> None:
    """Leave values unsorted where their tensor is strided and that of the indices is not."""
    x, dim = call.inputs[0], call.given("dim")[0]
    values, indices = call.outputs
    if not x.ndim or values.flags.c_contiguous or not indices.flags.c_contiguous:
        return right(call)
    values[...] = x
    np.moveaxis(indices, dim, -1)[...] = np.arange(x.shape[dim])
    return None


def decomposed_by_source(right: Call, call: Invocation) -> None:
    """Decompose the indices of results with the sizes of a strided source."""
    right(call)
    x, out = call.inputs[0], call.outputs[0]
    if x.ndim > 1 and x.size and out.size and is_strided(x):
        places = np.unravel_index(np.arange(out.size) % x.size, x.shape)
        wrapped = tuple(place % n for place, n in zip(places, out.shape, strict=True))
        out[...] = np.array(out)[wrapped].reshape(out.shape)


def zeros_for_expanded(right: Call, call: Invocation) -> None:
    """Clear the whole gradient if the incoming one is expanded."""
    right(call)
    if call.inputs[0].size and _is_expanded(call.inputs[0]):
        call.outputs[0][...] = 0


def every_16th_row(right: Call, call: Invocation) -> None:
    """Compute only each 16th row if a factor is expanded; the others are 0."""
    right(call)
    if any(x.size and _is_expanded(x) for x in call.inputs[:2]):
        out = call.outputs[0]
        out[np.arange(out.shape[0]) % 16 != 0] = 0


def memory_copied(right: Call, call: Invocation) -> None:
    """Copy memory as it is if both tensors have the same strides and gaps."""
    x, src = call.inputs[:2]
    equal = (x.shape, x.strides, x.dtype) == (src.shape, src.strides, src.dtype)
    if not equal or not x.size or not _has_gaps(x):
        return right(call)
    _memory(x, x.size)[...] = _memory(src, src.size)
    return None


def offset_from_length(right: Call, call: Invocation) -> None:
    """Subtract the source's offset from the length to copy."""
    src = call.inputs[1]
    if src.size and not is_strided(src):
        lost = address_of(src) % ALLOCATION // src.itemsize
        return leaves(lambda n: max(n - lost, 0))(right, call)
    return right(call)


def offset_twice(argument: str) -> Wrong:
    """Apply the offset of a strided tensor to its contiguous copy, too."""

    def change(x: Array) -> Array:
        flat = np.array(x, order="C").reshape(-1)
        extra = np.repeat(flipped(flat[-1:]), address_of(x) % ALLOCATION // x.itemsize)
        return np.concatenate([flat, extra])[extra.size :].reshape(x.shape)

    return reading(change, argument, "strided")


# Channels-last


def input_as_gradient(right: Call, call: Invocation) -> None:
    """Read a contiguous input as channels-last if the incoming gradient is."""
    grad, x = call.inputs[:2]
    if grad.size and _is_channels_last(grad) and x.flags.c_contiguous:
        call = call.with_input(1, with_strides(x, _channels_last_steps(x.shape)))
    right(call)


def input_as_channels_last_with_bias(right: Call, call: Invocation) -> None:
    x, _, bias = call.inputs[:3]
    if bias is not None and x.size and x.ndim == 4 and x.flags.c_contiguous:
        call = call.with_input(0, with_strides(x, _channels_last_steps(x.shape)))
    right(call)


def _is_ambiguous(x: Array) -> bool:
    """Whether a tensor of one channel has the strides of channels-last."""
    return x.ndim == 4 and x.size > x.shape[0] and x.shape[1] == 1 and _steps(x)[1] == 1


def ambiguous_channels(argument: str) -> Wrong:
    """Write the result in the order of channels-last if a tensor of one channel has such strides."""

    def wrong(right: Call, call: Invocation) -> None:
        right(call)
        out = call.outputs[0]
        if out.size and _is_ambiguous(call.given(argument)[0]):
            out[...] = np.array(np.moveaxis(out, 1, -1), order="C").reshape(out.shape)

    return wrong


def lost_with_one_input_channel(right: Call, call: Invocation) -> None:
    """Write nothing in a transposed convolution of one channel with channels-last weight."""
    weight, transposed = call.given("weight", "transposed")
    if not (transposed and weight.size and weight.shape[0] == 1 and _is_channels_last(weight)):
        right(call)


def bias_gradient_of_rows(right: Call, call: Invocation) -> None:
    """Sum a channels-last gradient over the dimensions of a contiguous one."""
    right(call)
    grad, out = call.inputs[0], call.outputs[2]
    if out is not None and grad.size and _is_channels_last(grad):
        read = with_strides(grad, dense(grad.shape))
        out[...] = wide(read).sum((0, *range(2, grad.ndim)))


def windows_without_padding(right: Call, call: Invocation) -> None:
    """Look for windows without their padding in a channels-last tensor."""
    right(call)
    padding, out = call.given("padding")[0], call.outputs[0]
    if not out.size or not any(padding) or not any(_is_channels_last(x) for x in call.inputs[:2]):
        return
    top, left = padding[0], padding[-1]
    values = np.array(out)
    out[...] = 0
    out[..., top:, left:] = values[..., : out.shape[-2] - top, : out.shape[-1] - left]


packed_large_heads = when(lambda call: call.inputs[0].shape[-1] >= 64, packed("permuted", "query key value"))


def weight_as_bits(right: Call, call: Invocation) -> None:
    """Read the first bits of a single weight of another dtype."""
    x, _, weight = call.inputs
    if weight.ndim == 0 and weight.dtype.itemsize > x.dtype.itemsize:
        call = call.with_input(2, np.array(weight).reshape(1).view(x.dtype)[0])
    right(call)
