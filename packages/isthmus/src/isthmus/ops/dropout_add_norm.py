"""Fused dropout, residual addition and LayerNorm or RMSNorm, with the interface of flash-attn."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from isthmus.ops import cpu
from isthmus.ops.registration import compute_dtype, operator


def _factor(
    kind: torch.dtype, rowscale: torch.Tensor | None, layerscale: torch.Tensor | None, p: float
) -> torch.Tensor | float:
    """The factor of the elements that dropout keeps."""
    factor: torch.Tensor | float = 1 / (1 - p) if p < 1 else 0.0
    factor = factor if rowscale is None else factor * rowscale.to(kind).unsqueeze(-1)
    return factor if layerscale is None else factor * layerscale.to(kind)


def _mask_values(values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    return values if mask is None else values.masked_fill(~mask, 0)


@operator("dropout_add_norm")
def _norm(
    input: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    rowscale: torch.Tensor | None,
    layerscale: torch.Tensor | None,
    mask: torch.Tensor | None,
    p: float,
    eps: float,
    rms: bool,
    wide_sum: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    kind = compute_dtype(input)
    total = _mask_values(input.to(kind) * _factor(kind, rowscale, layerscale, p), mask)
    total = total if residual is None else total + residual
    mean = total.mean(-1, keepdim=True)
    mean = torch.zeros_like(mean) if rms else mean
    rstd = ((total - mean).square().mean(-1, keepdim=True) + eps).rsqrt()
    out = (total - mean) * rstd * weight
    out = out if bias is None else out + bias
    of_sum = residual.dtype if residual is not None else kind if wide_sum else input.dtype
    return out.to(input.dtype), total.to(of_sum), mean, rstd


@operator("dropout_add_norm_backward")
def _norm_backward(
    grad: torch.Tensor,
    grad_sum: torch.Tensor | None,
    sum: torch.Tensor,
    input: torch.Tensor | None,
    weight: torch.Tensor,
    rowscale: torch.Tensor | None,
    layerscale: torch.Tensor | None,
    mask: torch.Tensor | None,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    p: float,
    rms: bool,
    with_bias: bool,
    with_residual: bool,
) -> tuple[torch.Tensor | None, ...]:
    kind = compute_dtype(grad)
    wide, hat = grad.to(kind), (sum.to(kind) - mean) * rstd
    slope = wide * weight
    centred = slope if rms else slope - slope.mean(-1, keepdim=True)
    total = rstd * (centred - hat * (slope * hat).mean(-1, keepdim=True))
    total = total if grad_sum is None else total + grad_sum
    dx = _mask_values(total * _factor(kind, rowscale, layerscale, p), mask)
    scales = None
    if layerscale is not None and input is not None:
        scales = _over_rows(_mask_values(total * _factor(kind, rowscale, None, p), mask) * input)
    biases = _over_rows(wide) if with_bias else None
    before = total.to(sum.dtype) if with_residual else None
    return dx.to(grad.dtype), before, _over_rows(wide * hat), biases, scales


def _over_rows(values: torch.Tensor) -> torch.Tensor:
    return torch.atleast_2d(values).flatten(0, -2).sum(0)


for _each in (_norm, _norm_backward):
    cpu.add(_each)


class _DropoutAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x0: Any, residual: Any, weight: Any, bias: Any, rowscale: Any, layerscale: Any, mask: Any,
        p: float, eps: float, rms: bool, wide_sum: bool,
    ) -> Any:  # fmt: skip
        out, total, mean, rstd = _norm(
            x0, residual, weight, bias, rowscale, layerscale, mask, p, eps, rms, wide_sum
        )
        scaled = None if layerscale is None else x0
        ctx.save_for_backward(total, scaled, weight, bias, rowscale, layerscale, mask, mean, rstd)
        ctx.set_materialize_grads(False)
        ctx.dtype = out.dtype
        ctx.rest = (p, rms, bias is not None, residual is not None)
        return out, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor | None, grad_sum: torch.Tensor | None) -> tuple[Any, ...]:
        total, scaled, weight, bias, rowscale, layerscale, mask, mean, rstd = ctx.saved_tensors
        grad = total.new_zeros(total.shape, dtype=ctx.dtype) if grad is None else grad
        dx, dresidual, *sums = _norm_backward(
            grad, grad_sum, total, scaled, weight, rowscale, layerscale, mask, mean, rstd, *ctx.rest
        )
        parameters = zip(sums, (weight, bias, layerscale), strict=True)
        dw, db, dscale = (None if made is None else made.to(each.dtype) for made, each in parameters)
        return dx, dresidual, dw, db, None, dscale, None, None, None, None, None


def dropout_add_layer_norm(
    x0: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    dropout_p: float,
    epsilon: float,
    rowscale: torch.Tensor | None = None,
    layerscale: torch.Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    return_dropout_mask: bool = False,
    *,
    is_rms_norm: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """``norm(dropout(x0 * rowscale * layerscale) + residual) * weight + bias`` in one pass.

    The signature is flash-attn's. Computed in float32 or wider; autocast does not change the dtypes.

    Args:
        x0: [..., features], float16, bfloat16, float32 or float64.
        residual: like ``x0``, or float32 with a 16-bit ``x0``; or None.
        weight: [features], of any float dtype.
        bias: [features], or None.
        dropout_p: dropout probability; the mask is drawn from the device's generator. Pass 0 in evaluation.
        epsilon: added to the variance, or to the mean of squares.
        rowscale: factor of each row [...] or [..., 1], for stochastic depth; it gets no gradient.
        layerscale: factor of each feature [features].
        prenorm: also return the sum.
        residual_in_fp32: without a residual, keep the sum in float32 or wider; with one, the sum has its dtype.
        return_dropout_mask: also return the mask, bool like ``x0``, True where an element was kept.
        is_rms_norm: use RMSNorm instead of LayerNorm.

    Returns:
        The normalised sum in the dtype of ``x0``; with further results, a tuple (normalised, sum, mask).

    Raises:
        ValueError: shapes or dtypes do not match, ``dropout_p`` is outside [0, 1], or ``rowscale`` requires grad.
    """
    name = "dropout_add_rms_norm" if is_rms_norm else "dropout_add_layer_norm"
    rows = rowscale
    if rowscale is not None and rowscale.dim() == x0.dim() and rowscale.shape[-1:] == (1,):
        rows = rowscale.squeeze(-1)
    _check(name, x0, residual, {"weight": weight, "bias": bias, "layerscale": layerscale}, rows, dropout_p)
    mask = None
    if dropout_p > 0:
        mask = torch.empty(x0.shape, dtype=torch.bool, device=x0.device).bernoulli_(1 - dropout_p)
    out, total = _DropoutAddNorm.apply(
        x0, residual, weight, bias, rows, layerscale, mask, dropout_p, epsilon, is_rms_norm, residual_in_fp32
    )
    found = [out, total] if prenorm else [out]
    if return_dropout_mask:
        found.append(torch.ones_like(x0, dtype=torch.bool) if mask is None else mask)
    return tuple(found) if len(found) > 1 else out


def dropout_add_rms_norm(
    x0: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    dropout_p: float,
    epsilon: float,
    rowscale: torch.Tensor | None = None,
    layerscale: torch.Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    return_dropout_mask: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """:func:`dropout_add_layer_norm` with RMSNorm."""
    return dropout_add_layer_norm(
        x0, residual, weight, bias, dropout_p, epsilon, rowscale, layerscale, prenorm, residual_in_fp32,
        return_dropout_mask, is_rms_norm=True,
    )  # fmt: skip


def _check(
    name: str,
    x0: torch.Tensor,
    residual: torch.Tensor | None,
    factors: dict[str, torch.Tensor | None],
    rowscale: torch.Tensor | None,
    dropout_p: float,
) -> None:
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"{name}: dropout_p is {dropout_p}; it must be in [0, 1]")
    for what, each in factors.items():
        if each is not None and each.shape != x0.shape[-1:]:
            raise ValueError(
                f"{name}: {what} has shape {tuple(each.shape)} and x0 {tuple(x0.shape)}; it must be "
                f"({x0.shape[-1]},)"
            )
    if residual is not None and (
        residual.shape != x0.shape or residual.dtype not in (x0.dtype, compute_dtype(x0))
    ):
        raise ValueError(
            f"{name}: residual is {residual.dtype} {tuple(residual.shape)} and x0 {x0.dtype} {tuple(x0.shape)}; "
            "they must have one shape, and the residual the dtype of x0 or float32"
        )
    if rowscale is not None and rowscale.shape != x0.shape[:-1]:
        raise ValueError(
            f"{name}: rowscale has shape {tuple(rowscale.shape)} and x0 {tuple(x0.shape)}; it must be one factor "
            "per row"
        )
    if rowscale is not None and rowscale.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name}: rowscale requires a gradient and gets none; pass rowscale.detach()")


class DropoutAddLayerNorm(nn.Module):
    """:func:`dropout_add_layer_norm` with learned weight and bias; flash-attn's module of this name.

    Args:
        hidden_size: features.
        prenorm: also return the sum.
        p: dropout probability in training.
        eps: added to the variance.
        residual_in_fp32: without a residual, keep the sum in float32 or wider.
    """

    is_rms_norm = False

    def __init__(
        self,
        hidden_size: int,
        prenorm: bool = False,
        p: float = 0.0,
        eps: float = 1e-5,
        residual_in_fp32: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.prenorm, self.p, self.eps, self.residual_in_fp32 = prenorm, p, eps, residual_in_fp32
        self.weight = nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        biased = not self.is_rms_norm
        self.bias = nn.Parameter(torch.zeros(hidden_size, device=device, dtype=dtype)) if biased else None

    def forward(
        self, x0: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The normalised sum of ``x0`` and the residual; with ``prenorm`` (normalised, sum)."""
        return dropout_add_layer_norm(
            x0, residual, self.weight, self.bias, self.p if self.training else 0.0, self.eps,
            prenorm=self.prenorm, residual_in_fp32=self.residual_in_fp32, is_rms_norm=self.is_rms_norm,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The module's arguments, as ``print`` shows them."""
        return f"{self.weight.shape[0]}, prenorm={self.prenorm}, p={self.p}, eps={self.eps}"


class DropoutAddRMSNorm(DropoutAddLayerNorm):
    """:class:`DropoutAddLayerNorm` with RMSNorm and no bias."""

    is_rms_norm = True
