"""apex's LayerNorm and RMSNorm."""

import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from isthmus.ops.norm import rms_norm
from isthmus.ops.registration import compute_dtype

Shape = int | Sequence[int]


def _sizes(shape: Shape) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, numbers.Integral) else tuple(shape)  # type: ignore[arg-type]


class _FromOutput(torch.autograd.Function):
    """A norm that saves its output instead of its input for the backward."""

    @staticmethod
    def forward(
        ctx: Any, input: Any, weight: Any, bias: Any, shape: tuple[int, ...], eps: float, rms: bool
    ) -> Any:
        wide, dims = input.to(compute_dtype(input)), tuple(range(-len(shape), 0))
        centred = wide if rms else wide - wide.mean(dims, keepdim=True)
        rstd = (centred.square().mean(dims, keepdim=True) + eps).rsqrt()
        out = centred * rstd
        out = out if weight is None else out * weight
        out = (out if bias is None else out + bias).to(input.dtype if weight is None else weight.dtype)
        ctx.save_for_backward(out, weight, bias, rstd)
        ctx.dims, ctx.eps, ctx.rms, ctx.dtype = dims, eps, rms, input.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        out, weight, bias, rstd = ctx.saved_tensors
        dims, hat, slope = ctx.dims, out.to(rstd.dtype), grad.to(rstd.dtype)
        dw = db = None
        if bias is not None:
            hat = hat - bias
            db = _summed(slope, bias)
        if weight is not None:
            wide = weight.to(rstd.dtype)
            tiny = torch.where(wide < 0, -ctx.eps, ctx.eps).to(rstd.dtype)
            hat = hat / torch.where(wide.abs() < ctx.eps, tiny, wide)  # like apex, for weights near 0
            dw = _summed(slope * hat, weight)
            slope = slope * wide
        dx = slope - hat * (slope * hat).mean(dims, keepdim=True)
        if not ctx.rms:
            dx = dx - slope.mean(dims, keepdim=True)
        return (dx * rstd).to(ctx.dtype), dw, db, None, None, None


def _summed(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return value.reshape(-1, *like.shape).sum(0).to(like.dtype)


def fused_layer_norm_affine(
    input: torch.Tensor,
    weight: Any,
    bias: Any,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> torch.Tensor:
    """LayerNorm over the last dimensions.

    Args:
        input: [..., *normalized_shape].
        weight: [*normalized_shape], or None.
        bias: like ``weight``.
        normalized_shape: the normalized dimensions.
        eps: added to the variance.
        memory_efficient: save the output instead of the input for the backward.

    Returns:
        A tensor like ``input``.
    """
    if memory_efficient:
        out = _FromOutput.apply(input, weight, bias, _sizes(normalized_shape), eps, False)
        return out.to(input.dtype)
    return nn.functional.layer_norm(input, _sizes(normalized_shape), weight, bias, eps)


def fused_rms_norm_affine(
    input: torch.Tensor,
    weight: Any,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> torch.Tensor:
    """RMSNorm over the last dimensions; arguments as :func:`fused_layer_norm_affine`."""
    shape = _sizes(normalized_shape)
    if memory_efficient:
        out = _FromOutput.apply(input, weight, None, shape, eps, True)
        return out.to(input.dtype)
    if weight is not None:
        return rms_norm(input, weight, eps)
    return rms_norm(input.flatten(-len(shape)), None, eps).view(input.shape)


def fused_layer_norm(
    input: torch.Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False
) -> torch.Tensor:
    """:func:`fused_layer_norm_affine` without weight and bias."""
    return fused_layer_norm_affine(input, None, None, normalized_shape, eps, memory_efficient)


def fused_rms_norm(
    input: torch.Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False
) -> torch.Tensor:
    """:func:`fused_rms_norm_affine` without weight."""
    return fused_rms_norm_affine(input, None, normalized_shape, eps, memory_efficient)


def mixed_dtype_fused_layer_norm_affine(
    input: torch.Tensor,
    weight: Any,
    bias: Any,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> torch.Tensor:
    """:func:`fused_layer_norm_affine` whose result has the weight's dtype."""
    if memory_efficient:
        return _FromOutput.apply(input, weight, bias, _sizes(normalized_shape), eps, False)
    return fused_layer_norm_affine(input.to(weight.dtype), weight, bias, normalized_shape, eps)


def mixed_dtype_fused_rms_norm_affine(
    input: torch.Tensor,
    weight: Any,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> torch.Tensor:
    """:func:`fused_rms_norm_affine` whose result has the weight's dtype."""
    if memory_efficient:
        return _FromOutput.apply(input, weight, None, _sizes(normalized_shape), eps, True)
    return fused_rms_norm_affine(input.to(weight.dtype), weight, normalized_shape, eps)


class FusedLayerNormAffineFunction:
    """The function under the name whose ``forward`` callers such as Megatron-LM inspect."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Any,
        weight: Any,
        bias: Any,
        normalized_shape: Any,
        eps: float,
        memory_efficient: bool = False,
    ) -> Any:
        """:func:`fused_layer_norm_affine`."""
        return fused_layer_norm_affine(input, weight, bias, normalized_shape, eps, memory_efficient)

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """:func:`fused_layer_norm_affine`."""
        return fused_layer_norm_affine(*args, **kwargs)


class _Norm(nn.Module):
    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        memory_efficient: bool = False,
        *,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = _sizes(normalized_shape), eps
        self.elementwise_affine, self.memory_efficient = elementwise_affine, memory_efficient
        self.weight: Any = None
        if elementwise_affine:
            self.weight = nn.Parameter(torch.ones(self.normalized_shape, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0."""
        for name, each in self.named_parameters():
            nn.init.ones_(each) if name == "weight" else nn.init.zeros_(each)

    def extra_repr(self) -> str:
        """The module's arguments, as ``print`` shows them."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class FusedLayerNorm(_Norm):
    """LayerNorm with apex's arguments.

    Args:
        normalized_shape: the last dimensions of the input.
        eps: added to the variance.
        elementwise_affine: whether to have weight and bias.
        memory_efficient: save the output instead of the input for the backward.
    """

    _function = staticmethod(fused_layer_norm_affine)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.bias: Any = nn.Parameter(torch.zeros_like(self.weight)) if self.elementwise_affine else None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalize the input."""
        return self._function(
            input, self.weight, self.bias, self.normalized_shape, self.eps, self.memory_efficient
        )


class FusedRMSNorm(_Norm):
    """RMSNorm with the arguments of :class:`FusedLayerNorm`."""

    _function = staticmethod(fused_rms_norm_affine)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalize the input."""
        return self._function(input, self.weight, self.normalized_shape, self.eps, self.memory_efficient)


class MixedFusedLayerNorm(FusedLayerNorm):
    """LayerNorm whose result has the weight's dtype."""

    _function = staticmethod(mixed_dtype_fused_layer_norm_affine)


class MixedFusedRMSNorm(FusedRMSNorm):
    """RMSNorm whose result has the weight's dtype."""

    _function = staticmethod(mixed_dtype_fused_rms_norm_affine)
