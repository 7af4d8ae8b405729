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


def equal(self: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are equal."""
    return self.shape == other.shape and bool(torch.all(torch.eq(self, other)))


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


DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "aten::isneginf": isneginf,
    "aten::isposinf": isposinf,
    "aten::all.dim": all_dim,
    "aten::masked_fill_.Tensor": masked_fill_tensor,
    "aten::clamp_min.Tensor": clamp_min_tensor,
    "aten::clamp_max.Tensor": clamp_max_tensor,
    "aten::var_mean.correction": var_mean,
    "aten::std.correction": std,
    "aten::std_mean.correction": std_mean,
    "aten::equal": equal,
    "aten::nonzero": nonzero,
    "aten::masked_select": masked_select,
    "aten::_index_put_impl_": index_put_impl,
    "aten::arange.start_out": arange_start_out,
    "aten::linspace.out": linspace_out,
    "aten::eye.m_out": eye_m_out,
}
