"""Calls of attention: every argument with several values, alone and with the arguments that it interacts with."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset.operator import Tolerance, accumulated
from isthmus.opset.sampling import Array, Maker

TOLERANCE = {
    "": accumulated(32, "two products and an exponential within 20 roundings"),
    # A half's weights are rounded to it for the second product: 2 ** 14 roundings of float32 are one of bfloat16.
    "bfloat16": Tolerance(0.51, 2.0**15, "the weights are rounded to bfloat16 before the products"),
    "float16": Tolerance(0.51, 2.0**12, "the weights are rounded to float16 before the products"),
}
Call = tuple[str, dict[str, Any]]
_NONE: dict[str, Any] = {
    "bias": None, "mask": None, "alibi_slopes": None, "cu_seqlens_q": None, "cu_seqlens_k": None, "rng": None,
    "left": None, "right": None, "top_left": False, "softcap": 0.0, "dropout_p": 0.0,
}  # fmt: skip


def calls(m: Maker) -> Iterator[Call]:
    """Kind and arguments of the forward's cases."""
    yield "contiguous", _fixed(m, 2, 5, 7, 2, 1, 8, right=0)
    yield "contiguous", _fixed(m, 1, 37, 41, 4, 2, 19, left=9, right=3)
    yield "contiguous", _fixed(m, 1, 6, 3, 2, 2, 4, right=0)  # queries with no visible key
    yield "contiguous", _fixed(m, 1, 9, 5, 2, 2, 4, right=0, top_left=True)
    yield "contiguous", _fixed(m, 2, 1, 70, 4, 1, 16)
    yield "contiguous", _fixed(m, 2, 11, 13, 2, 2, 5, softcap=2.5, alibi_slopes=_accurate(m, 2), right=1)
    hidden = m.mask(2, 1, 11, 13, share=0.4)
    yield "contiguous", _fixed(m, 2, 11, 13, 2, 2, 6, bias=_accurate(m, 1, 2, 1, 13), mask=hidden)
    yield (
        "contiguous",
        _fixed(m, 2, 6, 10, 2, 1, 8, dropout_p=0.3, rng=m.values([1234567890123, 7], "int64")),
    )
    yield "strided", _fixed(m, 2, 8, 9, 3, 3, 8, layout="heads", right=0)
    yield "large", _fixed(m, 1, 150, 270, 2, 1, 40, right=0)
    yield "zero-size", _fixed(m, 2, 0, 4, 2, 1, 8)
    yield "zero-size", _fixed(m, 2, 3, 0, 2, 1, 8)
    yield "special", _packed(m, [0, 4, 4, 9], [0, 6, 8, 11], right=0)
    yield "special", _packed(m, [0, 1, 8], [0, 0, 9], left=3, right=2)
    yield "contiguous", _fixed(m, 1, 1, 3, 1, 1, 3)
    for size, heads in ((64, 2), (128, 1), (256, 1)):  # of models, for which kernels have paths of their own
        yield "special", _fixed(m, 2, 3, 5, 2, heads, size, layout="heads")
        yield "special", _fixed(m, 2, 3, 5, 2, heads, size, right=0)
    yield from _windows(m)
    yield from _scores(m)
    yield from _packs(m)
    yield from _sizes(m)


def _windows(m: Maker) -> Iterator[Call]:
    """One side only, the diagonal, bounds past the keys, and negative bounds, with both alignments."""
    yield "contiguous", _fixed(m, 1, 7, 12, 2, 1, 4, left=2)
    yield "contiguous", _fixed(m, 1, 12, 7, 2, 1, 4, left=3, top_left=True)
    yield "contiguous", _fixed(m, 1, 8, 13, 2, 2, 4, left=0, right=0)
    yield "contiguous", _fixed(m, 2, 5, 9, 2, 1, 4, left=1, right=3, top_left=True)
    yield "contiguous", _fixed(m, 1, 5, 11, 1, 1, 4, left=100, right=-2)
    yield "contiguous", _fixed(m, 1, 9, 10, 1, 1, 4, left=-1, right=4, top_left=True)


