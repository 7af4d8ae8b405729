"""Attention: fixed and variable lengths, grouped heads, windows, biases, dropout; sequence by sequence."""

# ruff: noqa: D103 (a kernel is documented where its operator is: in the opset)

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array, Maybe, double, operator
from isthmus.drivers.numpy.kernels.llm_softmax import softmax
from isthmus.drivers.numpy.kernels.philox import philox
from isthmus.drivers.numpy.kernels.reductions import total
from isthmus.opset.library import Unsupported


class Settings(NamedTuple):
    """The arguments of attention after query, key and value, as in the schema."""

    bias: Maybe
    mask: Maybe
    alibi_slopes: Maybe
    cu_seqlens_q: Maybe
    cu_seqlens_k: Maybe
    rng: Maybe
    max_seqlen_q: int
    max_seqlen_k: int
    scale: float
    left: int | None
    right: int | None
    top_left: bool
    softcap: float
    dropout_p: float

    def sequences(self, query: Array) -> Iterator[tuple[int, Any, Any]]:
        """Yield the number of each sequence and the indices of its queries and keys."""
        if self.cu_seqlens_q is None or self.cu_seqlens_k is None:
            yield from ((i, i, i) for i in range(len(query)))
            return
        q, k = self.cu_seqlens_q, self.cu_seqlens_k
        for i in range(len(q) - 1):
            yield i, slice(q[i], q[i + 1]), slice(k[i], k[i + 1])

    def scores(self, i: int, q: Array, k: Array) -> tuple[Any, Any]:
        """Return the scores of sequence i and the slope of their soft cap: [heads, queries, keys]."""
        scores: Any = q @ k.swapaxes(1, 2) * self.scale
        slope: Any = 1.0
        queries, keys = scores.shape[1:]
        if self.softcap:
            bent = np.tanh(scores / self.softcap)
            scores, slope = self.softcap * bent, 1 - bent * bent
        column = np.arange(keys)
        row = np.arange(queries)[:, None] + keys - queries
        if self.alibi_slopes is not None:
            slopes = double(self.alibi_slopes if self.alibi_slopes.ndim == 1 else self.alibi_slopes[i])
            scores = scores - slopes[:, None, None] * np.abs(row - column)
        if self.bias is not None:
            scores = scores + part(self.bias, i, queries, keys)
        if self.mask is not None:
            scores = np.where(part(self.mask, i, queries, keys), -np.inf, scores)
        row = row - (keys - queries) * self.top_left
        before = column < row - self.left if self.left is not None else False
        after = column > row + self.right if self.right is not None else False
        return np.where(np.logical_or(before, after), -np.inf, scores), slope

    def dropout(self, i: int, shape: tuple[int, ...]) -> Any:
        """Return the factors of dropout: 0 or 1 / (1 - p), [heads, queries, keys]."""
        if self.rng is None or not self.dropout_p:
            return 1.0
        heads, queries, keys = shape
        seed, offset = (int(each) % 2**64 for each in self.rng)
        block, query, head = (np.arange(n) for n in (-(-keys // 4), queries, heads))
        words = philox(
            seed, (block, query[:, None], (i * heads + head)[:, None, None], np.array(offset % 2**32))
        )
        drawn = np.stack(words, -1).reshape(heads, queries, 4 * len(block))[..., :keys]
        return (drawn < round((1 - self.dropout_p) * 2**32)) / max(1 - self.dropout_p, 2.0**-32)


def part(x: Array, i: int, queries: int, keys: int) -> Array:
    """Return what a bias or mask of any broadcastable shape says of sequence i."""
    return x[min(i, len(x) - 1), :, :queries, :keys]


def by_head(x: Array, at: Any, groups: int = 1) -> Array:
    """Return a sequence as float64 [heads, length, size], each head repeated for its group."""
    return np.repeat(np.moveaxis(double(x[at]), 1, 0), groups, 0)


def by_token(x: Array, groups: int = 1) -> Any:
    """Return [length, heads, size], with the heads of a group summed."""
    return np.moveaxis(x.reshape(len(x) // groups, groups, *x.shape[1:]).sum(1), 0, 1)


def softmax_of(scores: Array) -> tuple[Any, Any]:
    """Return the weights and the log-sum-exp of each row: 0 and -inf without a visible key."""
    top = scores.max(-1, initial=-np.inf)
    powers = weights_of(
        scores, top
    )  # not of the log-sum-exp, which beside a large maximum lacks the logarithm
    sums = powers.sum(-1)
    with np.errstate(divide="ignore"):
        return powers / np.where(sums == 0, 1, sums)[..., None], top + np.log(sums)


def weights_of(scores: Array, lse: Array) -> Any:
    return np.exp(scores - np.where(lse == -np.inf, 0, lse)[..., None])


@operator("isthmus::attention")
def attention(
    query: Array, key: Array, value: Array, bias: Maybe, mask: Maybe, alibi_slopes: Maybe, cu_seqlens_q: Maybe,
    cu_seqlens_k: Maybe, rng: Maybe, max_seqlen_q: int, max_seqlen_k: int, scale: float, left: int | None,
    right: int | None, top_left: bool, softcap: float, dropout_p: float,
) -> tuple[Array, Array]:  # fmt: skip
    settings = Settings(bias, mask, alibi_slopes, cu_seqlens_q, cu_seqlens_k, rng, max_seqlen_q, max_seqlen_k, scale,
                        left, right, top_left, softcap, dropout_p)  # fmt: skip
    groups = query.shape[-2] // max(key.shape[-2], 1)
    out = np.zeros((*query.shape[:-1], value.shape[-1]))
    all_lse = np.zeros(query.shape[:-1])
    for i, at_q, at_k in settings.sequences(query):
        q, k, v = by_head(query, at_q), by_head(key, at_k, groups), by_head(value, at_k, groups)
        scores, _ = settings.scores(i, q, k)
        weights, lse = softmax_of(scores)
        out[at_q] = by_token(weights * settings.dropout(i, scores.shape) @ v)
        all_lse[at_q] = lse.T
    return out, all_lse.swapaxes(-1, -2)


@operator("isthmus::attention_backward")
def attention_backward(
    grad: Array, query: Array, key: Array, value: Array, out: Array, lse: Array, bias: Maybe, mask: Maybe,
    alibi_slopes: Maybe, cu_seqlens_q: Maybe, cu_seqlens_k: Maybe, rng: Maybe, max_seqlen_q: int, max_seqlen_k: int,
    scale: float, left: int | None, right: int | None, top_left: bool, softcap: float, dropout_p: float,
    wants_bias: bool,
) -> tuple[Any, ...]:  # fmt: skip
    settings = Settings(bias, mask, alibi_slopes, cu_seqlens_q, cu_seqlens_k, rng, max_seqlen_q, max_seqlen_k, scale,
                        left, right, top_left, softcap, dropout_p)  # fmt: skip
    groups = query.shape[-2] // max(key.shape[-2], 1)
    d_query, d_key, d_value = (np.zeros(each.shape) for each in (query, key, value))
    d_bias = None if bias is None else np.zeros(bias.shape)
    for i, at_q, at_k in settings.sequences(query):
        q, k, v = by_head(query, at_q), by_head(key, at_k, groups), by_head(value, at_k, groups)
        dy, y = by_head(grad, at_q), by_head(out, at_q)
        scores, slope = settings.scores(i, q, k)
        rows = double(lse[i] if query.ndim == 4 else lse[:, at_q])
        weights, factor = weights_of(scores, rows), settings.dropout(i, scores.shape)
        ds = weights * (dy @ v.swapaxes(1, 2) * factor - total(dy * y, -1, True))
        if d_bias is not None:
            into = part(d_bias, i, *scores.shape[1:])
            into += ds.sum(tuple(dim for dim in range(3) if into.shape[dim] == 1), keepdims=True)
        ds = ds * slope * scale
        d_query[at_q] = by_token(ds @ k)
        d_key[at_k] = by_token(ds.swapaxes(1, 2) @ q, groups)
        d_value[at_k] = by_token((weights * factor).swapaxes(1, 2) @ dy, groups)
    return d_query, d_key, d_value, d_bias


def scaled_scores(query: Array, key: Array, causal: bool, mask: Maybe, scale: float) -> Any:
    """Return the scores of aten's attention, whose first query meets the first key."""
    scores = double(query) @ double(key).swapaxes(-1, -2) * scale
    scores = scores if mask is None else scores + mask
    return np.where(np.triu(np.ones(scores.shape[-2:], bool), 1) & causal, -np.inf, scores)


def default_scale(query: Array, scale: float | None) -> float:
    return float(query.shape[-1] ** -0.5) if scale is None else scale


@operator("aten::_scaled_dot_product_flash_attention_for_cpu")
def scaled_attention(
    query: Array, key: Array, value: Array, dropout_p: float, causal: bool, mask: Maybe, scale: float | None
) -> tuple[Any, Any]:  # fmt: skip
    if dropout_p:
        raise Unsupported  # the CPU refuses it too
    scores = scaled_scores(query, key, causal, mask, default_scale(query, scale))
    return softmax(scores) @ double(value), softmax_of(scores)[1]


@operator("aten::_scaled_dot_product_flash_attention_for_cpu_backward")
def scaled_attention_backward(
    grad: Array, query: Array, key: Array, value: Array, out: Array, lse: Array, dropout_p: float, causal: bool,
    mask: Maybe, scale: float | None,
) -> tuple[Any, ...]:  # fmt: skip
    if dropout_p:
        raise Unsupported
    grad, scale = double(grad), default_scale(query, scale)
    weights = weights_of(scaled_scores(query, key, causal, mask, scale), double(lse))
    slope = grad @ double(value).swapaxes(-1, -2) - total(grad * out, -1, True)
    slope = weights * slope * scale
    return slope @ double(key), slope.swapaxes(-1, -2) @ double(query), weights.swapaxes(-1, -2) @ grad
