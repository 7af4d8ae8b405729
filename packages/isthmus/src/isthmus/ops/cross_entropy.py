"""Cross entropy with the options of large models: logit scale, softcap, label smoothing and z-loss."""

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from isthmus.ops import cpu
from isthmus.ops.registration import apply, operator


class Terms(NamedTuple):
    """Arguments of the operators after their tensors; see :func:`cross_entropy`."""

    ignore_index: int = -100
    label_smoothing: float = 0.0
    logit_scale: float = 1.0
    softcap: float = 0.0
    lse_square_scale: float = 0.0


def _cap(logits: torch.Tensor, scale: float, softcap: float) -> torch.Tensor:
    scaled = logits.to(torch.promote_types(logits.dtype, torch.float32)) * scale
    return softcap * torch.tanh(scaled / softcap) if softcap > 0 else scaled


@operator("cross_entropy")
def losses(
    logits: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    label_smoothing: float,
    logit_scale: float,
    softcap: float,
    lse_square_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and log-sum-exp of each row (operator)."""
    z, ignored = _cap(logits, logit_scale, softcap), target == ignore_index
    lse = z.logsumexp(-1)
    at_target = z.gather(-1, target.masked_fill(ignored, 0).unsqueeze(-1)).squeeze(-1)
    loss = lse - (1 - label_smoothing) * at_target + (lse_square_scale * lse) * lse  # the square may overflow
    if label_smoothing:
        loss = loss - label_smoothing * z.mean(-1)
    return loss.masked_fill(ignored, 0), lse


@operator("cross_entropy_backward")
def logit_gradient(
    grad: torch.Tensor,
    grad_lse: torch.Tensor | None,
    logits: torch.Tensor,
    target: torch.Tensor,
    lse: torch.Tensor,
    ignore_index: int,
    label_smoothing: float,
    logit_scale: float,
    softcap: float,
    lse_square_scale: float,
) -> torch.Tensor:
    """Gradient of the logits from the gradients of loss and log-sum-exp (operator)."""
    z, ignored = _cap(logits, logit_scale, softcap), target == ignore_index
    grad = grad.masked_fill(ignored, 0)
    weight = grad * (1 + 2 * lse_square_scale * lse)
    weight = weight if grad_lse is None else weight + grad_lse
    slope = weight.unsqueeze(-1) * (z - lse.unsqueeze(-1)).exp()
    if label_smoothing:
        slope = slope - (grad * (label_smoothing / logits.shape[-1])).unsqueeze(-1)
    index = target.masked_fill(ignored, 0).unsqueeze(-1)
    slope = slope.scatter_add(-1, index, (grad * (label_smoothing - 1)).unsqueeze(-1)) * logit_scale
    if softcap > 0:
        slope = slope * (1 - (z / softcap).square())
    if grad_lse is None:  # also where the logits of an ignored row are not finite
        slope = slope.masked_fill(ignored.unsqueeze(-1), 0)
    return slope.to(logits.dtype)


@operator("cross_entropy_backward_")
def _logit_gradient_(
    logits: torch.Tensor, grad: torch.Tensor, grad_lse: torch.Tensor | None, *others: Any
) -> None:
    logits.copy_(logit_gradient.composite(grad, grad_lse, logits, *others))


for _each in (losses, logit_gradient, _logit_gradient_):
    cpu.add(_each)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Any, target: Any, terms: Terms, inplace: bool) -> Any:
        loss, lse = losses(logits, target, *terms)
        ctx.save_for_backward(logits, target, lse)
        ctx.set_materialize_grads(False)
        ctx.terms, ctx.inplace = terms, inplace
        return loss, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor | None, grad_lse: torch.Tensor | None) -> tuple[Any, ...]:
        logits, target, lse = ctx.saved_tensors
        grad = torch.zeros_like(lse) if grad is None else grad
        if not ctx.inplace:
            return logit_gradient(grad, grad_lse, logits, target, lse, *ctx.terms), None, None, None
        written = logits.detach()
        _logit_gradient_(written, grad, grad_lse, target, lse, *ctx.terms)
        torch.autograd.graph.increment_version(written)  # later use of the logits in autograd raises an error
        return written, None, None, None


def cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    lse_square_scale: float = 0.0,
    inplace_backward: bool = False,
    return_z_loss: bool = False,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Cross entropy that reads the logits once forward and once backward.

    With ``z = logit_scale * logits``, or ``softcap * tanh(logit_scale * logits / softcap)``, and
    ``lse = logsumexp(z)``, the loss of a row is ``lse - (1 - label_smoothing) * z[target] - label_smoothing *
    mean(z) + lse_square_scale * lse ** 2``. Computed in float32 at least; half logits give float32 losses.

    The options have the names of flash-attn (``logit_scale``, ``lse_square_scale``; it has no softcap) and of
    Liger-Kernel (``softcap``, ``lse_square_scale``; it has no scale). The scale is applied before the softcap.

    Args:
        logits: [..., classes], float16, bfloat16, float32 or float64, of any strides.
        target: class of each row [...], integers.
        ignore_index: rows with this target have no loss and no gradient.
        reduction: "mean" over the rows that are not ignored (NaN if all are, as in PyTorch), "sum" or "none".
        label_smoothing: probability mass spread over all classes.
        logit_scale: factor of the logits.
        softcap: bound of the logits; None disables it.
        lse_square_scale: factor of ``lse ** 2`` in the loss (the z-loss of PaLM).
        inplace_backward: write the gradient over the logits, which must not be needed afterwards. Ignored under
            ``torch.compile`` and for expanded tensors.
        return_z_loss: also return the z-loss, without a gradient.
        return_lse: also return ``lse`` [...], with a gradient, as vocabulary-parallel losses need it.

    Returns:
        The loss; with further results, a tuple in the order of the arguments.

    Raises:
        ValueError: the target is not an integer tensor of the logits' leading shape, there are no classes, or the
            reduction is unknown.
        IndexError: a target is not a class (RuntimeError from the composite).
    """
    check("cross_entropy", logits.shape, target, reduction)
    terms = Terms(ignore_index, label_smoothing, logit_scale, softcap or 0.0, lse_square_scale)
    inplace = inplace_backward and not torch.compiler.is_compiling() and not _is_expanded(logits)
    loss, lse = apply(_CrossEntropy, logits, target.long(), terms, inplace)
    found = [reduced(loss, target, ignore_index, reduction)]
    if return_z_loss:
        found.append(z_loss(lse, target, terms, reduction))
    if return_lse:
        found.append(lse)
    return tuple(found) if len(found) > 1 else found[0]


def _is_expanded(tensor: torch.Tensor) -> bool:
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def reduced(loss: torch.Tensor, target: torch.Tensor, ignore_index: int, reduction: str) -> torch.Tensor:
    """Reduce the losses of rows by "none", "sum" or "mean"."""
    if reduction == "none":
        return loss
    return loss.sum() / (target != ignore_index).sum() if reduction == "mean" else loss.sum()


def z_loss(lse: torch.Tensor, target: torch.Tensor, terms: Terms, reduction: str) -> torch.Tensor:
    """The reduced z-loss: ``lse_square_scale * lse ** 2``."""
    square = terms.lse_square_scale * lse.detach() * lse.detach()
    return reduced(square.masked_fill(target == terms.ignore_index, 0), target, terms.ignore_index, reduction)


def check(name: str, logits: torch.Size, target: torch.Tensor, reduction: str) -> None:
    """Raise ValueError for a target that does not match the logits' shape, and for unknown reductions."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{name}: reduction is {reduction!r}; expected 'mean', 'sum' or 'none'")
    if target.is_floating_point() or target.dtype == torch.bool:
        raise ValueError(
            f"{name}: the target is {target.dtype}; it must be an integer dtype, one class per row"
        )
    if target.shape != logits[:-1] or not logits or not logits[-1]:
        raise ValueError(
            f"{name}: logits have shape {tuple(logits)} and the target {tuple(target.shape)}; the logits "
            "must be [..., classes] and the target [...]"
        )


class CrossEntropyLoss(nn.Module):
    """:func:`cross_entropy` with fixed options, in place of ``torch.nn.CrossEntropyLoss`` and flash-attn's.

    Args:
        ignore_index: rows with this target have no loss and no gradient.
        reduction: "mean", "sum" or "none".
        label_smoothing: probability mass spread over all classes.
        logit_scale: factor of the logits.
        softcap: bound of the logits; None disables it.
        lse_square_scale: factor of the squared log-sum-exp in the loss.
        inplace_backward: write the gradient over the logits.
        return_z_loss: also return the z-loss.
    """

    def __init__(
        self,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        logit_scale: float = 1.0,
        softcap: float | None = None,
        lse_square_scale: float = 0.0,
        inplace_backward: bool = False,
        return_z_loss: bool = False,
    ) -> None:
        super().__init__()
        self.options: dict[str, Any] = {
            "ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing,
            "logit_scale": logit_scale, "softcap": softcap, "lse_square_scale": lse_square_scale,
            "inplace_backward": inplace_backward, "return_z_loss": return_z_loss,
        }  # fmt: skip

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The loss of logits [..., classes] and targets [...]; with ``return_z_loss`` (loss, z-loss)."""
        return cross_entropy(logits, target, **self.options)

    def extra_repr(self) -> str:
        """The module's arguments, as ``print`` shows them."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())
