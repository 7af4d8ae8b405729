"""Cross entropy and its backward, over rows of any length.

A target that is not a class gives a NaN loss and gradient, because a kernel cannot raise.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from isthmus.ops.registration import compute_dtype
from isthmus.ops.triton.launch import cdiv, in_rows, launch, like, power_of_2, wide

_BLOCK = 8192
_WARPS = 16


@triton.jit
def _capped(x, SCALE: tl.constexpr, SOFTCAP: tl.constexpr):
    x *= SCALE
    if SOFTCAP > 0:
        x = SOFTCAP - 2 * SOFTCAP / (tl.exp(x * (2 / SOFTCAP)) + 1)  # softcap * tanh(x / softcap)
    return x


@triton.jit
def _forward(
    logits_ptr, target_ptr, loss_ptr, lse_ptr, classes, stride, IGNORED: tl.constexpr, SMOOTHING: tl.constexpr,
    SCALE: tl.constexpr, SOFTCAP: tl.constexpr, SQUARE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride
    top = tl.full((), float("-inf"), WIDE)
    total = tl.zeros((), WIDE)
    mean = tl.zeros((), WIDE)
    for start in range(0, classes, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < classes
        x = _capped(tl.load(logits_ptr + column, inside, other=0.0).to(WIDE), SCALE, SOFTCAP)
        if SMOOTHING > 0:
            mean += tl.sum(tl.where(inside, x, 0.0)) / classes
        x = tl.where(inside, x, float("-inf"))
        before, top = top, tl.maximum(top, tl.max(x))
        shift = tl.where((top == float("-inf")) | (top == float("inf")), 0.0, top)
        kept = tl.where(before == float("-inf"), 0.0, total * tl.exp(before - shift))
        total = kept + tl.sum(tl.exp(x - shift))
    shift = tl.where((top == float("-inf")) | (top == float("inf")), 0.0, top)
    lse = shift + tl.log(total)
    tl.store(lse_ptr + row, lse)
    target = tl.load(target_ptr + row)
    known = (target >= 0) & (target < classes)
    right = tl.load(logits_ptr + target, known, other=float("nan")).to(WIDE)
    loss = lse - (1 - SMOOTHING) * _capped(right, SCALE, SOFTCAP) + SQUARE * lse * lse
    if SMOOTHING > 0:
        loss -= SMOOTHING * mean
    tl.store(loss_ptr + row, tl.where(target == IGNORED, 0.0, loss))


@triton.jit
def _backward(
    grad_ptr, grad_lse_ptr, logits_ptr, target_ptr, lse_ptr, dx_ptr, classes, stride, out_stride,
    IGNORED: tl.constexpr, SMOOTHING: tl.constexpr, SCALE: tl.constexpr, SOFTCAP: tl.constexpr,
    SQUARE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(classes, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = column < classes
    target = tl.load(target_ptr + row)
    ignored = target == IGNORED
    lse = tl.load(lse_ptr + row)
    grad = tl.where(ignored, 0.0, tl.load(grad_ptr + row).to(WIDE))
    grad = tl.where(ignored | ((target >= 0) & (target < classes)), grad, float("nan"))
    weight = grad * (1 + 2 * SQUARE * lse)
    if grad_lse_ptr is not None:
        weight += tl.load(grad_lse_ptr + row).to(WIDE)
    x = _capped(tl.load(logits_ptr + row * stride + column, inside, other=0.0).to(WIDE), SCALE, SOFTCAP)
    slope = weight * tl.exp(x - lse)
    if SMOOTHING > 0:
        slope -= grad * SMOOTHING / classes  # this order: dividing by an integer is done in float32
    slope = tl.where(column == target, slope - grad * (1 - SMOOTHING), slope) * SCALE
    if SOFTCAP > 0:
        slope *= 1 - (x / SOFTCAP) * (x / SOFTCAP)
    if grad_lse_ptr is None:  # also where the logits of an ignored row are not finite
        slope = tl.where(ignored, 0.0, slope)
    tl.store(dx_ptr + row * out_stride + column, slope, inside)


def cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int, label_smoothing: float, logit_scale: float,
    softcap: float, lse_square_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The operator ``isthmus::cross_entropy``."""
    x = in_rows(logits)
    loss = logits.new_empty(target.shape, dtype=compute_dtype(logits))
    lse = torch.empty_like(loss)
    block = min(_BLOCK, power_of_2(x.shape[1]))
    terms = (ignore_index, label_smoothing, logit_scale, softcap, lse_square_scale)
    launch(
        _forward, x.shape[0], (x, target.contiguous(), loss, lse), (x.shape[1], x.stride(0)),
        _constants(x, block, *terms), _warps(block),
    )  # fmt: skip
    return loss, lse


def cross_entropy_backward(
    grad: torch.Tensor, grad_lse: torch.Tensor | None, logits: torch.Tensor, target: torch.Tensor,
    lse: torch.Tensor, *terms: float,
) -> torch.Tensor:  # fmt: skip
    """The operator ``isthmus::cross_entropy_backward``."""
    made = like(logits)
    _differentiate(made.view(-1, logits.shape[-1]), in_rows(logits), grad, grad_lse, target, lse, *terms)
    return made


def cross_entropy_backward_(
    logits: torch.Tensor, grad: torch.Tensor, grad_lse: torch.Tensor | None, target: torch.Tensor,
    lse: torch.Tensor, *terms: float,
) -> None:  # fmt: skip
    """The operator ``isthmus::cross_entropy_backward_``."""
    rows = in_rows(logits)
    _differentiate(rows, rows, grad, grad_lse, target, lse, *terms)
    if rows.data_ptr() != logits.data_ptr():  # in_rows() made a copy
        logits.copy_(rows.view(logits.shape))


def _differentiate(
    made: torch.Tensor, logits: torch.Tensor, grad: torch.Tensor, grad_lse: torch.Tensor | None,
    target: torch.Tensor, lse: torch.Tensor, *terms: float,
) -> None:  # fmt: skip
    """Write the gradient of rows of logits into ``made``, which may be the logits."""
    rows, classes = logits.shape
    block = min(_BLOCK, power_of_2(classes))
    grad_lse = None if grad_lse is None else grad_lse.contiguous()
    launch(
        _backward, rows * cdiv(classes, block),
        (grad.contiguous(), grad_lse, logits, target.contiguous(), lse.contiguous(), made),
        (classes, logits.stride(0), made.stride(0)), _constants(logits, block, *terms), _warps(block),
    )  # fmt: skip


def _constants(logits: torch.Tensor, block: int, *terms: float) -> dict[str, Any]:
    names = "IGNORED", "SMOOTHING", "SCALE", "SOFTCAP", "SQUARE"
    return dict(zip(names, terms, strict=True)) | {"WIDE": wide(logits), "BLOCK": block}


def _warps(block: int) -> int:
    return max(1, min(_WARPS, block // 256))