def _scores(m: Maker) -> Iterator[Call]:
    """Terms of the scores: every form of bias, mask and slopes, with scale, softcap, windows and dropout."""
    yield "contiguous", _fixed(m, 2, 7, 9, 3, 1, 6, value_size=10, scale=-0.45, softcap=1.5,
                               bias=_accurate(m, 2, 1, 7, 9), right=0)  # fmt: skip
    yield "contiguous", _fixed(m, 2, 7, 9, 2, 2, 6, value_size=3, scale=1.0, bias=_accurate(m, 1, 2, 7, 1),
                               mask=m.mask(1, 2, 1, 9, share=0.3), left=4)  # fmt: skip
    hidden = m.mask(2, 2, 7, 5, share=0.3).view.copy()
    hidden[0, 1], hidden[1, :, 2] = True, True  # a head, and a query, without keys
    yield "special", _fixed(m, 2, 7, 5, 2, 1, 6, mask=m.values(hidden, "bool"), alibi_slopes=_accurate(m, 2, 2),
                               softcap=3.0, top_left=True, right=1)  # fmt: skip
    columns = m.tensor(2, 2, 5, 7, dtype=m.compute_dtype, layout="transposed")
    yield (
        "strided",
        _fixed(m, 2, 5, 7, 2, 1, 6, bias=columns, mask=m.mask(2, 2, 5, 7, share=0.3, layout="transposed")),
    )
    yield "contiguous", _fixed(m, 1, 9, 6, 2, 2, 6, alibi_slopes=_accurate(m, 2), left=2, top_left=True)
    # Scores of hundreds: exp overflows, the quotient does not; tanh saturates.
    yield "contiguous", _fixed(m, 1, 6, 9, 2, 1, 8, scale=12.5)
    yield "contiguous", _fixed(m, 1, 6, 9, 2, 1, 8, scale=4.0, softcap=30.0, right=1)
    # 16-bit products overflow; so do sums of the values.
    query, key = (m.tensor(1, length, 2, 64, low=-50.0, high=60.0) for length in (5, 9))
    yield "special", _call(query, key, m.tensor(1, 9, 2, 4, low=-3e4, high=6e4), scale=1e-3)
    # Additive masks: some keys, all keys of a query, and all keys by a finite number.
    added = m.tensor(1, 2, 4, 6, dtype=m.compute_dtype).view.copy()
    added[..., 1::3], added[0, :, 1], added[0, 0, 3], added[0, 1, 2] = -np.inf, -np.inf, -1e30, -1e38
    yield "special", _fixed(m, 1, 4, 6, 2, 1, 4, bias=m.values(added, m.compute_dtype))
    # Hidden scores far above the visible ones.
    tall = m.values([[[[900.0, 1.0, 2.0, 900.0]]]], m.compute_dtype)
    yield (
        "contiguous",
        _fixed(m, 1, 3, 4, 2, 2, 4, bias=tall, mask=m.values([[[[True, False, False, True]]]], "bool")),
    )
    yield "special", _fixed(m, 3, 6, 19, 4, 2, 8, dropout_p=0.75, rng=m.values([-(2**61) - 5, 2**33 + 9], "int64"),
                               softcap=2.0, bias=_accurate(m, 3, 4, 1, 19), left=7, right=5)  # fmt: skip
    yield "contiguous", _fixed(m, 1, 4, 6, 2, 1, 4, rng=m.values([3, 1], "int64"))
    yield "contiguous", _fixed(m, 1, 4, 6, 2, 1, 4, dropout_p=1.0, rng=m.values([3, 1], "int64"))


def _packs(m: Maker) -> Iterator[Call]:
    """Sequences of different lengths with everything that depends on their number or alignment.

    Their kind excludes them from derived cases, whose changed arguments would not match the log-sum-exp of backward.
    """
    ends, key_ends = [0, 3, 3, 12, 14], [0, 7, 9, 14, 19]
    yield "special", _packed(m, ends, key_ends, "int64", bias=_accurate(m, 4, 1, 11, 9), left=2, right=1,
                                top_left=True, alibi_slopes=_accurate(m, 4, 4))  # fmt: skip
    yield "special", _packed(m, ends, key_ends, mask=m.mask(4, 4, 1, 9, share=0.3), softcap=1.2, dropout_p=0.4,
                                rng=m.values([11, 5], "int64"), right=0)  # fmt: skip
    yield "special", _packed(m, [0, 9], [0, 5], alibi_slopes=_accurate(m, 4), left=4)
    yield "zero-size", _packed(m, [0, 0, 0], [0, 0, 0], right=0)


