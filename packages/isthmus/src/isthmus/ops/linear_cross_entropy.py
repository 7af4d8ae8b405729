"""Fused linear layer and cross entropy that never materializes all logits."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from isthmus.ops import autocast, cpu
from isthmus.ops.cross_entropy import Terms, check, logit_gradient, losses, reduced, z_loss
from isthmus.ops.registration import addressed_by_cpu, operator

# Rows of logits in memory at a time, also on a GPU. Each chunk reads the whole weight and updates its whole gradient,
# so smaller chunks would be bound by memory bandwidth.
_ROWS, _GPU_ROWS = 384, 1024


def chunked(
    forward: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    backward: Callable[..., torch.Tensor],
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    target: torch.Tensor,
    grad: torch.Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    logit_scale: float,
    softcap: float,
    lse_square_scale: float,
    chunk_size: int,
    wanted: list[bool],
) -> tuple[torch.Tensor | None, ...]:
    """The operator in chunks of rows.

    Args:
        forward: losses and log-sum-exp of a chunk's logits, like ``isthmus::cross_entropy``.
        backward: gradient of a chunk's logits, like ``isthmus::cross_entropy_backward``; it may write over them.
        hidden: like the rest, the arguments of the operator ``isthmus::linear_cross_entropy``.
    """
    terms = Terms(ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale)
    kind = torch.promote_types(hidden.dtype, torch.float32)
    loss, lse = (hidden.new_empty(hidden.shape[0], dtype=kind) for _ in range(2))
    grad = torch.ones_like(loss) if grad is None else grad
    grad_hidden = torch.empty_like(hidden, memory_format=torch.contiguous_format) if wanted[0] else None
    grad_weight = torch.zeros_like(weight, memory_format=torch.contiguous_format) if wanted[1] else None
    grad_bias = hidden.new_zeros(weight.shape[0], dtype=kind) if wanted[2] else None
    for begin in range(0, hidden.shape[0], chunk_size):
        rows = slice(begin, begin + chunk_size)
        logits = nn.functional.linear(hidden[rows], weight, bias)
        loss[rows], lse[rows] = forward(logits, target[rows], *terms)
        if not any(wanted):
            continue
        slope = backward(grad[rows], None, logits, target[rows], lse[rows], *terms)
        if grad_hidden is not None:
            grad_hidden[rows] = slope @ weight
        if grad_weight is not None:
            grad_weight.addmm_(slope.t(), hidden[rows])
        if grad_bias is not None:
            grad_bias += slope.sum(0, dtype=kind)
    return loss, lse, grad_hidden, grad_weight, grad_bias


@operator("linear_cross_entropy")
def _losses(*arguments: Any) -> tuple[torch.Tensor | None, ...]:
    return chunked(losses.composite, logit_gradient.composite, *arguments)


cpu.add(_losses)


class _Reduced(torch.autograd.Function):
    """The sum of the losses times a factor. The forward pass also computes the gradients, from the same logits."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Any, weight: Any, bias: Any, target: Any, factor: Any, rest: tuple[Any, ...]
    ) -> Any:
        each = factor.expand(target.shape)
        loss, lse, *grads = _losses(hidden, weight, bias, target, each, *rest)
        ctx.save_for_backward(hidden, weight, bias, target, each)
        ctx.rest, ctx.grads = rest, grads
        ctx.mark_non_differentiable(lse)
        return loss.sum() * factor, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[Any, ...]:
        grads, ctx.grads = ctx.grads, None
        hidden, weight, bias, target, each = ctx.saved_tensors
        if grads is None:  # an earlier backward with retain_graph took them
            grads = _losses(hidden, weight, bias, target, each, *ctx.rest)[2:]
        if not _is_one(grad):
            grads = [None if made is None else made.mul_(grad) for made in grads]
        return (*_grads_like(grads, bias), None, None, None)


