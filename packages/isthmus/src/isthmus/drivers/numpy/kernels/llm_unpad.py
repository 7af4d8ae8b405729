"""Attention over sequences of different lengths without padding."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, double, operator
from isthmus.drivers.numpy.kernels.llm_softmax import softmax


@operator("isthmus::unpad_seqlen")
def unpad(x: Array, lengths: list[int], longest: int) -> Array:
    return np.concatenate([part[:length] for part, length in zip(x, lengths, strict=True)])


@operator("isthmus::pad_seqlen")
def pad(x: Array, lengths: list[int], longest: int) -> Array:
    out = np.zeros((len(lengths), longest, x.shape[1]), x.dtype)
    for into, part in zip(out, np.split(x, np.cumsum(lengths)[:-1]), strict=True):
        into[: len(part)] = part
    return out


@operator("isthmus::unpad_gen_attention_mask")
def masks(mask: Array, lengths: list[int], heads: int) -> Array:
    squares = (mask[i, 0, :n, :n].reshape(-1) for i, n in enumerate(lengths))
    return np.concatenate([np.tile(square, heads) for square in squares])


def squares(flat: Array, lengths: list[int], heads: int) -> Iterator[Any]:
    """Yield the scores of each sequence: float64 [heads * length, length]."""
    start = 0
    for n in lengths:
        yield double(flat[start : start + heads * n * n]).reshape(heads * n, n)
        start += heads * n * n


@operator("isthmus::unpad_softmax")
def unpad_softmax(x: Array, lengths: list[int], heads: int) -> Array:
    return np.concatenate([softmax(part).reshape(-1) for part in squares(x, lengths, heads)])


@operator("isthmus::unpad_softmax_backward")
def unpad_softmax_backward(grad: Array, out: Array, lengths: list[int], heads: int) -> Array:
    pairs = zip(squares(grad, lengths, heads), squares(out, lengths, heads), strict=True)
    return np.concatenate([(y * (g - (y * g).sum(-1, keepdims=True))).reshape(-1) for g, y in pairs])


def matrix(start: int, rows: int, columns: int, leading: int, turned: bool) -> Any:
    """Return the offsets of a BLAS matrix in memory: [rows, columns]; ``turned`` if it lies transposed."""
    row, column = np.arange(rows)[:, None], np.arange(columns)
    return start + (row + column * leading if turned else row * leading + column)


@operator("isthmus::unpad_strided_batch_matmul")
def batch_matmul(
    a: Array, b: Array, trans_a: bool, trans_b: bool, m: list[int], k: list[int], n: list[int], lda: list[int],
    ldb: list[int], ldc: list[int], stride_a: list[int], stride_b: list[int], stride_c: list[int], heads: int,
) -> Array:  # fmt: skip
    a, b = double(a).reshape(-1), double(b).reshape(-1)
    out = np.zeros(heads * sum(x * y for x, y in zip(m, n, strict=True)))
    first_a = first_b = first_c = 0
    for i, (rows, inner, columns) in enumerate(zip(m, k, n, strict=True)):
        for head in range(heads):
            left = a[matrix(first_a + head * stride_a[i], rows, inner, lda[i], trans_a)]
            right = b[matrix(first_b + head * stride_b[i], inner, columns, ldb[i], trans_b)]
            out[matrix(first_c + head * stride_c[i], rows, columns, ldc[i], False)] = left @ right
        first_a, first_b = first_a + heads * rows * inner, first_b + heads * inner * columns
        first_c += heads * rows * columns
    return out