def _sizes(m: Maker) -> Iterator[Call]:
    """Sizes beyond the tiles of kernels, and heads that fill none."""
    if m.dtype not in ("float32", "bfloat16"):
        return
    yield "large", _fixed(m, 1, 67, 131, 2, 2, 68, value_size=20, right=0)
    yield "large", _fixed(m, 1, 70, 140, 1, 1, 4, dropout_p=0.4, rng=m.values([77, 3], "int64"))
    yield "large", _fixed(m, 1, 130, 65, 1, 1, 80, left=70, right=0)
    yield "large", _fixed(m, 1, 3, 300, 3, 1, 192, value_size=128, left=260)
    yield "large", _fixed(m, 1, 5, 131, 2, 1, 128)  # keys that fill no tile
    least = np.zeros((1, 1, 5, 140))  # tiles of keys that the lowest number hides
    least[..., :3, :130], least[..., 3:, 64:] = [float(np.finfo(np.float32).min)] * 2
    yield "large", _fixed(m, 1, 5, 140, 2, 1, 8, bias=m.values(least, m.compute_dtype))
    yield "large", _fixed(m, 1, 5, 140, 2, 1, 8, mask=m.values(least < 0, "bool"))
    if m.dtype == "float32":
        query, key, value = m.tensor(1, 2, 1, 20), m.tensor(1, 4133, 1, 20), m.tensor(1, 4133, 1, 20)
        yield "large", _call(query, key, value, right=0)
        keys = m.tensor(1, 65_601, 1, 2).view.copy()
        keys[:, -1] = 20.0  # the last key decides
        yield "large", _call(m.values(np.ones((1, 1, 1, 2))), m.values(keys), m.tensor(1, 65_601, 1, 2))
        query, key, value = (m.tensor(1, n, 1, 4133, low=-0.3, high=0.4) for n in (2, 3, 3))
        yield "large", _call(query, key, value)  # features
        query, key, value = m.tensor(1, 4133, 2, 4), m.tensor(1, 5, 1, 4), m.tensor(1, 5, 1, 4)
        yield "large", _call(query, key, value, bias=_accurate(m, 1, 1, 1, 5))
        query, key, value = m.tensor(300, 1, 2, 3), m.tensor(300, 2, 1, 3), m.tensor(300, 2, 1, 3)
        yield "large", _call(query, key, value, bias=_accurate(m, 300, 1, 1, 2))
        yield "large", _many(m)
        query, key, value = m.tensor(1, 1, 65_601, 2), m.tensor(1, 3, 1, 2), m.tensor(1, 3, 1, 2)
        yield "large", _call(query, key, value, softcap=1.5)
        query, key, value = m.tensor(1, 65_601, 1, 2), m.tensor(1, 3, 1, 2), m.tensor(1, 3, 1, 2)
        yield "large", _call(query, key, value, bias=_accurate(m, 1, 1, 1, 3))  # a gradient of many queries


def _many(m: Maker) -> dict[str, Any]:
    """More than 2^8 sequences and 2^16 tokens: the two longest have few keys and few queries."""
    queries = np.concatenate([[0, 65_601, 2], np.arange(300) % 3])
    keys = np.concatenate([[0, 2, 65_601], np.arange(300) % 4])
    ends = {
        "cu_seqlens_q": m.values(queries.cumsum(), "int32"),
        "cu_seqlens_k": m.values(keys.cumsum(), "int32"),
    }
    query, key, value = (m.tensor(int(n.sum()), 1, 2) for n in (queries, keys, keys))
    slopes = m.tensor(len(queries) - 1, 1, low=-1e-4, high=1e-4, dtype=m.compute_dtype)
    return _call(query, key, value, **ends, max_seqlen_q=65_601, max_seqlen_k=65_601, alibi_slopes=slopes)


def without_numbers(m: Maker) -> Iterator[dict[str, Any]]:
    """Calls with NaN in the features of one query, of a key and of a value that every query sees."""
    for name in ("query", "key", "value"):
        arguments = _fixed(m, 1, 5, 37, 2, 2, 8, right=36)
        values = arguments[name].view.copy()
        values[0, 3, 1, 2] = np.nan
        yield {**arguments, name: m.values(values)}


def _accurate(m: Maker, *shape: int) -> Array:
    return m.tensor(*shape, low=-0.4, high=0.6, dtype=m.compute_dtype)


def _call(query: Array, key: Array, value: Array, **others: Any) -> dict[str, Any]:
    lengths = {"max_seqlen_q": query.shape[1], "max_seqlen_k": key.shape[1]}
    scale = query.shape[-1] ** -0.5 / 4
    return {"query": query, "key": key, "value": value, **_NONE, **lengths, "scale": scale, **others}


def _fixed(
    m: Maker, batch: int, queries: int, keys: int, heads: int, key_heads: int, size: int,
    layout: str = "contiguous", value_size: int = 0, **others: Any,
) -> dict[str, Any]:  # fmt: skip
    query = m.tensor(batch, queries, heads, size, layout=layout)
    key = m.tensor(batch, keys, key_heads, size, layout=layout, high=2.3)
    value = m.tensor(batch, keys, key_heads, value_size or size, layout=layout, low=-1.9)
    return _call(query, key, value, **others)


def _packed(
    m: Maker, ends_q: list[int], ends_k: list[int], dtype: str = "int32", **others: Any
) -> dict[str, Any]:
    query, key = m.tensor(ends_q[-1], 4, 8), m.tensor(ends_k[-1], 2, 8, high=2.3)
    lengths = {
        "cu_seqlens_q": m.values(ends_q, dtype), "cu_seqlens_k": m.values(ends_k, dtype), "max_seqlen_q": 11,
        "max_seqlen_k": 9, "scale": 0.1,
    }  # fmt: skip
    return _call(query, key, m.tensor(ends_k[-1], 2, 8, low=-1.9), **{**lengths, **others})
