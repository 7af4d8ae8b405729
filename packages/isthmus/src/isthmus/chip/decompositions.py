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


def _upload(values: Tensor, out: Tensor) -> Tensor:
    """Copy values that the host made from numbers alone to ``out``, which is resized if needed."""
    if out.shape != values.shape:
        out.resize_(values.shape)
    return out.copy_(values)


def arange_start_out(start: float, end: float, step: float = 1, *, out: Tensor) -> Tensor:
    """A range written to ``out``.

    Not in terms of ``arange.start_step``, as PyTorch's composite of that one calls this overload.
    """
    return _upload(torch.arange(start, end, step, dtype=out.dtype), out)


def linspace_out(start: float, end: float, steps: int, *, out: Tensor) -> Tensor:
    """Evenly spaced numbers written to ``out``; see :func:`arange_start_out`."""
    return _upload(torch.linspace(start, end, steps, dtype=out.dtype), out)


def eye_m_out(n: int, m: int, *, out: Tensor) -> Tensor:
    """A matrix with ones on the diagonal written to ``out``; see :func:`arange_start_out`."""
    return _upload(torch.eye(n, m, dtype=out.dtype), out)


def multilabel_margin_loss_forward(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Loss of samples [C] or [N, C], and 1 for each class that is a target, else 0.

    The targets of a sample are those before its first -1. The loss of a sample is the sum over its targets t and the
    other classes i of max(0, 1 - x[t] + x[i]), divided by C. PyTorch's decomposition counts targets after the -1.
    """
    if self.dim() > 2:
        raise RuntimeError(f"Expected a vector or a matrix, but got {tuple(self.shape)}")
    classes = self.size(-1) if self.dim() else 1
    wide = self.to(torch.promote_types(self.dtype, torch.float32)).reshape(-1, classes)
    labels = target.reshape(-1, classes)
    given = (labels == -1).cumsum(-1) == 0
    labels = labels.masked_fill(labels == -1, 0)
    is_target = torch.zeros_like(wide).scatter_add(-1, labels, given.to(wide.dtype)).clamp(max=1)
    margins = 1 - wide.gather(-1, labels).unsqueeze(-1) + wide.unsqueeze(-2)
    counted = given.unsqueeze(-1) & (is_target == 0).unsqueeze(-2)
    losses = margins.clamp(min=0).masked_fill(~counted, 0).sum((-1, -2)) / classes
    loss = losses.mean() if reduction == 1 else losses.sum() if reduction == 2 else losses
    shape = loss.shape if self.dim() == 2 else ()
    return loss.reshape(shape).to(self.dtype), is_target.to(self.dtype).reshape(target.shape)


def index_copy(
    self: Tensor, dim: int, index: Tensor, source: Tensor, write: Callable[..., Tensor] = torch.scatter
) -> Tensor:
    """``self`` with slices along a dimension replaced; refuses negative indices, which PyTorch's decomposition takes.

    ``index_add`` of nothing raises the errors of the arguments. ``write`` scatters into a copy or in place.
    """
    written = self if self.dim() else self.view(1)
    source = source if source.dim() else source.reshape([1] * written.dim())
    torch.index_add(written, dim, index, source, alpha=0)
    dim %= written.dim()
    places = index.reshape([-1 if i == dim else 1 for i in range(written.dim())])
    return write(written, dim, places.expand(source.shape), source).view(self.shape)


def index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Compute :func:`index_copy` in place."""
    index_copy(self, dim, index, source, Tensor.scatter_)
    return self


def in_place(functional: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the in-place variant of a functional operator.

    Raises RuntimeError for a result of a dtype that the tensor cannot hold, which PyTorch's decomposition converts.
    """

    def write(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = functional(self, *args, **kwargs)
        if not torch.can_cast(result.dtype, self.dtype):
            raise RuntimeError(
                f"result type {result.dtype} can't be cast to the desired output type {self.dtype}"
            )
        return self.copy_(result)

    return write


def exponential_(self: Tensor, lambd: float = 1, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill with -log(1 - u) / lambd for uniform u; half the distance of the numbers u instead of 0."""
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    wide = torch.float64 if self.dtype == torch.float64 else torch.float32
    u = torch.empty_like(self, dtype=wide).uniform_(generator=generator)
    least = {torch.float64: 2.0**-54, torch.float16: 2.0**-24}.get(self.dtype, 2.0**-25)
    return self.copy_(torch.log1p(-u).neg().clamp_min(least).div(lambd))


def log_normal_(
    self: Tensor, mean: float = 1, std: float = 2, *, generator: torch.Generator | None = None
) -> Tensor:
    """Fill with exp(n) for normal n."""
    return self.normal_(mean, std, generator=generator).exp_()


def cauchy_(
    self: Tensor, median: float = 0, sigma: float = 1, *, generator: torch.Generator | None = None
) -> Tensor:
    """Fill with median + sigma * tan(pi * (u - 1/2)) for uniform u."""
    u = torch.empty_like(self).uniform_(generator=generator)
    return self.copy_(torch.tan((u - 0.5) * math.pi) * sigma + median)


def geometric_(self: Tensor, p: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Fill with the number of trials up to the first success, each with probability p."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    waits = torch.empty_like(self, dtype=torch.float32).exponential_(-math.log1p(-p), generator=generator)
    return self.copy_(waits.ceil())


def multinomial(
    self: Tensor, num_samples: int, replacement: bool = False, *, generator: torch.Generator | None = None
) -> Tensor:
    """Indices of drawn categories, int64 [samples] or [rows, samples], by weights [categories] or [rows, categories].

    A weight over an exponential number is largest in proportion to the weights (Gumbel's trick).
    """
    if not self.is_floating_point():
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {self.dtype}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > self.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    weights = self if self.dtype == torch.float64 else self.float()
    if not bool(((weights >= 0) & weights.isfinite()).all()):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if not bool((weights.sum(-1) > 0).all()):
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if replacement:
        weights = weights.unsqueeze(-2).expand(*weights.shape[:-1], num_samples, weights.shape[-1])
        return (weights / torch.empty_like(weights).exponential_(generator=generator)).argmax(-1)
    return (weights / torch.empty_like(weights).exponential_(generator=generator)).topk(num_samples).indices


def _shift_factors(self: Tensor | int, other: Tensor | int) -> tuple[Tensor, Tensor, Tensor]:
    """The shifted tensor and two powers of two, each of half the shift; of all bits where it is out of range.

    One of both may be a number, which takes the dtype of the other.
    """
    if not isinstance(self, Tensor):
        assert isinstance(other, Tensor)
        self = other.new_full((), self)
    if not isinstance(other, Tensor):
        other = self.new_full((), other)
    dtype = torch.promote_types(self.dtype, other.dtype)
    bits = torch.iinfo(dtype).bits
    by = other.to(dtype)
    by = torch.where((by < 0) | (by >= bits), bits, by)
    half = by // 2
    return self.to(dtype), torch.pow(2, half), torch.pow(2, by - half)


def left_shift(self: Tensor | int, other: Tensor | int) -> Tensor:
    """Bits moved up; 0 where the shift is negative or has all bits or more."""
    shifted, first, second = _shift_factors(self, other)
    return shifted * first * second


def right_shift(self: Tensor | int, other: Tensor | int) -> Tensor:
    """Bits moved down, with the sign; by all bits where the shift is negative or has more."""
    shifted, first, second = _shift_factors(self, other)
    return shifted.div(first, rounding_mode="floor").div(second, rounding_mode="floor")


def index_fill_(self: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    """``self``, in place, with a number in the slices of a dimension that ``index`` names; negative ones wrap."""
    if self.dim() == 0:
        index_fill_(self.view(1), dim, index, value)
        return self
    shape = list(self.shape)
    size, shape[dim] = shape[dim], index.numel()
    places = torch.where(index < 0, index + size, index).reshape(-1)
    return self.index_copy_(dim, places, self.new_full(shape, value))


def logaddexp(self: Tensor, other: Tensor) -> Tensor:
    """log(exp(self) + exp(other)), elementwise; equal infinities stay."""
    high, distance = torch.maximum(self, other), (self - other).abs().neg()
    return torch.where(self == other, self + math.log(2), high + torch.log1p(distance.exp()))


def bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Counts, or sums of weights, of the numbers from 0 on: [max(minlength, largest + 1)]; waits for the largest."""
    if self.dim() != 1 or self.is_floating_point() or (self.numel() and int(self.min()) < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    size = max(minlength, int(self.max()) + 1 if self.numel() else 0)
    if weights is None:
        return self.new_zeros(size, dtype=torch.int64).scatter_add_(
            0, self.long(), self.new_ones(self.shape, dtype=torch.int64)
        )
    kind = weights.dtype if weights.dtype == torch.float32 else torch.float64
    return weights.new_zeros(size, dtype=kind).scatter_add_(0, self.long(), weights.to(kind))


def _of_pytorch(overload: str) -> Callable[..., Any]:
    """PyTorch's decomposition of an overload, such as ``celu.default``."""
    from torch._decomp import decomposition_table

    name, _, which = overload.partition(".")
    return decomposition_table[getattr(getattr(torch.ops.aten, name), which)]


def _check_indices(indices: Tensor, size: int) -> None:
    """Raise RuntimeError for an index out of range, by a kernel that refuses it."""
    torch.gather(torch.zeros(size, dtype=torch.bool, device=indices.device), 0, indices.reshape(-1))


def max_unpool2d(self: Tensor, indices: Tensor, output_size: list[int]) -> Tensor:
    """Unpool a tensor [N, C, H, W] or [C, H, W] to ``output_size``, with 0 where no maximum was.

    Raises RuntimeError for an index out of range, for which PyTorch's decomposition writes out of bounds.
    """
    _check_indices(indices, math.prod(output_size))
    return _of_pytorch("max_unpool2d.default")(self, indices, output_size)


def max_unpool3d(
    self: Tensor, indices: Tensor, output_size: list[int], stride: list[int], padding: list[int]
) -> Tensor:
    """Unpool a tensor [N, C, D, H, W] or [C, D, H, W]; see :func:`max_unpool2d`."""
    _check_indices(indices, math.prod(output_size))
    whole = _of_pytorch("max_unpool3d.default")
    return whole(self, indices, output_size, stride, padding)


def celu(self: Tensor, alpha: float = 1.0) -> Tensor:
    """Continuously differentiable ELU, elementwise.

    Raises RuntimeError for an alpha of 0, which PyTorch's decomposition accepts.
    """
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return torch.ops.aten.elu(self, alpha, 1, 1 / alpha)


def celu_(self: Tensor, alpha: float = 1.0) -> Tensor:
    """Compute :func:`celu` in place."""
    return self.copy_(celu(self, alpha))


def logit_backward(grad_output: Tensor, self: Tensor, eps: float | None = None) -> Tensor:
    """Gradient of logit, elementwise. A negative ``eps`` means None, as in the kernels."""
    given = None if eps is None or eps < 0 else eps
    return _of_pytorch("logit_backward.default")(grad_output, self, given)


def nll_loss2d_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """Gradient of the log-probabilities [N, C, H, W]: that of a class that is not the target is 0.

    PyTorch's decomposition multiplies it by the gradient of the mean, which is infinite if the weights sum to 0.
    """
    target = target.unsqueeze(1)
    ignored = target == ignore_index
    target = target.masked_fill(ignored, 0)
    slope = grad_output.unsqueeze(1) if grad_output.dim() else grad_output
    slope = slope / total_weight if reduction == 1 else slope
    if weight is not None:
        slope = torch.index_select(weight, 0, target.reshape(-1)).view(target.shape) * slope
    values = (-slope).to(self.dtype).expand(target.shape).masked_fill(ignored, 0)
    return torch.zeros_like(self).scatter(1, target, values)


def _resampling_decomposition(overload: str) -> Callable[..., Tensor]:
    """Return PyTorch's decomposition of a resampling operator, with a check of the sizes.

    It raises RuntimeError for sizes of 0, which PyTorch's decomposition accepts.
    """

    def resample(self: Tensor, output_size: list[int], *rest: Any) -> Tensor:
        sizes = (*self.shape[2:], *output_size)
        if min(sizes) <= 0:
            raise RuntimeError(
                f"Input and output sizes should be greater than 0, but got input {list(self.shape[2:])} output "
                f"{list(output_size)}"
            )
        return _of_pytorch(overload)(self, output_size, *rest)

    return resample


_RESAMPLED = (
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_bicubic2d",
    "upsample_linear1d",
    "upsample_nearest1d",
    "upsample_nearest3d",
    "upsample_trilinear3d",
)


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


# Overloads of both shifts. The methods with underscores, which `<<` and `>>` call, are other operators.
_SHIFTS: dict[str, Callable[..., Tensor]] = {}
for _side, _shift, _short in (("left", left_shift, "l"), ("right", right_shift, "r")):
    _SHIFTS |= {
        f"aten::bitwise_{_side}_shift.Tensor": _shift,
        f"aten::bitwise_{_side}_shift_.Tensor": in_place(_shift),
        f"aten::__{_short}shift__.Tensor": getattr(torch, f"bitwise_{_side}_shift"),
        f"aten::__{_short}shift__.Scalar": getattr(torch, f"bitwise_{_side}_shift"),
        f"aten::__i{_short}shift__.Tensor": getattr(Tensor, f"bitwise_{_side}_shift_"),
        f"aten::__i{_short}shift__.Scalar": getattr(Tensor, f"bitwise_{_side}_shift_"),
    }


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
    "aten::max_unpool2d": max_unpool2d,
    "aten::max_unpool3d": max_unpool3d,
    "aten::celu": celu,
    "aten::celu_": celu_,
    "aten::logit_backward": logit_backward,
    "aten::nll_loss2d_backward": nll_loss2d_backward,
    **{f"aten::{name}": _resampling_decomposition(f"{name}.default") for name in _RESAMPLED},
    "aten::exponential_": exponential_,
    "aten::log_normal_": log_normal_,
    "aten::cauchy_": cauchy_,
    "aten::geometric_": geometric_,
    "aten::multinomial": multinomial,
    **_SHIFTS,
    "aten::index_fill_.int_Scalar": index_fill_,
    "aten::logaddexp": logaddexp,
    "aten::bincount": bincount,
    "aten::index_copy": index_copy,
    "aten::index_copy_": index_copy_,
    "aten::_scaled_dot_product_flash_attention_for_cpu": flash_attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": flash_attention_backward,
}
