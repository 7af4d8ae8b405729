"""Layer, group and batch normalization, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isthmus.opset import dtypes as dt
from isthmus.opset.families._normalization_calls import (
    batch_gradients,
    batches,
    group_gradients,
    groups,
    layer_gradients,
    layers,
)
from isthmus.opset.operator import ONLY_NAN, Operator, accumulated, op

if TYPE_CHECKING:
    import torch

_FORWARD = accumulated(32, "a mean and a variance by blocked sums or Welford's")
_BACKWARD = accumulated(64, "two blocked sums over the row or the batch")


def _mean_and_scale(input: torch.Tensor, dims: list[int], eps: float) -> tuple[Any, Any]:
    mean = input.mean(dims, keepdim=True)
    return mean, ((input - mean) ** 2).mean(dims, keepdim=True).add(eps).rsqrt()


def _layer_size(
    input: Any, normalized_shape: list[int], weight: Any, bias: Any, eps: float
) -> tuple[Any, ...]:
    dims = list(range(-len(normalized_shape), 0))
    _, scale = _mean_and_scale(input, dims, eps)
    size = (input.abs() + input.abs().mean(dims, keepdim=True)) * scale
    out = size * (weight.abs() if weight is not None else 1) + (bias.abs() if bias is not None else 0)
    mean = input.abs().mean(dims, keepdim=True)
    return out, mean, scale * (2 + mean * scale)  # Welford's: the condition of the variance


def _normalized(grad: Any, weight: Any, hat: Any, scale: Any, dims: Any, magnitude: bool) -> Any:
    """Gradient through a normalization over ``dims``: scale * (g - mean(g) - hat * mean(g * hat)), g = grad * w."""
    slope = grad if weight is None else grad * weight
    if magnitude:
        slope, hat = slope.abs(), hat.abs()
        return scale * (slope + slope.mean(dims, keepdim=True) + hat * (slope * hat).mean(dims, keepdim=True))
    return scale * (slope - slope.mean(dims, keepdim=True) - hat * (slope * hat).mean(dims, keepdim=True))


def _layer_gradient(grad_out: Any, input: Any, normalized_shape: list[int], mean: Any, rstd: Any, weight: Any,
                    bias: Any, output_mask: list[bool], magnitude: bool = False) -> tuple[Any, ...]:  # fmt: skip
    if (output_mask[1] and weight is None) or (output_mask[2] and bias is None):
        raise ValueError("the gradient of an absent weight or bias")
    axes = len(normalized_shape)
    dims, batch = list(range(-axes, 0)), list(range(input.dim() - axes))
    hat = (input.abs() + mean.abs()) * rstd if magnitude else (input - mean) * rstd
    grad = grad_out.abs() if magnitude else grad_out
    found = (_normalized(grad, weight, hat, rstd, dims, magnitude), (grad * hat).sum(batch), grad.sum(batch))
    return _wanted(found, output_mask)


def _wanted(found: tuple[Any, ...], mask: list[bool]) -> tuple[Any, ...]:
    return tuple(each if wanted else None for each, wanted in zip(found, mask, strict=True))


def _per_channel(values: Any, tensor: Any) -> Any:
    return values.reshape(1, -1, *[1] * (tensor.dim() - 2)) if values is not None else 1


def _group_size(input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> Any:
    flat = input.reshape(N, group, -1)
    _, scale = _mean_and_scale(flat, [2], eps)
    size = (flat.abs() + flat.abs().mean(2, keepdim=True)) * scale
    out = size.reshape(input.shape) * abs(_per_channel(weight, input))
    out = out + (_per_channel(bias, input).abs() if bias is not None else 0)
    mean, scale = flat.abs().mean(2), scale.squeeze(2)
    return out, mean, scale * (2 + mean * scale)  # the same formula as for layers


def _group_gradient(grad_out: Any, input: Any, mean: Any, rstd: Any, weight: Any, N: int, C: int, HxW: int,
                    group: int, output_mask: list[bool], magnitude: bool = False) -> tuple[Any, ...]:  # fmt: skip
    if weight is None and any(output_mask[1:]):
        raise ValueError("PyTorch gives gradients of weight and bias only with a weight")
    flat = input.reshape(N, group, -1)
    mean, rstd = mean.unsqueeze(2), rstd.unsqueeze(2)
    hat = (flat.abs() + mean.abs()) * rstd if magnitude else (flat - mean) * rstd
    grad = grad_out.abs() if magnitude else grad_out
    slope = (grad * _per_channel(weight, input)).reshape(N, group, -1)
    first = _normalized(slope, 1, hat, rstd, [2], magnitude).reshape(input.shape)
    batch = [i for i in range(input.dim()) if i != 1]
    return _wanted((first, (grad * hat.reshape(input.shape)).sum(batch), grad.sum(batch)), output_mask)


def _axes(input: Any) -> list[int]:
    return [i for i in range(input.dim()) if i != 1]


def _batch_size(input: Any, weight: Any, bias: Any, running_mean: Any = None, running_var: Any = None,
                training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> tuple[Any, ...]:  # fmt: skip
    axes = _axes(input)
    big = input.abs().mean(axes)
    variance = input.var(axes, correction=0)
    if not training:
        big, variance = running_mean.abs(), running_var
    scale = (variance + eps).rsqrt()
    out = (input.abs() + _per_channel(big, input)) * _per_channel(scale, input)
    out = out * abs(_per_channel(weight, input)) + abs(_per_channel(bias, input))
    return out, big, 2 * scale, variance


def _native_size(**a: Any) -> tuple[Any, ...]:
    out, big, scale, variance = _batch_size(**a)
    if a["running_mean"] is None:
        return None, None, out, big, scale
    if not a["training"]:
        return a["running_mean"].abs(), a["running_var"], out, big, scale
    return a["running_mean"].abs() + big, 2 * (a["running_var"] + 2 * variance), out, big, scale


def _stateless_size(**a: Any) -> tuple[Any, ...]:
    return _batch_size(**a)[:3]


def _batch_norm(input: Any, weight: Any, bias: Any, running_mean: Any = None, running_var: Any = None,
                training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> tuple[Any, ...]:  # fmt: skip
    """Batch norm; in evaluation it returns the used statistics, like CUDA. PyTorch's own sums are less precise."""
    if (running_mean is None) != (running_var is None):
        raise ValueError("one running statistic without the other")
    axes = _axes(input)
    mean, variance = running_mean, running_var
    if training:
        mean = input.mean(axes)
        squares = (input - _per_channel(mean, input)).square()
        variance, count = squares.mean(axes), input.numel() // input.shape[1]
        for running, value in ((running_mean, mean), (running_var, squares.sum(axes) / (count - 1))):
            if running is not None:
                running.lerp_(value, momentum)
    scale = (variance + eps).rsqrt()
    hat = (input - _per_channel(mean, input)) * _per_channel(scale, input)
    out = hat * _per_channel(weight, input) + (_per_channel(bias, input) if bias is not None else 0)
    return out, mean.clone(), scale


