"""Attention over sequences of different lengths without padding."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset.families._common import special_values
from isthmus.opset.operator import EXACT, ONLY_NAN, Operator, accumulated, extension
from isthmus.opset.sampling import Array, Case, Maker

_SOFTMAX = accumulated(32, "exponentials, their sum and a quotient")
_PRODUCT = accumulated(32, "a sum of products")
_LENGTHS = [([5, 0, 1, 3], 7), ([4], 4), ([2, 2], 2), ([0, 0], 3), ([1], 1)]


def _moved(m: Maker) -> Any:
    """Values that only moves of bits keep."""
    return special_values(m.dtype)


def _unpads(m: Maker) -> Iterator[Case]:
    for i, (lengths, most) in enumerate(_LENGTHS):
        yield m.case("contiguous", m.tensor(len(lengths), most, 5 + i if i < 4 else 3), lengths, most)
    yield m.case("zero-size", m.tensor(2, 4, 0), [3, 1], 4)
    yield m.case("strided", m.tensor(3, 6, 11, layout="transposed"), [2, 6, 1], 6)
    yield m.case("large", m.tensor(3, 40, 70), [33, 17, 40], 40)
    yield m.case("special", m.values([[_moved(m), _moved(m)[::-1]]]), [2], 2)
    if m.dtype == "float32":
        lengths = [i % 3 for i in range(2100)]
        yield m.case("large", m.tensor(2100, 2, 3), lengths, 2)
        yield m.case("large", m.tensor(2, 3, 4133), [1, 3], 3)
        yield m.case("large", m.tensor(3, 40_000, 1), [40_000, 3, 33_000], 40_000)


def _pads(m: Maker) -> Iterator[Case]:
    for i, (lengths, most) in enumerate(_LENGTHS):
        kind = "contiguous" if sum(lengths) else "zero-size"
        yield m.case(kind, m.tensor(sum(lengths), 5 + i if i < 4 else 3), lengths, most)
    yield m.case("strided", m.tensor(9, 11, layout="transposed"), [2, 6, 1], 6)
    yield m.case("large", m.tensor(90, 70), [33, 17, 40], 43)
    yield m.case("special", m.values([_moved(m), _moved(m)[::-1]]), [2], 3)
    if m.dtype == "float32":
        lengths = [i % 3 for i in range(2100)]
        yield m.case("large", m.tensor(sum(lengths), 3), lengths, 2)
        yield m.case("large", m.tensor(4, 4133), [1, 3], 3)
        yield m.case("large", m.tensor(73_003, 1), [40_000, 3, 33_000], 40_001)


def _masks(m: Maker) -> Iterator[Case]:
    for lengths, most in _LENGTHS:
        yield m.case("contiguous", m.tensor(len(lengths), 1, most, most), lengths, 3)
    yield m.case("contiguous", m.tensor(3, 1, 9, 9), [0, 7, 4], 1)
    yield m.case("contiguous", m.tensor(2, 1, 3, 3), [2, 3], 9)  # heads
    yield m.case("zero-size", m.tensor(2, 1, 0, 0), [0, 0], 3)
    yield m.case("strided", m.tensor(2, 1, 5, 5, layout="transposed"), [5, 2], 2)
    yield m.case("special", m.values(np.resize(_moved(m), (2, 1, 5, 5))), [5, 4], 2)
    if m.dtype == "float32":
        yield m.case("large", m.tensor(3, 1, 270, 270), [181, 270, 1], 2)


def _rows(m: Maker) -> Iterator[tuple[str, int, list[int], int]]:
    for kind, lengths, heads in (
        ("contiguous", [5, 0, 1, 19], 3),
        ("contiguous", [19, 1, 5, 0], 3),  # the same number of elements and sequences, at other places
        ("contiguous", [0, 2, 130, 0], 1),
        ("contiguous", [35], 1),
        ("large", [67, 41], 2),
        ("zero-size", [0, 0], 2),
        ("contiguous", [1, 1], 1),
        *(
            (("large", [41, 3], 29), ("large", [515, 3, 1], 1), ("large", [i % 3 for i in range(2100)], 1))
            if m.dtype == "float32"
            else ()
        ),
    ):
        yield kind, heads * sum(s * s for s in lengths), lengths, heads


def _softmaxes(m: Maker) -> Iterator[Case]:
    for kind, count, lengths, heads in _rows(m):
        yield m.case(kind, m.tensor(count, low=-9), lengths, heads)
    late = m.tensor(300 * 300).view.copy()
    late[299::300] = 200.0  # the maximum is in the last block of a row
    yield m.case("special", m.values(late), [300], 1)
    # Exponentials that overflow.
    yield m.case("special", m.tensor(2 * (9 + 1), low=-30_000, high=30_000), [3, 1], 2)


def _gradients(m: Maker) -> Iterator[Case]:
    for kind, count, lengths, heads in _rows(m):
        yield m.case(kind, m.tensor(count), m.tensor(count, low=0, high=0.1), lengths, heads)


def _products(m: Maker) -> Iterator[Case]:
    lengths, heads, d = [4, 1, 0, 3], 2, 5
    b, squares, wide, flat = (
        len(lengths),
        [s * s for s in lengths],
        [heads * d] * len(lengths),
        [d] * len(lengths),
    )
    total, scores = sum(lengths), heads * sum(squares)

    def case(kind: str, a: Array, c: Array, *turned: bool, sizes: Any) -> Case:
        return m.case(kind, a, c, *turned, *sizes, heads)

    yield case("contiguous", m.tensor(total, heads * d), m.tensor(total, heads * d), False, True,
               sizes=(lengths, flat, lengths, wide, wide, lengths, flat, flat, squares))  # fmt: skip
    yield case("contiguous", m.tensor(scores), m.tensor(total, heads * d), False, False,
               sizes=(lengths, lengths, flat, lengths, wide, wide, squares, flat, flat))  # fmt: skip
    yield case("contiguous", m.tensor(total, heads * d), m.tensor(scores), True, False,
               sizes=(flat, lengths, lengths, wide, lengths, lengths, flat, squares,
                      [d * s for s in lengths]))  # fmt: skip
    yield case("strided", m.tensor(total, heads * d, layout="transposed"), m.tensor(scores), True, True,
               sizes=(flat, lengths, lengths, wide, lengths, [heads * s for s in lengths], flat, squares,
                      lengths))  # fmt: skip
    if m.dtype == "float32":
        yield m.case("large", m.tensor(2, 4133), m.tensor(4133, 3), False, False, [2], [4133], [3], [4133], [3], [3],
                     [2 * 4133], [3], [6], 1)  # fmt: skip
        yield m.case("large", m.tensor(65_601, 2), m.tensor(2, 3), False, False, [65_601], [2], [3], [2], [3], [3],
                     [131_202], [3], [196_803], 1)  # fmt: skip
    for left, right in (
        ((2, 3), (4, 5)),
        ((2, 7), (4, 2)),
    ):  # rows of one matrix longer than those of the other
        yield m.case("contiguous", m.tensor(*left), m.tensor(*right), True, True, [3], [2], [4], [left[1]],
                     [right[1]], [4], [2 * left[1]], [4 * right[1]], [12], 1)  # fmt: skip
    for ones in (m.tensor(1, 1), m.values([[0.0]])):  # less than a vector; 0
        yield m.case(
            "contiguous", ones, m.tensor(1, 3), False, False, [1], [1], [3], [1], [3], [3], [1], [3], [3], 1
        )
    yield case("zero-size", m.tensor(0), m.tensor(0), False, False, sizes=([0] * b,) * 9)


def _unpad(x: Any, seq_len: list[int], max_s: int) -> Any:
    import torch

    return torch.cat([x[i, :s] for i, s in enumerate(seq_len)])


def _pad(x: Any, seq_len: list[int], max_s: int) -> Any:
    import torch

    parts = x.split(seq_len)
    return torch.stack([torch.nn.functional.pad(part, (0, 0, 0, max_s - len(part))) for part in parts])


def _mask(mask: Any, seq_len: list[int], heads: int) -> Any:
    import torch

    return torch.cat([mask[i, 0, :s, :s].repeat(heads, 1, 1).flatten() for i, s in enumerate(seq_len)])


def _each(flat: Any, seq_len: list[int], heads: int) -> list[Any]:
    parts = flat.split([heads * s * s for s in seq_len])
    return [part.reshape(heads * s, s) for part, s in zip(parts, seq_len, strict=True)]


def _softmax(x: Any, seq_len: list[int], heads: int) -> Any:
    import torch

    return torch.cat([part.softmax(-1).flatten() for part in _each(x, seq_len, heads)])


def _gradient(grad: Any, out: Any, seq_len: list[int], heads: int, magnitude: bool = False) -> Any:
    import torch

    pairs = zip(_each(grad, seq_len, heads), _each(out, seq_len, heads), strict=True)
    if magnitude:
        return torch.cat([
            (y.abs() * (g.abs() + (y * g).abs().sum(-1, keepdim=True))).flatten() for g, y in pairs
        ])  # fmt: skip
    return torch.cat([(y * (g - (y * g).sum(-1, keepdim=True))).flatten() for g, y in pairs])


def _product(a: Any, b: Any, trans_a: bool, trans_b: bool, m: Any, k: Any, n: Any, lda: Any, ldb: Any, ldc: Any,
             stride_a: Any, stride_b: Any, stride_c: Any, heads: int) -> Any:  # fmt: skip
    """Compute C from the BLAS layout."""
    import torch

    a, b = a.reshape(-1).clone(), b.reshape(-1).clone()
    out = a.new_zeros(heads * sum(x * y for x, y in zip(m, n, strict=True)))
    written = torch.zeros_like(out, dtype=torch.bool)
    first_a = first_b = first_c = 0
    for i in range(len(m)):
        for t in range(heads):
            left = a.as_strided(
                (m[i], k[i]), (1, lda[i]) if trans_a else (lda[i], 1), first_a + t * stride_a[i]
            )
            right = b.as_strided(
                (k[i], n[i]), (1, ldb[i]) if trans_b else (ldb[i], 1), first_b + t * stride_b[i]
            )
            place = ((m[i], n[i]), (ldc[i], 1), first_c + t * stride_c[i])
            out.as_strided(*place).copy_(left @ right)
            written.as_strided(*place).fill_(True)
        first_a, first_b = first_a + heads * m[i] * k[i], first_b + heads * k[i] * n[i]
        first_c += heads * m[i] * n[i]
    if not written.all():
        raise ValueError("the matrices of C do not fill it")
    return out


def _size_of_product(a: Any, b: Any, **others: Any) -> Any:
    return _product(a.abs(), b.abs(), **others)


def _size_of_gradient(**arguments: Any) -> Any:
    return _gradient(**arguments, magnitude=True)


_SCORES = "(heads * sum([s * s for s in seq_len]),)"
_SIZES = "int[] m, int[] k, int[] n, int[] lda, int[] ldb, int[] ldc, int[] stride_a, int[] stride_b, int[] stride_c"

OPERATORS: list[Operator] = [
    extension("unpad_seqlen(Tensor x, int[] seq_len, int max_s) -> Tensor out", "(sum(seq_len), x.shape[2])",
              "x.dtype", _unpads, EXACT, differentiable="x", reference=_unpad),
    extension("pad_seqlen(Tensor x, int[] seq_len, int max_s) -> Tensor out",
              "(len(seq_len), max_s, x.shape[1])", "x.dtype", _pads, EXACT, differentiable="x", reference=_pad),
    extension("unpad_gen_attention_mask(Tensor mask, int[] seq_len, int heads) -> Tensor out", _SCORES,
              "mask.dtype", _masks, EXACT, reference=_mask),
    extension("unpad_softmax(Tensor x, int[] seq_len, int heads) -> Tensor out", _SCORES, "x.dtype", _softmaxes,
              _SOFTMAX, differentiable="x", reference=_softmax, magnitude=_softmax, special=ONLY_NAN),
    extension("unpad_softmax_backward(Tensor grad, Tensor out, int[] seq_len, int heads) -> Tensor grad_x",
              _SCORES, "grad.dtype", _gradients, _SOFTMAX, reference=_gradient, magnitude=_size_of_gradient,
              special=ONLY_NAN),
    extension(f"unpad_strided_batch_matmul(Tensor a, Tensor b, bool trans_a, bool trans_b, {_SIZES}, int heads) "
              "-> Tensor out", "(heads * sum([x * y for x, y in zip(m, n)]),)", "a.dtype", _products, _PRODUCT,
              differentiable="a b", reference=_product, magnitude=_size_of_product, special=ONLY_NAN),
]  # fmt: skip
