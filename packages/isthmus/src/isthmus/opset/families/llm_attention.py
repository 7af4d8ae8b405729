"""Attention of large language models: fixed and variable lengths, grouped heads, windows, biases, dropout."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from isthmus.opset.families._attention_calls import TOLERANCE, calls, without_numbers
from isthmus.opset.families._common import size_of
from isthmus.opset.operator import Operator, extension
from isthmus.opset.sampling import Array, Case, Maker


def _forwards(m: Maker) -> Iterator[Case]:
    for kind, arguments in calls(m):
        yield m.case(kind, **arguments)
    for arguments in without_numbers(m):
        yield m.case("special", **arguments)


def _backwards(m: Maker) -> Iterator[Case]:
    accurate = m.compute_dtype
    for kind, arguments in calls(m):
        arrays: dict[str, Any] = {
            k: np.asarray(v.view) if isinstance(v, Array) else v for k, v in arguments.items()
        }
        made = _computed(**arrays)
        yield m.case(
            kind,
            grad=m.tensor(*made["out"].shape),
            out=m.values(made["out"]),
            lse=m.values(made["lse"], accurate),
            wants_bias=arguments["bias"] is not None,
            **arguments,
        )


def _kept(rng: Any, numbers: Any, queries: int, keys: int, dropout_p: float) -> Any:
    """Dropout mask (0 or 1) by Philox4x32-10 with the counter (key / 4, query, number, offset)."""
    seed, offset = (int(each) % 2**64 for each in rng)
    grid = np.broadcast_arrays(
        np.arange((keys + 3) // 4), np.arange(queries)[:, None], numbers[..., None, None], offset % 2**32
    )
    c = [each.astype(np.uint64) for each in grid]
    low, high, word, shift = seed % 2**32, seed >> 32, np.uint64(2**32 - 1), np.uint64(32)
    for _ in range(10):
        one, two = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (two >> shift) ^ c[1] ^ np.uint64(low), two & word,
            (one >> shift) ^ c[3] ^ np.uint64(high), one & word,
        ]  # fmt: skip
        low, high = (low + 0x9E3779B9) % 2**32, (high + 0xBB67AE85) % 2**32
    drawn = np.stack(c, -1).reshape(*grid[0].shape[:-1], 4 * grid[0].shape[-1])[..., :keys]
    return (drawn < round((1 - dropout_p) * 2**32)).astype(np.float64)


def _sequences(a: dict[str, Any]) -> Iterator[tuple[int, Any, Any]]:
    """Index, query slice and key slice of each sequence."""
    if a["cu_seqlens_q"] is None:
        for i in range(a["query"].shape[0]):
            yield i, (i, slice(None)), (i, slice(None))
        return
    q, k = a["cu_seqlens_q"], a["cu_seqlens_k"]
    for i in range(len(q) - 1):
        yield i, (slice(q[i], q[i + 1]),), (slice(k[i], k[i + 1]),)


def _scores(a: dict[str, Any], i: int, q: Any, k: Any) -> tuple[Any, Any]:
    """Scores [heads, queries, keys] of sequence i, -inf where hidden, and the derivative of the softcap."""
    dots = np.einsum("qhd,khd->hqk", q, k) * a["scale"]
    _, queries, keys = dots.shape
    slope = np.ones_like(dots)
    if a["softcap"]:
        slope = 1 - np.tanh(dots / a["softcap"]) ** 2
        dots = a["softcap"] * np.tanh(dots / a["softcap"])
    row, column = np.arange(queries)[:, None], np.arange(keys)
    if a["alibi_slopes"] is not None:
        slopes = a["alibi_slopes"] if a["alibi_slopes"].ndim == 1 else a["alibi_slopes"][i]
        dots = dots - slopes[:, None, None] * np.abs(row + keys - queries - column)
    for name in ("bias", "mask"):
        if a[name] is not None:
            piece = a[name][min(i, a[name].shape[0] - 1), :, :queries, :keys]
            dots = dots + piece if name == "bias" else np.where(piece, -np.inf, dots)
    row = row if a["top_left"] else row + keys - queries
    if a["left"] is not None:
        dots = np.where(column < row - a["left"], -np.inf, dots)
    if a["right"] is not None:
        dots = np.where(column > row + a["right"], -np.inf, dots)
    return dots, slope


def _weights(scores: Any, lse: Any) -> Any:
    """Weights of the given log-sum-exp, as backward has them; 0 for queries without a visible key."""
    return np.exp(scores - np.where(np.isneginf(lse), 0, lse)[..., None])


def _computed(grad: Any = None, magnitude: bool = False, **arguments: Any) -> dict[str, Any]:
    """Results of forward, and with ``grad`` of backward; with ``magnitude`` their sums of absolute values.

    The extra terms of the magnitude account for the rounding of the scores.
    """
    a: dict[str, Any] = {
        k: v.astype(np.float64) if isinstance(v, np.ndarray) and v.dtype.kind not in "iub" else v
        for k, v in arguments.items()
    }
    query, key, value = a["query"], a["key"], a["value"]
    batched, groups = query.ndim == 4, query.shape[-2] // key.shape[-2]
    made: dict[str, Any] = {
        "out": np.zeros((*query.shape[:-1], value.shape[-1])),
        "lse": np.zeros(
            (query.shape[0], query.shape[2], query.shape[1]) if batched else query.shape[1::-1]
        ),
        "query": np.zeros(query.shape), "key": np.zeros(key.shape), "value": np.zeros(value.shape),
        "bias": None if a["bias"] is None else np.zeros(a["bias"].shape),
    }  # fmt: skip
    size = np.abs if magnitude else lambda x: x
    for i, at_q, at_k in _sequences(a):
        q, k, v = query[at_q], np.repeat(key[at_k], groups, 1), np.repeat(value[at_k], groups, 1)
        scores, slope = _scores(a, i, q, k)
        heads, queries, keys = scores.shape
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(top == -np.inf, 0, top))
        sums = weights.sum(-1, keepdims=True)
        with np.errstate(divide="ignore"):
            lse = (np.log(sums) + top)[..., 0]
        weights = weights / np.where(sums == 0, 1, sums)
        spread = np.einsum("qhd,khd->hqk", np.abs(q), np.abs(k)) * abs(a["scale"]) + 1 if magnitude else 1.0
        spread = (
            spread * (1 + np.max(spread * (weights > 0), -1, keepdims=True, initial=0)) if magnitude else 1.0
        )
        factor = np.ones(scores.shape)
        if a["rng"] is not None and a["dropout_p"]:
            numbers = i * heads + np.arange(heads)
            factor = _kept(a["rng"], numbers, queries, keys, a["dropout_p"]) / max(
                1 - a["dropout_p"], 2.0**-32
            )
        made["out"][at_q] = np.einsum("hqk,khd->qhd", weights * factor * spread, size(v))
        at_lse = (i,) if batched else (slice(None), *at_q)
        made["lse"][at_lse] = (
            np.where(np.isinf(lse), 0, np.abs(lse) + np.max(spread, -1, initial=1)) if magnitude else lse
        )
        if grad is None:
            continue
        weights = _weights(scores, a["lse"][at_lse])
        dy, y = grad[at_q].astype(np.float64), a["out"][at_q]
        back = np.einsum("qhd,khd->hqk", size(dy), size(v)) * factor
        delta = np.einsum("qhd,qhd->hq", size(dy), size(y))[..., None]
        ds = weights * spread * (back + delta if magnitude else back - delta)
        if made["bias"] is not None:
            into = made["bias"][min(i, len(made["bias"]) - 1)][:, :queries, :keys]
            axes = tuple(j for j in range(3) if into.shape[j] == 1)
            into += ds.sum(axes, keepdims=True)
        ds = ds * slope * size(a["scale"])
        dk, dv = (
            np.einsum("hqk,qhd->khd", ds, size(q)),
            np.einsum("hqk,qhd->khd", weights * spread * factor, size(dy)),
        )
        made["query"][at_q] = np.einsum("hqk,khd->qhd", ds, size(k))
        made["key"][at_k] = dk.reshape(keys, heads // groups, groups, k.shape[-1]).sum(2)
        made["value"][at_k] = dv.reshape(keys, heads // groups, groups, v.shape[-1]).sum(2)
    return made


def _results(names: str) -> Any:
    def computed(**arguments: Any) -> Any:
        import torch

        wants = arguments.pop("wants_bias", True)
        plain: dict[str, Any] = {
            k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()
        }
        if "grad" not in plain:
            plain["grad"] = None
        made = _computed(**plain)
        found = [made[name] if name != "bias" or wants else None for name in names.split()]
        return tuple(None if each is None else torch.from_numpy(each) for each in found)

    return computed


_FORWARD, _BACKWARD = _results("out lse"), _results("query key value bias")
_REST = (
    "Tensor? bias, Tensor? mask, Tensor? alibi_slopes, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? rng, "
    "int max_seqlen_q, int max_seqlen_k, float scale, int? left, int? right, bool top_left, float softcap, "
    "float dropout_p"
)
_LSE = (
    "(query.shape[1], query.shape[0]) if len(query.shape) == 3 else "
    "(query.shape[0], query.shape[2], query.shape[1])"
)

OPERATORS: list[Operator] = [
    extension(f"attention(Tensor query, Tensor key, Tensor value, {_REST}) -> (Tensor out, Tensor lse)",
              f"((*query.shape[:-1], value.shape[-1]), {_LSE})", "(query.dtype, accumulator(query))",
              _forwards, TOLERANCE, differentiable="query key value bias", reference=_FORWARD,
              magnitude=size_of(_FORWARD), special=()),
    extension(f"attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, Tensor lse, "
              f"{_REST}, bool wants_bias) "
              "-> (Tensor grad_query, Tensor grad_key, Tensor grad_value, Tensor? grad_bias)",
              "(query.shape, key.shape, value.shape, bias.shape if wants_bias and bias is not None else None)",
              "(query.dtype, query.dtype, query.dtype, bias.dtype if wants_bias and bias is not None else None)",
              _backwards, TOLERANCE, reference=_BACKWARD, magnitude=size_of(_BACKWARD), special=(),
              paired=True),
]  # fmt: skip
