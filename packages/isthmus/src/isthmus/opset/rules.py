"""The language of shape and dtype rules, and its checker.

A rule is a Python expression over an operator's arguments. A shape rule yields a shape, a tuple of shapes for several
outputs, or a list of shapes for a list output. A dtype rule yields dtype names in the same structure.
Rules are checked against every reference when golden data is generated.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.sampling import Array, Case

Shape = tuple[int, ...]


def like(tensor: Array) -> Shape:
    """The shape of a tensor."""
    return tensor.shape


def broadcast(*tensors: Any) -> Shape:
    """The broadcast shape of tensors and shapes; None is ignored."""
    shapes = [t.shape if isinstance(t, Array) else tuple(t) for t in tensors if t is not None]
    return np.broadcast_shapes(*shapes)


def _axes(rank: int, dim: int | Sequence[int] | None) -> set[int]:
    if dim is None or dim == []:
        return set(range(rank))
    dims = [dim] if isinstance(dim, int) else dim
    return {d % rank if rank else 0 for d in dims}


def reduced(tensor: Array, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Shape:
    """The shape after a reduction over dim (None: all)."""
    axes = _axes(len(tensor.shape), dim)
    return tuple(1 if i in axes else n for i, n in enumerate(tensor.shape) if keepdim or i not in axes)


def at(tensor: Array | Shape, dim: int, size: int) -> Shape:
    """The shape with one dimension resized."""
    shape = list(tensor.shape if isinstance(tensor, Array) else tensor)
    if shape:
        shape[dim] = size
    return tuple(shape)


def inserted(tensor: Array, dim: int, shape: Shape) -> Shape:
    """The shape with one dimension replaced by several."""
    dim %= max(len(tensor.shape), 1)
    return (*tensor.shape[:dim], *shape, *tensor.shape[dim + 1 :])


def window(size: int, kernel: int, stride: int, pad: int, dilation: int = 1, ceil: bool = False) -> int:
    """Output size of a sliding window."""
    span = size + 2 * pad - dilation * (kernel - 1) - 1
    out = (math.ceil(span / stride) if ceil else span // stride) + 1
    if ceil and (out - 1) * stride >= size + pad:
        out -= 1
    return out


def per(values: Sequence[Any], i: int) -> Any:
    """Item i of a parameter given per dimension, or once for all."""
    return values[0] if len(values) == 1 else values[i]


def windows(
    size: Shape, kernel: Any, stride: Any, pad: Any, dilation: Any = (1,), ceil: bool = False
) -> Shape:
    """Output sizes of a sliding window over several dimensions; an empty stride is the kernel size."""
    return tuple(
        window(n, per(kernel, i), per(stride or kernel, i), per(pad, i), per(dilation, i), ceil)
        for i, n in enumerate(size)
    )


def convolved(
    tensor: Array,
    weight: Array,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    extra: Any,
    groups: int,
) -> Shape:
    """Shape of a convolution or transposed convolution."""
    kernel = weight.shape[2:]
    if not transposed:
        return (
            tensor.shape[0], weight.shape[0], *windows(tensor.shape[2:], kernel, stride, padding, dilation)
        )  # fmt: skip
    sizes = tuple(
        (n - 1) * per(stride, i)
        - 2 * per(padding, i)
        + per(dilation, i) * (kernel[i] - 1)
        + per(extra, i)
        + 1
        for i, n in enumerate(tensor.shape[2:])
    )
    return (tensor.shape[0], weight.shape[1] * groups, *sizes)


def padded(tensor: Array, pad: Sequence[int]) -> Shape:
    """Shape after padding; ``pad`` lists pairs from the last dimension on."""
    shape = list(tensor.shape)
    for i in range(len(pad) // 2):
        shape[-1 - i] += pad[2 * i] + pad[2 * i + 1]
    return tuple(shape)


def indexed(tensor: Array, indices: Sequence[Array | None]) -> Shape:
    """Shape of ``tensor[indices]`` with integer indices."""
    used = [i for i, index in enumerate(indices) if index is not None]
    joint = broadcast(*[index for index in indices if index is not None])
    rest = [n for i, n in enumerate(tensor.shape) if i not in used]
    adjacent = used == list(range(used[0], used[0] + len(used)))
    first = used[0] if adjacent else 0
    return (*rest[:first], *joint, *rest[first:])


def steps(start: Any, end: Any, step: Any = 1, dtype: str = "") -> Shape:
    """Length of a range; numbers are truncated first for int64."""
    if dtype == "int64":
        start, end, step = int(start), int(end), int(step)
    return (max(0, math.ceil((end - start) / step)),)


_RANKS = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


def promote(*tensors: Array) -> str:
    """Promoted dtype of tensors; bfloat16 and float16 give float32."""
    names = {t.dtype for t in tensors if t is not None}
    top = max(_RANKS[dt.DTYPES[n].kind] for n in names)
    kept = {n for n in names if _RANKS[dt.DTYPES[n].kind] == top}
    if kept == set(dt.HALVES):
        return "float32"
    return max(kept, key=lambda n: dt.DTYPES[n].numpy.itemsize)


def accumulator(tensor: Array) -> str:
    """float32 for 16-bit floats, else the tensor's dtype."""
    return "float32" if tensor.dtype in dt.HALVES else tensor.dtype


def summed(tensor: Array, dtype: str | None = None) -> str:
    """Dtype of a sum: ``dtype`` if given, int64 for integers and bool, else the tensor's."""
    return dtype or (tensor.dtype if dt.DTYPES[tensor.dtype].kind == "float" else "int64")


_LANGUAGE = {
    function.__name__: function
    for function in (
        like, broadcast, reduced, at, inserted, window, windows, convolved, padded, indexed, steps, promote,
        accumulator, summed, per,
    )
} | {name: __builtins__[name] if isinstance(__builtins__, dict) else getattr(__builtins__, name)
     for name in ("len", "tuple", "list", "sum", "max", "min", "range", "zip", "enumerate")}  # fmt: skip


class RuleError(AssertionError):
    """A rule of the opset does not match the reference."""


def evaluate(rule: str, arguments: Mapping[str, Any]) -> Any:
    """Evaluate a rule for the arguments of a call."""
    # Passed as globals, because comprehensions do not see locals of eval.
    return eval(rule, {"__builtins__": {}, **_LANGUAGE, **arguments})


def check(case: Case, what: str, rule: str, found: list[Any]) -> None:
    """Compare a rule with the outputs' shapes or dtypes.

    Args:
        case: the call.
        what: "shape" or "dtype".
        rule: rule of the operator.
        found: for each output a shape or dtype, a list of them, or None.

    Raises:
        RuleError: they do not match.
    """
    said = evaluate(rule, case.arguments)
    expected = list(said) if isinstance(said, tuple) and len(found) != 1 else [said]
    if not found:
        expected = []
    if _plain(expected) != _plain(found):
        raise RuleError(f"{case.id}: the {what} rule {rule!r} gives {expected}, the reference {found}")


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
