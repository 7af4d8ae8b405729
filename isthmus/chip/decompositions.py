"""Decompositions of ATen operators for which PyTorch has only CPU and CUDA kernels.

They use operators of the opset, so a chip that implements the opset needs no kernels for them.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def isneginf(self: Tensor) -> Tensor:
    """bool mask of the elements that are minus infinity."""
    return torch.eq(self, -math.inf)


def isposinf(self: Tensor) -> Tensor:
    """bool mask of the elements that are plus infinity."""
    return torch.eq(self, math.inf)


def all_dim(self: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Whether all elements along a dimension are true, bool (uint8 for uint8)."""
    every = torch.logical_not(torch.any(torch.logical_not(self), dim, keepdim))
    return every.to(torch.uint8) if self.dtype is torch.uint8 else every


def masked_fill_tensor(self: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    """``self``, in place, with the 0-dim ``value`` where the mask is true."""
    return self.copy_(torch.where(mask, value.to(self.device, self.dtype), self))


def clamp_min_tensor(self: Tensor, min: Tensor) -> Tensor:
    """Elementwise maximum; propagates NaN."""
    return torch.maximum(self, min)


def clamp_max_tensor(self: Tensor, max: Tensor) -> Tensor:
    """Elementwise minimum; propagates NaN."""
    return torch.minimum(self, max)


def threshold(self: Tensor, threshold: float, value: float) -> Tensor:
    """``value`` where ``self``, halves in float32, is at most the threshold, for integers truncated."""
    floating = self.dtype.is_floating_point
    compared = self.to(torch.promote_types(self.dtype, torch.float32)) if floating else self
    return torch.masked_fill(self, compared <= (threshold if floating else int(threshold)), value)


def var_mean(
    self: Tensor, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Variance with N - correction in the denominator, and mean."""
    mean = torch.mean(self, dim if dim else tuple(range(self.dim())), keepdim)
    return torch.var(self, dim, correction=correction, keepdim=keepdim), mean


def std(
    self: Tensor, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """Standard deviation with N - correction in the denominator."""
    return torch.sqrt(torch.var(self, dim, correction=correction, keepdim=keepdim))


def std_mean(
    self: Tensor, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean."""
    variance, mean = var_mean(self, dim, correction=correction, keepdim=keepdim)
    return torch.sqrt(variance), mean


def cumprod(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Product of the elements up to each one along a dimension, as torch._refs: n x n factors for n elements."""
    if self.dim() == 0:
        return torch.prod(self, dtype=dtype)
    dim %= self.dim()
    count = self.size(dim)
    not_after = torch.ones(count, count, dtype=torch.bool, device=self.device).triu()
    not_after = not_after.view(count, count, *[1] * (self.dim() - dim - 1))
    return torch.prod(torch.where(not_after, self.unsqueeze(dim + 1), 1), dim, dtype=dtype)


def equal(self: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are equal."""
    return self.shape == other.shape and bool(torch.all(torch.eq(self, other)))


def assert_async(self: Tensor, assert_msg: str = "Expected Tensor with a true value") -> None:
    """Raise RuntimeError unless the element is true; waits for it."""
    if not self.item():
        raise RuntimeError(assert_msg)


def index_put_impl(
    self: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    """``self``, in place, with values written or added at the indices."""
    return self.copy_(torch.ops.aten.index_put.default(self, indices, values, accumulate))


def nonzero(self: Tensor) -> Tensor:
    """Indices of nonzero elements, int64 [n, dimensions].

    The shape depends on the values, so the CPU computes the indices from a bool mask.
    """
    return torch.nonzero(torch.ne(self, 0).cpu()).to(self.device)


def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is true, one-dimensional."""
    values, mask = torch.broadcast_tensors(self, mask)
    return torch.index_select(values.reshape(-1), 0, nonzero(mask.reshape(-1)).view(-1))


def _uploaded(values: Tensor, out: Tensor) -> Tensor:
    """Copy values that the host made from numbers alone to ``out``, which is resized if needed."""
    if out.shape != values.shape:
        out.resize_(values.shape)
    return out.copy_(values)


def arange_start_out(start: float, end: float, step: float = 1, *, out: Tensor) -> Tensor:
    """A range written to ``out``.

    Not in terms of ``arange.start_step``, as PyTorch's composite of that one calls this overload.
    """
    return _uploaded(torch.arange(start, end, step, dtype=out.dtype), out)


def linspace_out(start: float, end: float, steps: int, *, out: Tensor) -> Tensor:
    """Evenly spaced numbers written to ``out``; see :func:`arange_start_out`."""
    return _uploaded(torch.linspace(start, end, steps, dtype=out.dtype), out)


def eye_m_out(n: int, m: int, *, out: Tensor) -> Tensor:
    """A matrix with ones on the diagonal written to ``out``; see :func:`arange_start_out`."""
    return _uploaded(torch.eye(n, m, dtype=out.dtype), out)


def multilabel_margin_loss_forward(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """PyTorch's; the loss of a single sample has no dimension, as on the CPU."""
    from torch._decomp import decomposition_table

    overload = torch.ops.aten.multilabel_margin_loss_forward.default
    loss, is_target = decomposition_table[overload](self, target, reduction)
    return loss if self.dim() == 2 else loss.reshape(()), is_target


def _attention_scale(query: Tensor, scale: float | None) -> float:
    return query.size(-1) ** -0.5 if scale is None else scale


def _attention_scores(
    query: Tensor, key: Tensor, is_causal: bool, attn_mask: Tensor | None, scale: float | None
) -> Tensor:
    """Scores [batch, heads, queries, keys] in at least float32; minus infinity where the causal mask hides a key."""
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = torch.matmul(query.to(wide) * _attention_scale(query, scale), key.to(wide).transpose(-2, -1))
    if attn_mask is not None:
        scores = scores + attn_mask
    if not is_causal:
        return scores
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(hidden, -math.inf)


def _for_heads(of_keys: Tensor, heads: int) -> Tensor:
    """Keys or values repeated for the heads of the query that share them."""
    return of_keys.repeat_interleave(heads // of_keys.size(1), 1) if of_keys.size(1) != heads else of_keys


def _of_heads(gradient: Tensor, heads: int) -> Tensor:
    """The inverse of :func:`_for_heads` for gradients: those of shared keys are summed."""
    if gradient.size(1) == heads:
        return gradient
    return gradient.unflatten(1, (heads, gradient.size(1) // heads)).sum(2)


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of [batch, heads, tokens, size], and logsumexp [batch, heads, queries] in at least float32.

    PyTorch's own decomposition gives the weights of the attention for the second. The results of a query that sees
    no key are zero.
    """
    if dropout_p != 0.0:
        raise RuntimeError(f"the dropout of flash attention must be 0, got {dropout_p}")
    key, value = (_for_heads(each, query.size(1)) for each in (key, value))
    scores = _attention_scores(query, key, is_causal, attn_mask, scale)
    blind = torch.isneginf(scores.amax(-1, True))
    weights = torch.softmax(scores, -1).masked_fill(blind, 0.0)
    out = torch.matmul(weights, value.to(scores.dtype))
    return out.to(query.dtype), torch.logsumexp(scores, -1).masked_fill(blind.squeeze(-1), 0.0)


def flash_attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value of :func:`flash_attention`."""
    heads, key_heads = query.size(1), key.size(1)
    key, value = (_for_heads(each, heads) for each in (key, value))
    scores = _attention_scores(query, key, is_causal, attn_mask, scale)
    wide = scores.dtype
    weights = torch.exp(scores - logsumexp.unsqueeze(-1))
    grad = grad_out.to(wide)
    inner = torch.matmul(grad, value.to(wide).transpose(-2, -1)) - (grad * out.to(wide)).sum(-1, True)
    grad_scores = weights * inner * _attention_scale(query, scale)
    grad_query = torch.matmul(grad_scores, key.to(wide))
    grad_key = torch.matmul(grad_scores.transpose(-2, -1), query.to(wide))
    grad_value = torch.matmul(weights.transpose(-2, -1), grad)
    return (
        grad_query.to(query.dtype),
        _of_heads(grad_key, key_heads).to(key.dtype),
        _of_heads(grad_value, key_heads).to(value.dtype),
    )


DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "aten::isneginf": isneginf,
    "aten::isposinf": isposinf,
    "aten::all.dim": all_dim,
    "aten::masked_fill_.Tensor": masked_fill_tensor,
    "aten::clamp_min.Tensor": clamp_min_tensor,
    "aten::clamp_max.Tensor": clamp_max_tensor,
    "aten::threshold": threshold,
    "aten::var_mean.correction": var_mean,
    "aten::std.correction": std,
    "aten::std_mean.correction": std_mean,
    "aten::cumprod": cumprod,
    "aten::equal": equal,
    "aten::_assert_async": assert_async,
    "aten::_assert_async.msg": assert_async,
    "aten::nonzero": nonzero,
    "aten::masked_select": masked_select,
    "aten::_index_put_impl_": index_put_impl,
    "aten::arange.start_out": arange_start_out,
    "aten::linspace.out": linspace_out,
    "aten::eye.m_out": eye_m_out,
    "aten::multilabel_margin_loss_forward": multilabel_margin_loss_forward,
    "aten::_scaled_dot_product_flash_attention_for_cpu": flash_attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": flash_attention_backward,
}
