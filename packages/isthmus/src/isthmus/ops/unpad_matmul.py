"""Batched matrix products of packed sequences: scores from queries and keys, context from scores."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from isthmus.ops import autocast
from isthmus.ops.registration import operator


class _Place(NamedTuple):
    """Layout of the matrices of one operand: stored rows and columns, row pitch, head stride."""

    rows: Sequence[int]
    columns: Sequence[int]
    pitch: Sequence[int]
    stride: Sequence[int]

    def views(self, flat: torch.Tensor, heads: int) -> list[torch.Tensor]:
        """The matrices of each sequence, [heads, rows, columns]."""
        first, found = flat.storage_offset(), []
        for rows, columns, pitch, stride in zip(*self, strict=True):
            found.append(flat.as_strided((heads, rows, columns), (stride, pitch, 1), first))
            first += heads * rows * columns
        return found

    def check(self, name: str, flat: torch.Tensor | None, heads: int) -> None:
        """Check that every element of the operand belongs to exactly one matrix."""
        total = heads * sum(r * c for r, c in zip(self.rows, self.columns, strict=True))
        if flat is not None and flat.numel() != total:
            raise ValueError(
                f"unpad_strided_batch_matmul: {name} has {flat.numel()} elements; its matrices have {total}"
            )
        for i, (rows, columns, pitch, stride) in enumerate(zip(*self, strict=True)):
            last = (rows - 1) * pitch + (heads - 1) * stride + columns
            blocks = pitch >= columns and (heads == 1 or stride >= (rows - 1) * pitch + columns)
            side_by_side = stride >= columns and (rows == 1 or pitch >= (heads - 1) * stride + columns)
            if rows * columns and (last > heads * rows * columns or not (blocks or side_by_side)):
                raise ValueError(
                    f"unpad_strided_batch_matmul: the matrices of {name} for sequence {i} are {rows} x {columns}, "
                    f"with row pitch {pitch} and head stride {stride}; they overlap or exceed their "
                    f"{heads * rows * columns} elements"
                )


@operator("unpad_strided_batch_matmul")
def _matmul(a: torch.Tensor, b: torch.Tensor, trans_a: bool, trans_b: bool, *others: Any) -> torch.Tensor:
    *sizes, heads = others
    m, _, n = sizes[:3]
    place_a, place_b, place_c = _places(trans_a, trans_b, tuple(sizes))
    out = a.new_empty(heads * sum(x * y for x, y in zip(m, n, strict=True)))
    operands = (
        place_a.views(a.contiguous(), heads),
        place_b.views(b.contiguous(), heads),
        place_c.views(out, heads),
    )
    for left, right, to in zip(*operands, strict=True):
        to.copy_(
            torch.bmm(left.transpose(1, 2) if trans_a else left, right.transpose(1, 2) if trans_b else right)
        )
    return out


_Sizes = tuple[Sequence[int], ...]


def _places(trans_a: bool, trans_b: bool, sizes: _Sizes) -> tuple[_Place, _Place, _Place]:
    m, k, n, lda, ldb, ldc, stride_a, stride_b, stride_c = sizes
    return (
        _Place(*((k, m) if trans_a else (m, k)), lda, stride_a),
        _Place(*((n, k) if trans_b else (k, n)), ldb, stride_b),
        _Place(m, n, ldc, stride_c),
    )


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: torch.Tensor, b: torch.Tensor, transposed: tuple[bool, bool], sizes: _Sizes, heads: int
    ) -> Any:
        ctx.save_for_backward(a, b)
        ctx.transposed, ctx.sizes, ctx.heads = transposed, sizes, heads
        return _matmul(a, b, *transposed, *sizes, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        a, b = ctx.saved_tensors
        (trans_a, trans_b), heads = ctx.transposed, ctx.heads
        m, k, n, lda, ldb, ldc, stride_a, stride_b, stride_c = ctx.sizes
        like_a, like_b, like_c = (lda, stride_a), (ldb, stride_b), (ldc, stride_c)

        def product(x: Any, y: Any, turned: tuple[bool, bool], sizes: _Sizes, *like: Any) -> Any:
            pitches, strides = zip(*like, strict=True)
            return _matmul(x, y, *turned, *sizes, *pitches, *strides, heads)

        da = db = None
        if ctx.needs_input_grad[0]:
            da = (
                product(b, grad, (trans_b, True), (k, n, m), like_b, like_c, like_a)
                if trans_a
                else product(grad, b, (False, not trans_b), (m, n, k), like_c, like_b, like_a)
            ).view(a.shape)
        if ctx.needs_input_grad[1]:
            db = (
                product(grad, a, (True, trans_a), (n, m, k), like_c, like_a, like_b)
                if trans_b
                else product(a, grad, (not trans_a, False), (k, m, n), like_a, like_c, like_b)
            ).view(b.shape)
        return da, db, None, None, None


def unpad_strided_batch_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    trans_a: bool,
    trans_b: bool,
    m: Sequence[int],
    k: Sequence[int],
    n: Sequence[int],
    lda: Sequence[int],
    ldb: Sequence[int],
    ldc: Sequence[int],
    stride_a: Sequence[int],
    stride_b: Sequence[int],
    stride_c: Sequence[int],
    batch: int,
    heads: int,
) -> torch.Tensor:
    """``C = op(A) op(B)`` for each sequence and head, of matrices in flat tensors.

    The matrices of sequence i follow those of the sequences before it; head t starts ``t * stride[i]`` elements
    later, and its rows are ``ld[i]`` elements apart. For scores of queries and keys [total, heads * d]: ``trans_b``,
    m = n = s, k = d, lda = ldb = heads * d, stride_a = stride_b = d, ldc = s, stride_c = s * s. For the context
    (scores times values): m = k = s, n = d, ldc = heads * d, stride_c = d.

    Args:
        a: heads * sum(m * k) elements of any shape, float16, bfloat16, float32 or float64.
        b: heads * sum(k * n) elements of the dtype of ``a``.
        trans_a: whether the matrices of ``a`` are stored as [k, m].
        trans_b: whether the matrices of ``b`` are stored as [n, k].
        m: rows of C, for each sequence.
        k: columns of op(A).
        n: columns of C.
        lda: row pitch of ``a`` as stored, in elements.
        ldb: row pitch of ``b``.
        ldc: row pitch of C.
        stride_a: head stride of ``a``, in elements.
        stride_b: head stride of ``b``.
        stride_c: head stride of C.
        batch: number of sequences.
        heads: number of heads.

    Returns:
        [heads * sum(m * n)].

    Raises:
        ValueError: a list does not have ``batch`` numbers from 0 on, or the lists do not match the tensors.
    """
    given = (m, k, n, lda, ldb, ldc, stride_a, stride_b, stride_c)
    names = ("m", "k", "n", "lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c")
    sizes = tuple([int(each) for each in numbers] for numbers in given)
    for name, numbers in zip(names, sizes, strict=True):
        if not batch or len(numbers) != batch or any(each < 0 for each in numbers):
            raise ValueError(
                f"unpad_strided_batch_matmul: {name} is {numbers}; it must be {batch} numbers from 0 on"
            )
    a, b = autocast.lower(a, b)
    if a.dtype != b.dtype:
        raise ValueError(
            f"unpad_strided_batch_matmul: a is {a.dtype} and b {b.dtype}; they must have one dtype"
        )
    for operand, place, flat in zip(
        ("a", "b", "C"), _places(trans_a, trans_b, sizes), (a, b, None), strict=True
    ):
        place.check(operand, flat, heads)
    return _Matmul.apply(a, b, (trans_a, trans_b), sizes, heads)