class _EachRow(torch.autograd.Function):
    """The loss of each row. The backward pass recomputes the logits."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, weight: Any, bias: Any, target: Any, rest: tuple[Any, ...]) -> Any:
        loss, lse, *_ = _losses(hidden, weight, bias, target, None, *rest[:-1], [False] * 3)
        ctx.save_for_backward(hidden, weight, bias, target)
        ctx.rest = rest
        ctx.mark_non_differentiable(lse)
        return loss, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[Any, ...]:
        hidden, weight, bias, target = ctx.saved_tensors
        grads = _losses(hidden, weight, bias, target, grad, *ctx.rest)[2:]
        return (*_grads_like(grads, bias), None, None)


def _is_one(grad: torch.Tensor) -> bool:
    """Whether multiplying by the factor can be skipped; False where reading it would synchronize."""
    if torch.compiler.is_compiling() or not addressed_by_cpu(grad.device.type):
        return False
    return grad.item() == 1


def _grads_like(grads: Any, bias: torch.Tensor | None) -> tuple[Any, ...]:
    hidden, weight, made = grads
    return hidden, weight, made if made is None or bias is None else made.to(bias.dtype)


def linear_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    lse_square_scale: float = 0.0,
    chunk_size: int | None = None,
    return_z_loss: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """:func:`isthmus.ops.cross_entropy` of ``linear(hidden, weight, bias)``, in chunks of rows.

    Only ``chunk_size`` rows of logits are in memory at a time. With "mean" and "sum" the forward pass computes the
    gradients, as in Liger-Kernel, and the backward pass multiplies them by the gradient of the loss. With "none", and
    for float16 (its gradients need the gradient scaler's factor before rounding), the backward pass recomputes the
    logits. The weight's gradient is accumulated over the chunks in the weight's dtype.

    Args:
        hidden: [..., features], float16, bfloat16, float32 or float64.
        weight: [classes, features], same dtype as ``hidden``; any dtype under autocast.
        target: class of each row [...], integers.
        bias: [classes], or None.
        ignore_index: rows with this target have no loss and no gradient.
        reduction: "mean" over the rows that are not ignored, "sum" or "none".
        label_smoothing: probability mass spread over all classes.
        logit_scale: factor of the logits.
        softcap: bound of the logits; None disables it.
        lse_square_scale: factor of the squared log-sum-exp in the loss.
        chunk_size: maximum rows of logits in memory; None is 384, or 1024 on a GPU. Without gradients, the same
            number of logits may cover more rows of fewer classes.
        return_z_loss: also return the z-loss, without a gradient.

    Returns:
        The loss, float32 or wider; with ``return_z_loss`` (loss, z-loss).

    Raises:
        ValueError: shapes or dtypes do not match, or an invalid ``reduction`` or ``chunk_size``.
        IndexError: a target is not a class (RuntimeError from the composite).
    """
    hidden, weight, bias = autocast.lower(hidden, weight, bias)
    _check(hidden, weight, target, bias, reduction, chunk_size)
    terms = Terms(ignore_index, label_smoothing, logit_scale, softcap or 0.0, lse_square_scale)
    flat, labels = hidden.reshape(-1, hidden.shape[-1]), target.reshape(-1).long()
    asked = torch.is_grad_enabled()
    wanted = [asked and each is not None and each.requires_grad for each in (flat, weight, bias)]
    rest = (*terms, chunk_size or (_GPU_ROWS if hidden.is_cuda else _ROWS), wanted)
    if reduction == "none" or (hidden.dtype == torch.float16 and any(wanted)):
        rows, lse = _EachRow.apply(flat, weight, bias, labels, rest)
        loss = reduced(rows.view(target.shape), target, ignore_index, reduction)
    else:
        one = torch.ones((), dtype=torch.promote_types(hidden.dtype, torch.float32), device=hidden.device)
        factor = one / (labels != ignore_index).sum() if reduction == "mean" else one
        loss, lse = _Reduced.apply(flat, weight, bias, labels, factor, rest)
    if not return_z_loss:
        return loss
    return loss, z_loss(lse.view(target.shape), target, terms, reduction)


def _check(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None,
    reduction: str,
    chunk_size: int | None,
) -> None:
    name = "linear_cross_entropy"
    if weight.dim() != 2 or not hidden.dim() or hidden.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"{name}: hidden has shape {tuple(hidden.shape)} and weight {tuple(weight.shape)}; hidden must be "
            "[..., features] and the weight [classes, features]"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"{name}: bias has shape {tuple(bias.shape)}; it must be {tuple(weight.shape[:1])}")
    kinds = [each.dtype for each in (hidden, weight, bias) if each is not None]
    if len(set(kinds)) > 1:
        raise ValueError(
            f"{name}: hidden, weight and bias are {', '.join(map(str, kinds))}; they must be one dtype"
        )
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"{name}: chunk_size is {chunk_size}; it must be at least 1")
    check(name, torch.Size((*hidden.shape[:-1], weight.shape[0])), target, reduction)


class LinearCrossEntropyLoss(nn.Module):
    """:func:`linear_cross_entropy` with fixed options.

    Args:
        options: keyword arguments of that function.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        unknown = set(options) - set(linear_cross_entropy.__kwdefaults__ or ())
        if unknown:
            raise TypeError(f"LinearCrossEntropyLoss: unknown options {', '.join(sorted(unknown))}")
        self.options = options

    def forward(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        target: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The loss of hidden [..., features], weight [classes, features] and targets [...]."""
        return linear_cross_entropy(hidden, weight, target, bias, **self.options)

    def extra_repr(self) -> str:
        """The module's arguments, as ``print`` shows them."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())
