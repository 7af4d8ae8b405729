"""ONNX operators (domain ai.onnx, opset 18 and later) as functions of PyTorch tensors.

Source: https://onnx.ai/onnx/operators. A function takes the attributes of a node and its inputs; an absent optional
input is None. Inputs that must be known before the kernel runs (shapes, axes, pads) are numbers: see :data:`HOST`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx
import torch
import torch.nn.functional as F
from torch import Tensor


class Attributes(dict[str, Any]):
    """Attributes of a node, which know those that no one has asked for.

    Args:
        given: by the model.
        defaults: of the standard.
    """

    # Attributes for training, hints, and those that repeat what the inputs say.
    IGNORED = frozenset(
        "hidden_size kernel_shape momentum round_mode saturate seed sorted stash_type storage_order".split()
    )

    def __init__(self, given: dict[str, Any], defaults: dict[str, Any]) -> None:
        super().__init__({**defaults, **given})
        changed = {name for name, value in given.items() if value and value != defaults.get(name)}
        self.unread = changed - self.IGNORED

    def __getitem__(self, name: str) -> Any:
        self.unread.discard(name)
        if name not in self:
            raise ValueError(f"no attribute {name!r}")
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or the default."""
        self.unread.discard(name)
        return super().get(name, default)


Function = Callable[..., Any]

# Inputs of each operator that are numbers or lists of numbers.
HOST: dict[str, tuple[int, ...]] = {
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "Dropout": (2,),
    "Expand": (1,),
    "Pad": (1, 2, 3),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean"), (1,)),
    **dict.fromkeys(("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"), (1,)),
}
# The shape of the result depends on values.
DATA_DEPENDENT = frozenset({"NonZero", "Range"})

# Keyed by onnx.TensorProto.DataType.
DTYPES: dict[int, torch.dtype] = {
    number: getattr(torch, onnx.helper.tensor_dtype_to_np_dtype(number).name)
    for number in (*range(1, 8), *range(9, 18), 19)  # all but strings, and kinds of float8 and of 4 bits
}


def _of_inputs_alone(function: Function) -> Function:
    """A function of the inputs alone."""
    return lambda a, *x: function(*x)


def _div(a: Attributes, x: Tensor, y: Tensor) -> Tensor:
    return torch.div(x, y) if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def _mod(a: Attributes, x: Tensor, y: Tensor) -> Tensor:
    return torch.fmod(x, y) if a["fmod"] else torch.remainder(x, y)


def _fold(function: Function) -> Function:
    """Convert an operator of one or more inputs."""

    def fold(a: Attributes, first: Tensor, *rest: Tensor) -> Tensor:
        for each in rest:
            first = function(first, each)
        return first

    return fold


def _clip(a: Attributes, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    return x if low is None and high is None else torch.clamp(x, low, high)


def _reshape(a: Attributes, x: Tensor, shape: list[int]) -> Tensor:
    copied = not a["allowzero"]
    return x.reshape([x.shape[i] if size == 0 and copied else size for i, size in enumerate(shape)])


def _squeeze(a: Attributes, x: Tensor, axes: list[int] | None = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueeze(a: Attributes, x: Tensor, axes: list[int]) -> Tensor:
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def _flatten(a: Attributes, x: Tensor) -> Tensor:
    axis = a["axis"]
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _transpose(a: Attributes, x: Tensor) -> Tensor:
    return x.permute(a.get("perm") or list(reversed(range(x.dim()))))


def _expand(a: Attributes, x: Tensor, shape: list[int]) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(shape)))


def _tile(a: Attributes, x: Tensor, repeats: list[int]) -> Tensor:
    return x.repeat(repeats)


def _concat(a: Attributes, *x: Tensor) -> Tensor:
    return torch.cat(x, a["axis"])


