"""Cross entropy of a linear layer's outputs, which are never there as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from isthmus.ops import autocast, cpu
from isthmus.ops.cross_entropy import Terms, check, logit_gradient, losses, reduced, z_loss
from isthmus.ops.operators import addressed_by_cpu, operator

# Rows of logits that are there at a time. Each group reads the whole weight and adds to the whole of its gradient,
# which products of fewer rows would wait for.
_ROWS = 384


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
    """The operator by groups of rows.

    Args:
        forward: losses and log-sum-exp of a group's logits, as ``isthmus::cross_entropy``.
        backward: the gradient of a group's logits, as ``isthmus::cross_entropy_backward``; it may write over them.
        hidden: the first of the operator's arguments, which the others are.
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
    """The sum of the losses times a factor; the gradients for it are made with it, as the logits are there."""

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
        if grads is None:  # they were given away by an earlier call, which kept the graph
            grads = _losses(hidden, weight, bias, target, each, *ctx.rest)[2:]
        if not _is_one(grad):
            grads = [None if made is None else made.mul_(grad) for made in grads]
        return (*_like(grads, bias), None, None, None)


class _EachRow(torch.autograd.Function):
    """The loss of each row; the logits are made once more when the gradients of the losses are known."""

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
        return (*_like(grads, bias), None, None)


def _is_one(grad: torch.Tensor) -> bool:
    """Whether a factor may be left out; not asked where the answer would be waited for."""
    if torch.compiler.is_compiling() or not addressed_by_cpu(grad.device.type):
        return False
    return grad.item() == 1


def _like(grads: Any, bias: torch.Tensor | None) -> tuple[Any, ...]:
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
    """:func:`isthmus.ops.cross_entropy` of ``linear(hidden, weight, bias)``, by groups of rows.

    The logits of ``chunk_size`` rows are in memory at a time. With "mean" and "sum" the gradients are made in the
    forward pass, as Liger-Kernel makes them, and multiplied by the loss's own gradient in the backward pass. With
    "none", and for float16, whose gradients need the gradient scaler's factor before they are rounded, the logits
    are made a second time in the backward pass. Gradients are made for what requires them; the weight's is summed
    over the groups in the weight's dtype.

    Args:
        hidden: [..., features], float16, bfloat16, float32 or float64.
        weight: [classes, features], of the same dtype; under autocast any.
        target: class of each row [...], integers.
        bias: [classes], or None.
        ignore_index: a target whose row has no loss and no gradient.
        reduction: "mean" over the rows that are not ignored, "sum" or "none".
        label_smoothing: share of the target that is spread over all classes.
        logit_scale: factor of the logits.
        softcap: bound of the logits; None is none.
        lse_square_scale: factor of the square of the log-sum-exp in the loss.
        chunk_size: rows of logits in memory at a time, at most; None is 384. Without gradients as many logits may be
            of more rows and fewer classes.
        return_z_loss: also return the part of the loss that ``lse_square_scale`` makes, without a gradient.

    Returns:
        The loss, float32 at least; with ``return_z_loss`` (loss, part).

    Raises:
        ValueError: shapes or dtypes do not fit, or the reduction or ``chunk_size`` is none.
        IndexError: a target is no class (RuntimeError where the composite runs).
    """
    hidden, weight, bias = autocast.lower(hidden, weight, bias)
    _check(hidden, weight, target, bias, reduction, chunk_size)
    terms = Terms(ignore_index, label_smoothing, logit_scale, softcap or 0.0, lse_square_scale)
    flat, labels = hidden.reshape(-1, hidden.shape[-1]), target.reshape(-1).long()
    asked = torch.is_grad_enabled()
    wanted = [asked and each is not None and each.requires_grad for each in (flat, weight, bias)]
    rest = (*terms, chunk_size or _ROWS, wanted)
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
            f"{name}: hidden has shape {tuple(hidden.shape)} and weight {tuple(weight.shape)}; the weight has to be "
            "[classes, features] and hidden [..., features]"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"{name}: bias has shape {tuple(bias.shape)}; it has to be {tuple(weight.shape[:1])}"
        )
    kinds = [each.dtype for each in (hidden, weight, bias) if each is not None]
    if len(set(kinds)) > 1:
        raise ValueError(
            f"{name}: hidden, weight and bias are {', '.join(map(str, kinds))}; they have to be alike"
        )
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"{name}: chunk_size is {chunk_size}; it has to be at least 1")
    check(name, torch.Size((*hidden.shape[:-1], weight.shape[0])), target, reduction)


class LinearCrossEntropyLoss(nn.Module):
    """:func:`linear_cross_entropy` with fixed options.

    Args:
        options: of that function, by name.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        unknown = set(options) - set(linear_cross_entropy.__kwdefaults__ or ())
        if unknown:
            raise TypeError(f"linear_cross_entropy has no options {', '.join(sorted(unknown))}")
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
        """What print() shows."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())
