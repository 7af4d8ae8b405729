"""Embedding, gathering, scattering and indexing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.derivation.layouts import expanded
from isthmus.opset.operator import EXACT, Operator, Tolerance, accumulated, op
from isthmus.opset.sampling import PERIOD, Array, Case, Maker, place

if TYPE_CHECKING:
    import torch

_WHY = "additions in any order; atomic ones round to the tensor's dtype each time"
_ADDED: dict[str, Tolerance] = {
    "": accumulated(16, _WHY),
    "bfloat16": accumulated(8 * 2.0**16, _WHY),
    "float16": accumulated(8 * 2.0**13, _WHY),
}


def _many(m: Maker) -> tuple[Array, Array]:
    """Equal rows and one index for all: their sum stops growing if a half holds it."""
    return m.values(np.full((3001, 2), 0.3)), m.values(np.ones(3001), "int64")


def _duplicates(m: Maker) -> tuple[Array, Array]:
    """100,003 small integers, whose sums are exact in any order, and their indices, from 0 to 4."""
    places = np.resize(np.arange(PERIOD) * 7919 % 5, 100_003)
    return m.values(np.resize(np.arange(PERIOD) * 7 % 11 % 5 - 2, 100_003)), m.values(places, "int64")


def _crowded(m: Maker) -> tuple[Array, Array]:
    """Hundreds of numbers for three elements of a vector: their additions meet."""
    return m.tensor(331), m.integers(331, high=3)


def _embedding(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", m.tensor(67, 13), m.integers(2, 17, high=67), model="llama")
    yield m.case("contiguous", m.tensor(67, 13), m.integers(2, 17, high=67), 0, model="bert")
    yield m.case("contiguous", m.tensor(67, 13), m.integers(5, high=67, dtype="int32"), model="llama")
    yield m.case(
        "strided", m.tensor(31, 7, layout="transposed"), m.integers(3, 5, high=31, layout="transposed")
    )
    yield m.case("strided", m.tensor(31, 7, layout="sliced"), m.integers(9, high=31))
    yield m.case("zero-size", m.tensor(31, 7), m.integers(0, high=31), model="qwen_moe")
    yield m.case("0-dim", m.tensor(31, 7), m.integers(high=31))
    yield m.case("contiguous", m.tensor(31, 7), m.integers(2, 1, 3, 2, 1, 2, 2, high=31))
    if m.dtype in ("float32", "bfloat16"):
        yield m.case("large", m.tensor(1031, 7), m.integers(3, 131, high=1031), model="llama")
    if m.dtype == "float32":  # rows and elements beyond 2^16; rows that span blocks
        yield m.case("large", m.tensor(65_601, 3), m.values([65_600, 0, 65_536, 32_768, 65_600], "int64"))
        yield m.case("large", m.tensor(3, 4133), m.values([2, 0, 2], "int64"))
        yield m.case("large", m.tensor(5, 1), m.integers(65_601, high=5))


def _embedding_gradient(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", m.tensor(2, 17, 13), m.integers(2, 17, high=23), 23, -1, False, model="llama")
    yield m.case("contiguous", m.tensor(2, 17, 13), m.integers(2, 17, high=23), 23, 0, False, model="bert")
    yield m.case("contiguous", m.tensor(2, 17, 13), m.integers(2, 17, high=23), 23, 3, True)
    yield m.case("contiguous", m.tensor(2, 17, 13), m.integers(2, 17, high=5), 23, -1, True)
    yield m.case("contiguous", m.tensor(17, 3), m.integers(17, high=2), 5, 1, False)
    deep = (2, 1, 2, 1, 2, 1, 3)
    yield m.case("contiguous", m.tensor(*deep, 5), m.integers(*deep, high=7), 7, -1, False)
    yield m.case("contiguous", m.tensor(1, 3, 1), m.integers(1, 3, high=2), 2, -1, False)
    if m.dtype in dt.HALVES:
        yield m.case("large", *_many(m), 2, -1, False)
    if m.dtype in (*dt.HALVES, "float32"):
        ones = m.values(np.ones((3001, 2)))  # a count that the dtype does not hold
        yield m.case("large", ones, m.values(np.arange(3001) // 3000, "int64"), 2, -1, True)
    if m.dtype == "float32":
        rows = m.values([65_600, 0, 65_536, 32_768, 65_600], "int64")
        yield m.case("large", m.tensor(5, 3), rows, 65_601, 0, True)
        yield m.case("large", m.tensor(65_601, 2), m.integers(65_601, high=5), 5, 3, False)
        yield m.case("large", m.tensor(3, 4133), m.values([2, 0, 2], "int64"), 3, -1, False)
        added, places = _duplicates(m)
        yield m.case("large", place(added.view[:, None]), places, 5, -1, False)
    yield m.case("strided", m.tensor(9, 13, layout="transposed"), m.integers(9, high=5), 5, -1, False)
    yield m.case("zero-size", m.tensor(0, 13), m.integers(0, high=5), 5, -1, False)


def _embedded_size(
    grad_output: torch.Tensor, indices: Any, num_weights: int, padding_idx: int, **_: Any
) -> Any:
    import torch

    return torch.ops.aten.embedding_dense_backward(
        grad_output.abs(), indices, num_weights, padding_idx, False
    )


def _gather(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", m.tensor(5, 17, 7), 1, m.integers(3, 4, 7, high=17), model="qwen_moe")
    yield m.case("contiguous", m.tensor(9, 7), -1, m.integers(9, 11, high=7), model="bert")
    yield m.case(
        "strided", m.tensor(9, 7, layout="transposed"), 0, m.integers(4, 7, high=9, layout="transposed")
    )
    yield m.case("strided", m.tensor(9, 7, layout="sliced"), 1, m.integers(9, 3, high=7))
    yield m.case("zero-size", m.tensor(9, 7), 1, m.integers(9, 0, high=7))
    yield m.case("0-dim", m.tensor(), 0, m.values(0, "int64"))
    for dim in (-3, 2):  # an index smaller than the tensor in the other dimensions
        part = [4, 6, 2]
        part[dim] = 11
        yield m.case("contiguous", m.tensor(5, 7, 3), dim, m.integers(*part, high=(5, 7, 3)[dim]))
    yield m.case("broadcast", m.tensor(9, 5, 7), 0, _repeated_index(m, 6, 5, 7, high=9))
    if m.dtype == "float32":
        yield m.case("large", m.tensor(2, 65_601), 1, m.values([[65_600, 32_768], [0, 65_537]], "int64"))
        yield m.case("large", m.tensor(65_601, 2), -2, m.values([[65_600], [32_768], [65_537]], "int64"))
        yield m.case("large", m.tensor(3, 2), 0, m.integers(65_601, 2, high=3))


def _select(m: Maker) -> Iterator[Case]:
    for dim in (0, 1, -1):
        yield m.case("contiguous", m.tensor(5, 9, 7), dim, m.integers(11, high=5), model="qwen_moe")
        yield m.case(
            "strided", m.tensor(5, 9, 7, layout="transposed"), dim, m.integers(4, high=5, layout="sliced")
        )
    yield m.case("contiguous", m.tensor(11), -1, m.integers(7, high=11))
    yield m.case("contiguous", m.tensor(3, 7, 5), -2, m.values([6, 0, 6, 3], "int64"))
    if m.dtype == "float32":
        yield m.case("large", m.tensor(2, 65_601), 1, m.values([65_600, 32_768, 0, 65_537], "int64"))
        yield m.case("large", m.tensor(65_601, 2), 0, m.values([65_600, 32_768, 65_537], "int64"))
    yield m.case("zero-size", m.tensor(5, 9), 0, m.integers(0, high=5))


def _distinct_index(m: Maker, shape: tuple[int, ...], dim: int, size: int) -> Array:
    """Indices that differ along ``dim``, so that the order of writing does not matter."""
    drawn = np.argsort(
        m.rng.random([size if i == dim else n for i, n in enumerate(shape)]), axis=dim, kind="stable"
    )
    return m.values(drawn.take(range(shape[dim]), axis=dim), "int64")


def _scatter(value: bool) -> Any:
    def samples(m: Maker) -> Iterator[Case]:
        for kind, size, dim, layout, part in (
            ("contiguous", (5, 17, 7), 1, "contiguous", (3, 4, 7)), ("contiguous", (9, 7), 0, "contiguous", (9, 7)),
            ("strided", (9, 7), 0, "transposed", (4, 5)), ("strided", (9, 7), 1, "sliced", (9, 3)),
            ("zero-size", (9, 7), 1, "contiguous", (9, 0)),
        ):  # fmt: skip
            index = _distinct_index(m, part, dim, size[dim])
            source: Any = (1.5 if m.is_float else 3) if value else m.tensor(*part)
            yield m.case(kind, m.tensor(*size, layout=layout), dim, index, source, model="qwen_moe")
        index = m.values([[0, 2]], "int64")
        yield m.case("contiguous", m.tensor(1, 3), 1, index, m.tensor(1, 2) if not value else 2)
        yield m.case("0-dim", m.tensor(), 0, m.values(0, "int64"), 2 if value else m.tensor())
        for dim in (-1, -3):  # a source larger than the index; for a number, negative and fractional ones
            index = _distinct_index(m, (3, 4, 2), dim, (5, 6, 7)[dim])
            other: Any = m.tensor(4, 5, 3)
            if value:
                other = -0.75 * dim if m.is_float else -dim
            yield m.case("contiguous", m.tensor(5, 6, 7), dim, index, other)
        source = -2 if value and m.kind_of_dtype != "uint" else 3 if value else m.tensor(6, 5, 7)
        yield m.case("broadcast", m.tensor(9, 5, 7), -3, _repeated_index(m, 6, 5, 7, high=9), source)
        if m.dtype == "float32":
            index = m.values([[65_600, 32_768, 0, 65_537]], "int64")
            yield m.case("large", m.tensor(2, 65_601), 1, index, 0 if value else m.tensor(1, 4))
            if not value:  # more than 2^16 rows and columns of the index
                for shape, dim in (((65_601, 2), 1), ((2, 65_601), 0)):
                    index = m.values(np.resize([[1, 0], [0, 1]], shape) if dim else np.resize([[1], [0]], shape),
                                     "int64")  # fmt: skip
                    yield m.case("large", m.tensor(*shape), dim, index, m.tensor(*shape))

    return samples


def _repeated_index(m: Maker, *shape: int, high: int) -> Array:
    """An index with stride 0 along the last dimension, as of rows of tokens; its values differ along the first."""
    rows = np.stack([m.permutation(high)[: shape[0]] for _ in range(shape[1])], axis=1)
    return expanded(np.repeat(rows[:, :, None], shape[2], axis=2), 2)


def _wrapping(m: Maker, *shape: int) -> Array:
    """Integers whose sums wrap around; for floats ordinary values."""
    if m.is_float:
        return m.tensor(*shape)
    info = np.iinfo(dt.DTYPES[m.dtype].numpy)
    ends = np.array([info.max, info.max - 1, info.min, info.max // 2 + 1, info.min + 3], info.dtype)
    return place(ends[m.integers(*shape, high=5).view])


def _scatter_add(m: Maker) -> Iterator[Case]:
    for kind, size, dim, layout, part in (
        ("contiguous", (5, 7, 9), 1, "contiguous", (3, 11, 9)), ("contiguous", (3, 7), 0, "contiguous", (13, 5)),
        ("strided", (9, 7), 0, "transposed", (4, 5)), ("zero-size", (9, 7), 1, "contiguous", (9, 0)),
    ):  # fmt: skip
        yield m.case(
            kind, m.tensor(*size, layout=layout), dim, m.integers(*part, high=size[dim]), m.tensor(*part)
        )
    for dim in (-1, -3):  # a source larger than the index
        yield m.case("contiguous", m.tensor(5, 6, 7), dim, m.integers(3, 4, 2, high=4), m.tensor(4, 5, 3))
    for dim in (0, 1):
        yield m.case("contiguous", m.tensor(5, 6), dim, m.integers(3, 4, high=4), m.tensor(3, 7))
    source, index = _crowded(m)
    yield m.case("contiguous", m.tensor(5), 0, index, source)
    yield m.case("broadcast", m.tensor(9, 5, 7), 0, _repeated_index(m, 6, 5, 7, high=9), m.tensor(6, 5, 7))
    yield m.case("0-dim", m.tensor(), 0, m.values(0, "int64"), m.tensor())
    yield m.case("special", _wrapping(m, 3, 7), 0, m.integers(13, 5, high=3), _wrapping(m, 13, 5))
    if m.dtype in dt.HALVES:
        yield m.case("large", m.tensor(3, 2), 0, m.values(np.ones((3001, 2)), "int64"), _many(m)[0])
    if m.dtype == "float32":
        index = m.values([[65_600, 32_768, 0, 65_537, 65_600]], "int64")
        yield m.case("large", m.tensor(2, 65_601), 1, index, m.tensor(1, 5))
        added, places = _duplicates(m)
        yield m.case("large", m.values([3.0, 0.0, -1.0, 2.0, 1.0]), 0, places, added)


def _scatter_reduce(m: Maker) -> Iterator[Case]:
    for reduce in ("sum", "amax", "amin", "mean", "prod"):
        for own in (True, False):
            yield m.case("contiguous", m.tensor(3, 7), 0, m.integers(13, 5, high=3), m.tensor(13, 5), reduce,
                         include_self=own)  # fmt: skip
        yield m.case("strided", m.tensor(9, 7, layout="transposed"), 1, m.integers(4, 5, high=7), m.tensor(4, 5),
                     reduce)  # fmt: skip
        for own in (True, False):  # values of one sign, so that no identity passes for one; a larger source
            yield m.case("contiguous", m.tensor(5, 6, 7, high=-1), -2, m.integers(3, 4, 2, high=4),
                         m.tensor(4, 5, 3, low=-9, high=-3), reduce, include_self=own)  # fmt: skip
            yield m.case("contiguous", m.tensor(9, low=1), -1, m.integers(13, high=4), m.tensor(13, low=2, high=5),
                         reduce, include_self=own)  # fmt: skip
        source, index = _crowded(m)
        if reduce != "prod":
            yield m.case("contiguous", m.tensor(5), 0, index, source, reduce)
        if reduce == "sum" and m.dtype in dt.HALVES:
            index = m.values(np.ones((3001, 2)), "int64")
            yield m.case("large", m.tensor(3, 2), 0, index, _many(m)[0], reduce)
        if not m.is_float:
            for own in (True, False):  # sums that wrap around, means that are rounded down
                yield m.case("special", _wrapping(m, 3, 7), 0, m.integers(13, 5, high=3), _wrapping(m, 13, 7), reduce,
                             include_self=own)  # fmt: skip
        if reduce != "sum" and m.is_float:  # NaN at each place among others; infinities alone
            inf, nan = float("inf"), float("nan")
            rows = m.values([[0, 0, 0, 1, 1, 1, 2, 2, 3]], "int64")
            found = m.values([[nan, 1.0, -2.0, 0.5, nan, 3.0, 1.5, nan, -inf if reduce == "amax" else inf]])
            for own in (True, False):
                yield m.case("special", m.values(np.full((1, 4), found.view[0, 8])), 1, rows, found, reduce,
                             include_self=own)  # fmt: skip
        if reduce in ("amax", "amin") and m.is_float:  # an infinity that is the only one
            alone = m.values([-inf if reduce == "amax" else inf, 1.0])
            yield m.case(
                "special", m.tensor(4), 0, m.values([1, 2], "int64"), alone, reduce, include_self=False
            )
        if m.dtype == "float32":
            index = m.values([[65_600, 32_768, 0, 65_537, 65_600]], "int64")
            yield m.case("large", m.tensor(2, 65_601), 1, index, m.tensor(1, 5), reduce)
            for count in (300, 70_001) if reduce != "prod" else ():  # counts beyond 8 and 16 bits
                places = m.values(np.arange(count) // (count - 1), "int64")
                yield m.case(
                    "large", m.values([1, 2, 3]), 0, places, m.values(np.resize([1, 0, 2, 1], count)), reduce
                )


def _scatter_reduce_size(self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool) -> Any:
    terms = {"amin": "amax", "mean": "sum"}.get(reduce, reduce)
    return self.abs().scatter_reduce(dim, index, src.abs(), terms, include_self=True)


def _index(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", m.tensor(9, 13), [m.integers(17, high=9)], model="qwen_moe")
    yield m.case("contiguous", m.tensor(9, 5, 7), [m.integers(3, 1, high=9), m.integers(4, high=5)])
    yield m.case("contiguous", m.tensor(9, 5, 7), [None, m.integers(2, 3, high=5, low=-5)])
    yield m.case("contiguous", m.tensor(9, 5, 7), [m.integers(4, high=9), None, m.integers(4, high=7)])
    yield m.case("strided", m.tensor(9, 5, layout="transposed"), [m.integers(17, high=9, layout="sliced")])
    yield m.case("zero-size", m.tensor(9, 5), [m.integers(0, high=9)], model="qwen_moe")
    yield m.case("0-dim", m.tensor(9), [m.integers(high=9)])
    deep = m.tensor(3, 2, 1, 2, 1, 5, 2)
    yield m.case("contiguous", deep, [None, None, None, None, None, m.integers(4, high=5, low=-5)])
    yield m.case("contiguous", m.tensor(1, 5), [None, m.integers(4, high=5, low=-5)])
    ends = m.values([-9, 8, 0, -1, -9], "int64")  # negative, repeated, unordered
    yield m.case(
        "contiguous", m.tensor(9, 5, 7), [ends, m.values([[-5], [4]], "int64"), m.values(-7, "int64")]
    )
    yield m.case("contiguous", m.tensor(4, 9, 3, 7), [None, ends, None, m.values([[-7], [6]], "int64")])
    yield m.case("contiguous", m.tensor(3, 9, 5), [None, ends, m.values([-5, 4, 0, -1, 2], "int64")])
    if m.dtype == "float32":
        far = m.values([65_600, -1, 32_768, -65_601, 65_537], "int64")
        yield m.case("large", m.tensor(65_601, 2), [far])
        yield m.case("large", m.tensor(2, 65_601), [None, far])
        yield m.case("large", m.tensor(5, 2), [m.integers(65_601, high=5, low=-5)])


def _puts(m: Maker) -> Iterator[Case]:
    rows = m.values(m.permutation(19)[:11], "int64")
    yield m.case("contiguous", m.tensor(19, 5), [rows], m.tensor(11, 5), False, model="qwen_moe")
    rows = m.values(m.permutation(19)[:11], "int64")
    yield m.case("broadcast", m.tensor(19, 5), [rows], m.tensor(), False)
    rows = m.values(m.permutation(19)[:11], "int64")
    yield m.case(
        "strided", m.tensor(19, 5, layout="transposed"), [rows], m.tensor(11, 5, layout="sliced"), False
    )
    yield m.case(
        "contiguous", m.tensor(7, 5), [m.integers(19, high=7)], m.tensor(19, 5), True, model="qwen_moe"
    )
    yield m.case("contiguous", m.tensor(7, 5), [None, m.integers(9, high=5)], m.tensor(7, 9), True)
    yield m.case("special", _wrapping(m, 3, 7), [m.integers(13, high=3)], _wrapping(m, 13, 7), True)
    source, index = _crowded(m)
    yield m.case("contiguous", m.tensor(5), [index], source, True)
    if m.dtype in dt.HALVES:
        source, index = _many(m)
        yield m.case("large", m.tensor(3, 2), [index], source, True)
    if m.dtype == "float32":
        added, places = _duplicates(m)
        yield m.case("large", m.values([3.0, 0.0, -1.0, 2.0, 1.0]), [places], added, True)
    pair = [m.integers(13, high=7), m.integers(13, high=5)]
    yield m.case("contiguous", m.tensor(7, 5, 3), pair, m.tensor(13, 3), True)
    yield m.case("zero-size", m.tensor(7, 5), [m.integers(0, high=7)], m.tensor(0, 5), True, model="qwen_moe")
    yield m.case("contiguous", m.tensor(3, 2, 1, 2, 1, 5, 2), [m.values([2, 0], "int64")],
                 m.tensor(2, 2, 1, 2, 1, 5, 2), True)  # fmt: skip
    yield m.case("contiguous", m.tensor(1, 3), [None, m.values([2, 0], "int64")], m.tensor(1, 2), False)
    # One place by both of its indices; one value for repeated ones.
    yield m.case("special", m.tensor(7, 5), [m.values([2, -5, 6, -1, 2], "int64")], m.tensor(5, 5), True)
    yield m.case("special", m.tensor(7, 5), [m.values([2, -5, 6, -1, 2], "int64")], m.tensor(1), True)
    yield m.case("special", m.tensor(7), [m.values([2, -5, 6, -1, 2], "int64")], m.tensor(1), True)
    for add in (False, True):  # negative indices; values broadcast along the indices, and along the rest
        ends = m.values([-9, 8, 3, -2], "int64")
        yield m.case("contiguous", m.tensor(9, 5), [ends], m.tensor(4, 1), add)
        yield m.case(
            "contiguous", m.tensor(9, 5, 7), [ends, None, m.values([[-7], [2]], "int64")], m.tensor(5), add
        )
        yield m.case("contiguous", m.tensor(3, 9, 5), [None, ends, m.values([-5, 4, 0, -1], "int64")],
                     m.tensor(3, 4), add)  # fmt: skip
        if m.dtype == "float32":
            far = m.values([65_600, -2, 32_768, -65_601, 65_537], "int64")
            yield m.case("large", m.tensor(65_601, 2), [far], m.tensor(5, 2), add)
            # More than 2^16 rows of values, and of columns beside the index.
            many = m.values(m.permutation(65_601), "int64")
            yield m.case("large", m.tensor(65_601, 2), [many], m.tensor(65_601, 2), add)
            yield m.case("large", m.tensor(3, 65_601), [m.values([2, 0], "int64")], m.tensor(2, 65_601), add)


def _put_size(self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    import torch

    return torch.ops.aten.index_put(self.abs() if accumulate else self * 0, indices, values.abs(), accumulate)


def _index_add(m: Maker) -> Iterator[Case]:
    yield m.case("contiguous", m.tensor(7, 13), 0, m.integers(19, high=7), m.tensor(19, 13), model="qwen_moe")
    yield m.case("contiguous", m.tensor(5, 7), 1, m.integers(4, high=7), m.tensor(5, 4), alpha=2)
    yield m.case("strided", m.tensor(7, 5, layout="transposed"), 0, m.integers(9, high=7), m.tensor(9, 5))
    yield m.case("special", _wrapping(m, 3, 7), 0, m.integers(13, high=3), _wrapping(m, 13, 7), alpha=1)
    yield m.case("contiguous", m.tensor(7), 0, m.integers(19, high=7), m.tensor(19), alpha=2)
    if m.dtype == "float64":  # float32 rounds these
        yield m.case("special", m.tensor(7), 0, m.integers(5, high=7), m.tensor(5), alpha=1 / 3)
    source, index = _crowded(m)
    yield m.case("contiguous", m.tensor(5), 0, index, source)
    if m.dtype in dt.HALVES:
        source, index = _many(m)
        yield m.case("large", m.tensor(3, 2), 0, index, source)
    for alpha in (3 if m.kind_of_dtype == "uint" else -3, 0, *([0.75] if m.is_float else [])):
        yield m.case(
            "contiguous", m.tensor(3, 6, 5), -2, m.integers(9, high=4), m.tensor(3, 9, 5), alpha=alpha
        )
    if m.dtype == "float32":
        far = m.values([65_600, 0, 32_768, 65_600, 65_537], "int64")
        yield m.case("large", m.tensor(65_601, 2), 0, far, m.tensor(5, 2), alpha=2)
        added, places = _duplicates(m)
        yield m.case("large", m.values([3.0, 0.0, -1.0, 2.0, 1.0]), 0, places, added)
    yield m.case("zero-size", m.tensor(7, 5), 0, m.integers(0, high=7), m.tensor(0, 5))


def _index_added_size(self: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
    return self.abs().index_add(dim, index, source.abs(), alpha=abs(alpha))


_SAME = ("like(self)", "self.dtype")

OPERATORS: list[Operator] = [
    op("embedding", dt.FLOATS, "indices.shape + weight.shape[1:]", "weight.dtype", _embedding, resizable=True),
    op("embedding_dense_backward", dt.FLOATS, "(num_weights, grad_output.shape[-1])", "grad_output.dtype",
       _embedding_gradient, _ADDED, magnitude=_embedded_size, resizable=True,
       longest=8192),
    op("gather", dt.ALL, "like(index)", "self.dtype", _gather, resizable=True),
    op("index_select", dt.ALL, "at(self, dim, index.shape[0])", "self.dtype", _select, resizable=True),
    op("scatter.src", dt.ALL, *_SAME, _scatter(False)),
    op("scatter.value", dt.NUMBERS, *_SAME, _scatter(True), resizable=True),
    op("scatter_add", dt.NUMBERS, *_SAME, _scatter_add, _ADDED,
       magnitude=lambda self, dim, index, src: self.abs().scatter_add(dim, index, src.abs()), resizable=True),
    op("scatter_reduce.two", dt.NUMBERS, *_SAME, _scatter_reduce, _ADDED, magnitude=_scatter_reduce_size,
       resizable=True),
    op("index.Tensor", dt.ALL, "indexed(self, indices)", "self.dtype", _index, EXACT, resizable=True),
    op("index_put", dt.NUMBERS, *_SAME, _puts, _ADDED, magnitude=_put_size),
    op("index_add", dt.NUMBERS, *_SAME, _index_add, _ADDED, magnitude=_index_added_size, resizable=True),
]  # fmt: skip