def _batch_gradient(grad_out: Any, input: Any, weight: Any, running_mean: Any, running_var: Any, save_mean: Any,
                    save_invstd: Any, train: bool, eps: float, output_mask: list[bool],
                    magnitude: bool = False) -> tuple[Any, ...]:  # fmt: skip
    axes = _axes(input)
    mean = _per_channel(save_mean if train else running_mean, input)
    scale = _per_channel(save_invstd if train else (running_var + eps).rsqrt(), input)
    hat = (input.abs() + mean.abs()) * scale if magnitude else (input - mean) * scale
    grad = grad_out.abs() if magnitude else grad_out
    factor = _per_channel(abs(weight) if magnitude and weight is not None else weight, input)
    first = _normalized(grad, factor, hat, scale, axes, magnitude) if train else grad * factor * scale
    return _wanted((first, (grad * hat).sum(axes), grad.sum(axes)), output_mask)


def _size_of(gradient: Any) -> Any:
    return lambda **arguments: gradient(**arguments, magnitude=True)


_CHANNELS = "(input.shape[1],)"


_WANTED = "each if wanted else None for each, wanted"
_SAVED = f"(input.shape, {_CHANNELS}, {_CHANNELS})"
_TRIPLE = "(input.dtype, accumulator(input), accumulator(input))"
_ROW = "tuple(1 if i >= len(input.shape) - len(normalized_shape) else n for i, n in enumerate(input.shape))"

OPERATORS: list[Operator] = [
    op("native_layer_norm", dt.FLOATS, f"(input.shape, {_ROW}, {_ROW})", _TRIPLE, layers, _FORWARD,
       magnitude=_layer_size, leading=True, empty=False, resizable=True, special=ONLY_NAN),
    op("native_layer_norm_backward", dt.FLOATS,
       f"tuple({_WANTED} in zip((input.shape, tuple(normalized_shape), tuple(normalized_shape)), output_mask))",
       f"tuple({_WANTED} in zip((input.dtype, weight and weight.dtype, bias and bias.dtype), output_mask))",
       layer_gradients, _BACKWARD, reference=_layer_gradient, magnitude=_size_of(_layer_gradient), strided=False,
       leading=True, empty=False, resizable=True, special=ONLY_NAN),
    op("native_group_norm", dt.FLOATS, "(input.shape, (N, group), (N, group))",
       "(input.dtype, input.dtype, input.dtype)", groups, _FORWARD, magnitude=_group_size,
       strided=False, empty=False, resizable=True, special=ONLY_NAN),
    op("native_group_norm_backward", dt.FLOATS, f"tuple({_WANTED} in zip((input.shape, (C,), (C,)), output_mask))",
       f"tuple({_WANTED} in zip([input.dtype] * 3, output_mask))",
       group_gradients, _BACKWARD, reference=_group_gradient, magnitude=_size_of(_group_gradient), strided=False,
       empty=False, resizable=True, special=ONLY_NAN),
    op("native_batch_norm", dt.FLOATS, _SAVED, _TRIPLE, batches(), _FORWARD,
       reference=_batch_norm, magnitude=_native_size,
       empty=False, resizable=True, special=ONLY_NAN),
    op("_native_batch_norm_legit", dt.FLOATS, _SAVED, _TRIPLE, batches(), _FORWARD,
       reference=_batch_norm, magnitude=_native_size,
       empty=False, resizable=True, special=ONLY_NAN),
    op("_native_batch_norm_legit_no_training", dt.FLOATS, _SAVED, _TRIPLE, batches("evaluation"), _FORWARD,
       reference=_batch_norm, magnitude=_stateless_size,
       empty=False, resizable=True, special=ONLY_NAN),
    op("_native_batch_norm_legit.no_stats", dt.FLOATS, _SAVED, _TRIPLE, batches("none"), _FORWARD,
       reference=_batch_norm, magnitude=_stateless_size, empty=False, resizable=True, special=ONLY_NAN),
    op("native_batch_norm_backward", dt.FLOATS,
       f"(input.shape, *[{_WANTED} in zip(({_CHANNELS}, {_CHANNELS}), output_mask[1:])])",
       f"(input.dtype, *[{_WANTED} in zip([(weight or input).dtype] * 2, output_mask[1:])])",
       batch_gradients, _BACKWARD, reference=_batch_gradient,
       magnitude=_size_of(_batch_gradient), empty=False, resizable=True, special=ONLY_NAN),
]  # fmt: skip
