"""Sparse COO tensors on chips whose memory the CPU cannot address: what training needs runs in dense operators.

Indices and values are dense chip tensors. PyTorch's kernels for sparse CPU tensors that only arrange indices and
values run as they are; those that compute on host pointers are decomposed into dense operators here. Everything else
takes the fallback, and where the CPU can address the memory everything is delegated (csrc/dispatch/layouts). Both
exist because a chip may forbid the fallback, which also copies whole embedding tables in each sparse update.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet

from isthmus.chip._utils import overload

_HOST = DispatchKeySet(DispatchKey.SparseCPU)
_KEY = "SparsePrivateUse1"

# Kernels of SparseCPU that call other operators only, so the device of their tensors does not matter.
_ARRANGING = (
    "_sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors empty.memory_format _indices _values "
    "indices values _nnz sparse_dim dense_dim _dimI _dimV is_coalesced _coalesced_ sparse_resize_ "
    "sparse_resize_and_clear_ empty_like clone copy_ copy_sparse_to_sparse_ zero_ resize_as_sparse_ unsqueeze "
    "permute cat sparse_mask sum sum.dim_IntList any norm.ScalarOpt_dim native_norm "
    "native_norm.ScalarOpt_dim_dtype pow.Tensor_Scalar neg abs sqrt relu sign _sparse_broadcast_to"
).split()

_library: Any = None


def register() -> None:
    """Register the operators; called when the chip is initialized."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        # The decompositions replace the fallback (csrc/dispatch/layouts), which chips without one refuse.
        warnings.filterwarnings("ignore", "Warning only once for all operators")
        for name in _ARRANGING:
            operator = overload(f"aten::{name}")
            assert operator is not None, name
            _library.impl(name, functools.partial(operator.redispatch, _HOST), _KEY)
        for name, function in _COMPUTING.items():
            _library.impl(name, function, _KEY)
        for name, function in _FROM_DENSE.items():
            _library.impl(name, function, "PrivateUse1", allow_override=True)


def _make_sparse(indices: Tensor, values: Tensor, size: Any, is_coalesced: bool = False) -> Tensor:
    return torch.sparse_coo_tensor(indices, values, size, check_invariants=False, is_coalesced=is_coalesced)


def _rows(sparse: Tensor) -> tuple[Tensor, int, torch.Size]:
    """The sparse dimensions as one: index of each value in it, its size, and the shape of a value."""
    sizes = sparse.shape[: sparse.sparse_dim()]
    rows = torch.zeros(sparse._nnz(), dtype=torch.int64, device=sparse.device)
    for index, size in zip(sparse._indices(), sizes, strict=True):
        rows = rows * size + index
    return rows, math.prod(sizes), sparse.shape[sparse.sparse_dim() :]


def coalesce(self: Tensor) -> Tensor:
    """Sum the values that have the same indices, and sort the indices."""
    rows, order = torch.sort(_rows(self)[0], stable=True)
    is_first = torch.cat([rows[:1] == rows[:1], rows[1:] != rows[:-1]])
    found, places = rows[is_first], is_first.cumsum(0) - 1
    values = self._values().index_select(0, order)
    summed = values.new_zeros(len(found), *values.shape[1:]).index_add_(0, places, values)
    indices: list[Tensor] = []
    for size in reversed(self.shape[: self.sparse_dim()]):
        indices.insert(0, found % size)
        found = found // size
    stacked = torch.stack(indices) if indices else self._indices()[:, :1]
    return _make_sparse(stacked, summed, self.shape, is_coalesced=True)


def to_dense(self: Tensor, dtype: torch.dtype | None = None, masked_grad: bool | None = None) -> Tensor:
    """A strided tensor with the sums of the values at their indices."""
    values = self._values() if dtype is None else self._values().to(dtype)
    return _accumulate(torch.zeros(self.shape, dtype=values.dtype, device=self.device), self, values)


def _accumulate(dense: Tensor, sparse: Tensor, values: Tensor) -> Tensor:
    """Add values at the indices of ``sparse`` to a contiguous tensor, in place."""
    rows, count, shape = _rows(sparse)
    dense.view(count, *shape).index_add_(0, rows, values.to(dense.dtype))
    return dense


