"""RMSNorm (Zhang and Sennrich, 2019), alone or fused with the residual addition before it."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from isthmus.ops import autocast, cpu
from isthmus.ops.registration import apply, compute_dtype, is_batch_invariant, operator


@operator("rms_norm")
def _rms_norm(
    input: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    wide = input.to(compute_dtype(input))
    rstd = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    hat = wide * rstd
    return (hat if weight is None else hat * weight).to(input.dtype), rstd


@operator("add_rms_norm")
def _add_rms_norm(
    input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    total = input.to(compute_dtype(input)) + residual
    out, rstd = _rms_norm.composite(total, weight, eps)
    return out.to(input.dtype), total.to(input.dtype), rstd


@operator("rms_norm_backward")
def _rms_norm_backward(
    grad: torch.Tensor,
    grad_sum: torch.Tensor | None,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    rstd: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    kind = compute_dtype(input)
    wide, hat = grad.to(kind), input.to(kind) * rstd
    slope = wide if weight is None else wide * weight
    dx = rstd * (slope - hat * (slope * hat).mean(-1, keepdim=True))
    if grad_sum is not None:
        dx = dx + grad_sum
    dw = None if weight is None else torch.atleast_2d(wide * hat).flatten(0, -2).sum(0)
    return dx.to(input.dtype), dw


for _each in (_rms_norm, _add_rms_norm, _rms_norm_backward):
    cpu.add(_each)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
        out, rstd = _rms_norm(input, weight, eps)
        ctx.save_for_backward(input, weight, rstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        input, weight, rstd = ctx.saved_tensors
        dx, dw = _rms_norm_backward(grad, None, input, weight, rstd)
        return dx, None if weight is None else dw.to(weight.dtype), None


class _AddRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Any, residual: Any, weight: Any, eps: float) -> Any:
        out, total, rstd = _add_rms_norm(input, residual, weight, eps)
        ctx.save_for_backward(total, weight, rstd)
        return out, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, grad_sum: torch.Tensor) -> tuple[Any, ...]:
        total, weight, rstd = ctx.saved_tensors
        dx, dw = _rms_norm_backward(grad, grad_sum, total, weight, rstd)
        return dx, dx, None if weight is None else dw.to(weight.dtype), None


def rms_norm(
    input: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6, *, unit_offset: bool = False
) -> torch.Tensor:
    """``input * rsqrt(mean(input ** 2) + eps) * weight`` over the last dimensions, computed in float32 or wider.

    Args:
        input: [..., *normalized], float16, bfloat16, float32 or float64.
        weight: [*normalized] of any float dtype; None normalizes the last dimension without a weight.
        eps: added to the mean.
        unit_offset: multiply by ``1 + weight``, as Gemma does.

    Returns:
        A tensor like ``input``.

    Raises:
        ValueError: the weight does not have the shape of the last dimensions.
    """
    flat, factor = _rows("rms_norm", input, weight, unit_offset)
    out = apply(_RMSNorm, flat, factor, eps)
    return out if flat is input else out.view(input.shape)


def add_rms_norm(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    *,
    unit_offset: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add a residual and normalize: ``(rms_norm(input + residual), input + residual)``.

    Args:
        input: [..., *normalized], float16, bfloat16, float32 or float64.
        residual: like ``input``; under autocast the sum has the wider dtype of the two.
        weight: [*normalized], or None.
        eps: added to the mean.
        unit_offset: multiply by ``1 + weight``.

    In batch-invariant mode the rounded sum is normalized, else the exact one.

    Raises:
        ValueError: input and residual differ in shape or dtype, or the weight does not have the shape of the last
            dimensions.
    """
    input, residual = autocast.widest(input, residual)
    if input.shape != residual.shape or input.dtype != residual.dtype:
        raise ValueError(
            f"add_rms_norm: residual is {residual.dtype} {tuple(residual.shape)} and input is {input.dtype} "
            f"{tuple(input.shape)}; they must have the same shape and dtype"
        )
    # The sum is rounded first, as where a model adds and normalizes apart. Compiled code is outside of the mode.
    if not torch.compiler.is_compiling() and is_batch_invariant(input.device.type):
        total = input + residual
        return rms_norm(total, weight, eps, unit_offset=unit_offset), total
    flat, factor = _rows("add_rms_norm", input, weight, unit_offset)
    if flat is input:
        return apply(_AddRMSNorm, input, residual, factor, eps)
    out, total = apply(_AddRMSNorm, flat, residual.reshape(flat.shape), factor, eps)
    return out.view(input.shape), total.view(input.shape)


def normalize(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    eps: float,
    is_rms: bool,
    is_zero_centered: bool,
) -> torch.Tensor:
    """LayerNorm or RMSNorm of the last dimension.

    Args:
        input: [..., size].
        weight: [size], less 1 if ``is_zero_centered``.
        bias: [size], of a LayerNorm.
        eps: added to the variance.
        is_rms: without the mean.
        is_zero_centered: see ``weight``.

    Returns:
        A tensor like the input.
    """
    weight = weight + 1 if is_zero_centered else weight
    if is_rms:
        return rms_norm(input, weight, eps)
    return F.layer_norm(input, weight.shape, weight, bias, eps)


def _rows(
    name: str, input: torch.Tensor, weight: torch.Tensor | None, unit_offset: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Input and weight with the normalized dimensions flattened into one."""
    if not input.dim() or (weight is not None and not weight.dim()):
        raise ValueError(
            f"{name}: input has shape {tuple(input.shape)} and weight "
            f"{None if weight is None else tuple(weight.shape)}; both need a dimension to normalize"
        )
    if weight is None:
        return input, None
    if input.shape[input.dim() - weight.dim() :] != weight.shape:
        raise ValueError(
            f"{name}: weight has shape {tuple(weight.shape)} and input {tuple(input.shape)}; "
            "the last dimensions of the input must have the shape of the weight"
        )
    factor = weight + 1 if unit_offset else weight
    if weight.dim() == 1:
        return input, factor
    return input.reshape(*input.shape[: input.dim() - weight.dim()], weight.numel()), factor.reshape(-1)


class RMSNorm(nn.Module):
    """:func:`rms_norm` with a learned weight; :func:`add_rms_norm` when called with a residual.

    Args:
        normalized_shape: the last dimensions of the input.
        eps: added to the mean.
        elementwise_affine: whether to have a weight.
        unit_offset: multiply by ``1 + weight``; the weight starts at 0.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-6,
        elementwise_affine: bool = True,
        *,
        unit_offset: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape = shape
        self.eps = eps
        self.unit_offset = unit_offset
        start = torch.zeros if unit_offset else torch.ones
        self.weight = nn.Parameter(start(shape, device=device, dtype=dtype)) if elementwise_affine else None

    def forward(
        self, input: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """The normalised input; with a residual, (normalised sum, sum)."""
        if residual is None:
            return rms_norm(input, self.weight, self.eps, unit_offset=self.unit_offset)
        return add_rms_norm(input, residual, self.weight, self.eps, unit_offset=self.unit_offset)

    def extra_repr(self) -> str:
        """The module's arguments, as ``print`` shows them."""
        return f"{self.normalized_shape}, eps={self.eps}, unit_offset={self.unit_offset}"