def _split(a: Attributes, x: Tensor, sizes: list[int] | None = None) -> tuple[Tensor, ...]:
    axis = a["axis"]
    if sizes is None:
        return x.split(-(-x.shape[axis] // a["num_outputs"]), axis)
    return x.split(sizes, axis)


def _slice(
    a: Attributes,
    x: Tensor,
    starts: list[int],
    ends: list[int],
    axes: list[int] | None = None,
    steps: list[int] | None = None,
) -> Tensor:
    axes = list(range(len(starts))) if axes is None else axes
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(axes), strict=True):
        if step > 0:
            x = x[(slice(None),) * (axis % x.dim()) + (slice(start, end, step),)]
        else:
            places = list(range(x.shape[axis])[start:end:step])
            x = x.index_select(axis, torch.tensor(places, dtype=torch.int64, device=x.device))
    return x


def _gather(a: Attributes, x: Tensor, indices: Tensor) -> Tensor:
    axis = a["axis"] % x.dim()
    picked = x.index_select(axis, _positive(indices.reshape(-1), x.shape[axis]))
    return picked.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def _positive(indices: Tensor, size: int) -> Tensor:
    return torch.where(indices < 0, indices + size, indices)


def _gather_elements(a: Attributes, x: Tensor, indices: Tensor) -> Tensor:
    axis = a["axis"]
    return x.gather(axis, _positive(indices, x.shape[axis]))


def _gather_nd(a: Attributes, x: Tensor, indices: Tensor) -> Tensor:
    batch = a["batch_dims"]
    if batch:
        leading = x.shape[:batch]
        x, indices = x.flatten(0, batch - 1), indices.flatten(0, batch - 1)
        each = [
            _gather_nd(Attributes({}, {"batch_dims": 0}), part, index)
            for part, index in zip(x, indices, strict=True)
        ]
        return torch.stack(each).unflatten(0, leading)
    return x[tuple(indices.unbind(-1))]


def _scatter_elements(a: Attributes, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis, reduction = a["axis"], a["reduction"]
    indices = _positive(indices, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, indices, updates)
    return x.scatter_reduce(axis, indices, updates, _REDUCTIONS[reduction])


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scatter_nd(a: Attributes, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    reduction = a["reduction"]
    if reduction not in ("none", "add"):
        raise NotImplementedError(f"reduction {reduction}")
    return x.index_put(tuple(indices.unbind(-1)), updates, accumulate=reduction == "add")


def _pad(
    a: Attributes, x: Tensor, pads: list[int], value: Any = None, axes: list[int] | None = None
) -> Tensor:
    given = a["mode"]
    mode: str = {"edge": "replicate", "wrap": "circular"}.get(given, given)
    value = value[0] if isinstance(value, list) else value
    half = len(pads) // 2
    around = [(0, 0)] * x.dim()
    for i, axis in enumerate(range(x.dim()) if axes is None else axes):
        around[axis] = (pads[i], pads[half + i])
    flat = [size for pair in reversed(around) for size in pair]
    if mode == "constant":
        return F.pad(x, flat, value=value or 0)
    while flat[-2:] == [0, 0]:  # PyTorch pads the last dimensions only
        flat = flat[:-2]
    return F.pad(x, flat, mode)


def _cast(a: Attributes, x: Tensor) -> Tensor:
    return x.to(DTYPES[a["to"]])


def _shape(a: Attributes, x: Tensor) -> Tensor:
    return torch.tensor(x.shape[a["start"] : a.get("end", x.dim())], dtype=torch.int64)


def _constant_of_shape(a: Attributes, shape: list[int]) -> Tensor:
    value = a.get("value", torch.zeros(1))
    return torch.full(shape, value.item(), dtype=value.dtype)


def _range(a: Attributes, start: Tensor, limit: Tensor, step: Tensor) -> Tensor:
    return torch.arange(start.item(), limit.item(), step.item(), dtype=start.dtype, device=start.device)


def _cumsum(a: Attributes, x: Tensor, axis: int) -> Tensor:
    x = x.flip(axis) if a["reverse"] else x
    total = x.cumsum(axis, dtype=x.dtype)
    total = total - x if a["exclusive"] else total
    return total.flip(axis) if a["reverse"] else total


def _trilu(a: Attributes, x: Tensor, k: int = 0) -> Tensor:
    return x.triu(k) if a["upper"] else x.tril(k)


def _reduce(function: Function) -> Function:
    """Reduce some axes by function(x, axes, keepdim)."""

    def reduce(a: Attributes, x: Tensor, axes: list[int] | None = None) -> Tensor:
        if not axes and a["noop_with_empty_axes"]:
            return x
        over = axes or list(range(x.dim()))
        reduced: Tensor = function(x, over, bool(a["keepdims"]))
        return reduced

    return reduce


def _prod(x: Tensor, axes: list[int], keepdim: bool) -> Tensor:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = x.prod(axis, keepdim, dtype=x.dtype)
    return x


def _arg(function: Function) -> Function:
    def arg(a: Attributes, x: Tensor) -> Tensor:
        axis = a["axis"]
        if a["select_last_index"]:
            x = x.flip(axis)
        found = function(x, axis, bool(a["keepdims"]))
        return x.shape[axis] - 1 - found if a["select_last_index"] else found

    return arg


def _topk(a: Attributes, x: Tensor, k: list[int]) -> tuple[Tensor, ...]:
    axis = a["axis"]
    found = x.sort(dim=axis, descending=bool(a["largest"]), stable=True)  # the first of equal elements
    return tuple(each.narrow(axis, 0, k[0]) for each in found)


def _is_inf(a: Attributes, x: Tensor) -> Tensor:
    positive, negative = a["detect_positive"], a["detect_negative"]
    return (x.isposinf() & bool(positive)) | (x.isneginf() & bool(negative))


# Those named as in PyTorch, but for capitals.
_SAME = "Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor IsNaN Log MatMul Mul Neg "
_SAME += "Reciprocal Round Sigmoid Sign Sin Sinh Sqrt Sub Tan Tanh Where"
_ELEMENTWISE: dict[str, Function] = {
    **{name: getattr(torch, name.lower()) for name in _SAME.split()},
    **{f"Bitwise{name}": getattr(torch, f"bitwise_{name.lower()}") for name in ("And", "Not", "Or", "Xor")},
    **{name: getattr(torch, f"logical_{name.lower()}") for name in ("And", "Not", "Or", "Xor")},
    "CastLike": lambda x, other: x.to(other.dtype),
    "Det": torch.linalg.det,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Identity": lambda x: x,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "NonZero": lambda x: x.nonzero().T,
    "Pow": lambda x, y: torch.pow(x, y).to(x.dtype),
    "Size": lambda x: torch.tensor(x.numel()),
}
FUNCTIONS: dict[str, Function] = {
    **{name: _of_inputs_alone(function) for name, function in _ELEMENTWISE.items()},
    "ArgMax": _arg(torch.argmax),
    "ArgMin": _arg(torch.argmin),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cumsum,
    "Div": _div,
    "Einsum": lambda a, *x: torch.einsum(a["equation"], *x),
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "IsInf": _is_inf,
    "Max": _fold(torch.maximum),
    "Mean": lambda a, *x: torch.stack(torch.broadcast_tensors(*x)).mean(0),
    "Min": _fold(torch.minimum),
    "Mod": _mod,
    "Pad": _pad,
    "Range": _range,
    "ReduceL2": _reduce(lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep)),
    "ReduceLogSumExp": _reduce(torch.logsumexp),
    "ReduceMax": _reduce(torch.amax),
    "ReduceMean": _reduce(torch.mean),
    "ReduceMin": _reduce(torch.amin),
    "ReduceProd": _reduce(_prod),
    "ReduceSum": _reduce(lambda x, axes, keep: x.sum(axes, keep, dtype=x.dtype)),
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sum": _fold(torch.add),
    "Tile": _tile,
    "TopK": _topk,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