def add(self: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    """``self + alpha * other`` of two sparse tensors (not coalesced), or of a dense and a sparse one (dense)."""
    if not self.is_sparse or not other.is_sparse:
        dense, sparse, factor = (other, self, 1) if self.is_sparse else (self, other, alpha)
        dtype, scale = torch.result_type(self, other), 1 if sparse is other else alpha
        start = (dense * scale).to(dtype).expand(torch.broadcast_shapes(dense.shape, sparse.shape))
        return _accumulate(
            start.clone(memory_format=torch.contiguous_format), sparse, sparse._values() * factor
        )
    if self.sparse_dim() != other.sparse_dim() or self.shape != other.shape:
        raise RuntimeError(
            f"add: expected sparse tensors of one shape and sparse_dim, got {tuple(self.shape)} with "
            f"{self.sparse_dim()} and {tuple(other.shape)} with {other.sparse_dim()}"
        )
    indices = torch.cat([self._indices(), other._indices()], 1)
    return _make_sparse(indices, torch.cat([self._values(), other._values() * alpha]), self.shape)


def add_(self: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    """:func:`add` in place."""
    if self.is_sparse or not self.is_contiguous():
        return self.copy_(torch.add(self, other, alpha=alpha))
    return _accumulate(self, other, other._values() * alpha)


def sub(self: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    """``self - alpha * other``; see :func:`add`."""
    return add(self, other, alpha=-alpha)


def _of_values(operator: Callable[[Tensor, Any], Tensor], self: Tensor, other: Any) -> Tensor:
    """Apply a binary operator to the values of a sparse tensor and a number."""
    return _make_sparse(self._indices(), operator(self._values(), other), self.shape, self.is_coalesced())


def mul(self: Tensor, other: Any) -> Tensor:
    """Product with a number, or elementwise with a tensor of the same shape (coalesced)."""
    if isinstance(self, Tensor) and not self.is_sparse:
        self, other = other, self
    if not isinstance(other, Tensor) or other.dim() == 0:
        return _of_values(torch.mul, self, other.to_dense() if _is_sparse(other) else other)
    self = self.coalesce()
    rows, count, shape = _rows(self)
    dense = (other.to_dense() if other.is_sparse else other).expand(self.shape)
    values = self._values() * dense.reshape(count, *shape).index_select(0, rows)
    return _make_sparse(self._indices(), values, self.shape, is_coalesced=True)


def _is_sparse(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_sparse


def div(self: Tensor, other: Any) -> Tensor:
    """Quotient by a number."""
    if isinstance(other, Tensor) and (other.dim() or other.is_sparse):
        raise RuntimeError("div: a sparse tensor can be divided by a number only")
    return _of_values(torch.div, self, other)


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def update(self: Tensor, other: Any) -> Tensor:
        return self.copy_(function(self, other))

    return update


def mm(self: Tensor, mat2: Tensor) -> Tensor:
    """Product of a sparse matrix [m, k] and a dense one [k, n] (dense), or of two sparse ones (sparse)."""
    if mat2.is_sparse and self.is_sparse:
        return mm(self, mat2.to_dense()).to_sparse()
    if not self.is_sparse:
        return mm(mat2.t(), self.t()).t()
    row, column = self._indices()
    out = torch.zeros(self.shape[0], mat2.shape[1], dtype=self.dtype, device=self.device)
    return out.index_add_(0, row, self._values().unsqueeze(1) * mat2.index_select(0, column))


def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * self + alpha * mat1 @ mat2``, of which a matrix is sparse."""
    product = mm(mat1, mat2)
    return product * alpha if beta == 0 else self * beta + product * alpha


def mv(self: Tensor, vec: Tensor) -> Tensor:
    """Product of a sparse matrix [m, k] and a vector [k]."""
    return mm(self, vec.unsqueeze(1)).squeeze(1)


def to_sparse(self: Tensor, sparse_dim: int) -> Tensor:
    """A sparse tensor of the values that are not 0, with the first dimensions sparse (coalesced)."""
    flat = self.reshape(*self.shape[:sparse_dim], -1)
    indices = (flat != 0).any(-1).nonzero().t()
    return _make_sparse(indices, self[tuple(indices)], self.shape, is_coalesced=True)


def to_sparse_of(
    self: Tensor, *, layout: torch.layout | None = None, blocksize: Any = None, dense_dim: int | None = None
) -> Tensor:
    """:func:`to_sparse` with a layout.

    Raises:
        NotImplementedError: the layout is not COO.
    """
    if layout not in (None, torch.sparse_coo):
        raise NotImplementedError(f"{layout} tensors are not supported on chip; use .cpu() first")
    return to_sparse(self, self.dim() - (dense_dim or 0))


_COMPUTING: dict[str, Callable[..., Any]] = {
    "_coalesce": coalesce, "_to_dense": to_dense, "add.Tensor": add, "add_.Tensor": add_, "sub.Tensor": sub,
    "mul.Tensor": mul, "mul_.Tensor": _in_place(mul), "div.Tensor": div, "div_.Tensor": _in_place(div), "mm": mm,
    "addmm": addmm, "mv": mv, "_sparse_sparse_matmul": mm,
}  # fmt: skip
_FROM_DENSE: dict[str, Callable[..., Any]] = {"_to_sparse": to_sparse_of, "_to_sparse.sparse_dim": to_sparse}
