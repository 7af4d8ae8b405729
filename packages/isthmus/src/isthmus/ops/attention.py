"""The attention operator: blockwise, without the full weight matrix (Dao, FlashAttention-2, 2023).

The public functions are in :mod:`isthmus.ops.flash_attn` and :mod:`isthmus.ops.fusion_attention`.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from isthmus.ops import autocast, cpu, philox
from isthmus.ops.registration import apply, compute_dtype, operator


class Rest(NamedTuple):
    """The arguments of the operator after query, key and value."""

    bias: torch.Tensor | None
    mask: torch.Tensor | None
    alibi_slopes: torch.Tensor | None
    cu_seqlens_q: torch.Tensor | None
    cu_seqlens_k: torch.Tensor | None
    rng: torch.Tensor | None
    max_seqlen_q: int
    max_seqlen_k: int
    scale: float
    left: int | None
    right: int | None
    top_left: bool
    softcap: float
    dropout_p: float


class _Part(NamedTuple):
    """Sequences of one length: token ranges in query and key, and their indices in the batch."""

    query: slice
    key: slice
    batch: slice


def _parts(query: torch.Tensor, key: torch.Tensor, rest: Rest) -> Iterator[_Part]:
    if rest.cu_seqlens_q is None or rest.cu_seqlens_k is None:
        yield _Part(slice(0, query.shape[1]), slice(0, key.shape[1]), slice(0, query.shape[0]))
        return
    ends_q, ends_k = rest.cu_seqlens_q.tolist(), rest.cu_seqlens_k.tolist()
    _check_ends("cu_seqlens_q", ends_q, query.shape[0], rest.max_seqlen_q)
    _check_ends("cu_seqlens_k", ends_k, key.shape[0], rest.max_seqlen_k)
    for i in range(len(ends_q) - 1):
        yield _Part(slice(ends_q[i], ends_q[i + 1]), slice(ends_k[i], ends_k[i + 1]), slice(i, i + 1))


def _check_ends(name: str, ends: list[int], tokens: int, longest: int) -> None:
    lengths = [b - a for a, b in itertools.pairwise(ends)]
    if not ends or ends[0] != 0 or ends[-1] != tokens or min(lengths, default=0) < 0:
        raise ValueError(
            f"attention: {name} must rise from 0 to the number of tokens, {tokens}; it is {ends}"
        )
    if max(lengths, default=0) > longest:
        raise ValueError(
            f"attention: {name} has a sequence of {max(lengths)} tokens, above the {longest} given"
        )


def _heads(tensor: torch.Tensor, tokens: slice, batched: bool, groups: int = 1) -> torch.Tensor:
    """A part as [batch, heads, tokens, features] in the compute dtype, each head repeated ``groups`` times."""
    part = tensor if batched else tensor[tokens].unsqueeze(0)
    return part.transpose(1, 2).to(compute_dtype(tensor)).repeat_interleave(groups, 1)


def _hidden_keys(part: _Part, rest: Rest, device: torch.device) -> torch.Tensor:
    """Mask of hidden keys: bool, broadcastable to [batch, heads, queries, keys]."""
    queries, keys = part.query.stop - part.query.start, part.key.stop - part.key.start
    row = torch.arange(queries, device=device)[:, None] + (0 if rest.top_left else keys - queries)
    column = torch.arange(keys, device=device)[None, :]
    hidden = torch.zeros(1, 1, queries, keys, dtype=torch.bool, device=device)
    if rest.left is not None:
        hidden = hidden | (column < row - rest.left)
    if rest.right is not None:
        hidden = hidden | (column > row + rest.right)
    return hidden if rest.mask is None else hidden | _piece(rest.mask, part, queries, keys)


def _piece(tensor: torch.Tensor, part: _Part, queries: int, keys: int) -> torch.Tensor:
    """The slice of a mask or bias [batch or 1, heads or 1, queries or 1, keys or 1] for a part."""
    batch = tensor[part.batch] if tensor.shape[0] > 1 else tensor
    return batch[:, :, :queries, :keys]


def _scores(
    query: torch.Tensor, key: torch.Tensor, part: _Part, rest: Rest
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The masked scores, and the derivative of the softcap (None without one)."""
    scores = query @ key.transpose(-1, -2) * rest.scale
    slope = None
    queries, keys = scores.shape[-2:]
    if rest.softcap:
        bent = (scores / rest.softcap).tanh()
        scores, slope = rest.softcap * bent, 1 - bent.square()
    if rest.alibi_slopes is not None:
        slopes = rest.alibi_slopes if rest.alibi_slopes.dim() == 1 else rest.alibi_slopes[part.batch]
        row = torch.arange(queries, device=query.device)[:, None] + (keys - queries)
        distance = (row - torch.arange(keys, device=query.device)).abs()
        scores = scores - slopes.to(scores.dtype)[..., None, None] * distance
    if rest.bias is not None:
        scores = scores + _piece(rest.bias, part, queries, keys)
    return scores.masked_fill(_hidden_keys(part, rest, query.device), -math.inf), slope


def _factor(query: torch.Tensor, keys: int, part: _Part, rest: Rest) -> torch.Tensor | float:
    """Dropout's factor of each weight: 0 or 1 / (1 - p)."""
    if rest.rng is None or not rest.dropout_p:
        return 1.0
    heads = query.shape[1]
    numbers = torch.arange(part.batch.start, part.batch.stop, device=query.device)[:, None] * heads
    numbers = numbers + torch.arange(heads, device=query.device)
    kept = philox.kept(rest.rng, numbers, query.shape[2], keys, rest.dropout_p)
    return kept.to(query.dtype) / max(1 - rest.dropout_p, 2.0**-32)


def _weights_again(scores: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """The weights from their logsumexp; 0 for queries with no visible key."""
    return (scores - lse.masked_fill(lse == -math.inf, 0).unsqueeze(-1)).exp()


@operator("attention")
def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *others: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    rest = Rest(*others)
    batched, groups = query.dim() == 4, query.shape[-2] // max(key.shape[-2], 1)
    out = query.new_empty(*query.shape[:-1], value.shape[-1])
    shape = (query.shape[0], query.shape[2], query.shape[1]) if batched else (query.shape[1], query.shape[0])
    lse = query.new_empty(shape, dtype=compute_dtype(query))
    for part in _parts(query, key, rest):
        q = _heads(query, part.query, batched)
        k, v = (_heads(each, part.key, batched, groups) for each in (key, value))
        scores, _ = _scores(q, k, part, rest)
        sums = scores.logsumexp(-1) if k.shape[2] else scores.new_full(scores.shape[:-1], -math.inf)
        weights = scores.softmax(-1).masked_fill((sums == -math.inf).unsqueeze(-1), 0)
        weighted = (weights * _factor(q, k.shape[2], part, rest)) @ v
        (out if batched else out[part.query].unsqueeze(0)).copy_(weighted.transpose(1, 2))
        (lse if batched else lse[:, part.query].unsqueeze(0)).copy_(sums)
    return out, lse


@operator("attention_backward")
def _attention_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *others: Any,
) -> tuple[torch.Tensor | None, ...]:
    rest, wants_bias = Rest(*others[:-1]), others[-1]
    batched, groups = query.dim() == 4, query.shape[-2] // max(key.shape[-2], 1)
    grads = [torch.empty_like(each, memory_format=torch.contiguous_format) for each in (query, key, value)]
    dbias = None
    if wants_bias and rest.bias is not None:
        dbias = torch.zeros_like(rest.bias, dtype=compute_dtype(query), memory_format=torch.contiguous_format)
    for part in _parts(query, key, rest):
        q, dy, y = (_heads(each, part.query, batched) for each in (query, grad, out))
        k, v = (_heads(each, part.key, batched, groups) for each in (key, value))
        scores, slope = _scores(q, k, part, rest)
        weights = _weights_again(scores, lse if batched else lse[:, part.query].unsqueeze(0))
        factor = _factor(q, k.shape[2], part, rest)
        dv = (weights * factor).transpose(-1, -2) @ dy
        ds = weights * (dy @ v.transpose(-1, -2) * factor - (dy * y).sum(-1, keepdim=True))
        if dbias is not None:
            piece = _piece(dbias, part, *ds.shape[-2:])
            piece += ds.sum_to_size(piece.shape)
        ds = ds * rest.scale if slope is None else ds * slope * rest.scale
        found = (ds @ k, _sum_groups(ds.transpose(-1, -2) @ q, groups), _sum_groups(dv, groups))
        for each, made, tokens in zip(grads, found, (part.query, part.key, part.key), strict=True):
            (each if batched else each[tokens].unsqueeze(0)).copy_(made.transpose(1, 2))
    return *grads, None if dbias is None or rest.bias is None else dbias.to(rest.bias.dtype)


def _sum_groups(grad: torch.Tensor, groups: int) -> torch.Tensor:
    return grad if groups == 1 else grad.unflatten(1, (-1, groups)).sum(2)


def _why_unserved(*arguments: Any) -> str:
    """Return why the fused kernel does not compute these gradients, or ""."""
    return "no kernel computes the gradient of the bias" if arguments[-1] else cpu.floats(*arguments)


cpu.add(_attention)
cpu.add(_attention_backward, _why_unserved)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, bias: Any, *others: Any) -> Any:
        out, lse = _attention(query, key, value, bias, *others)
        tensors, ctx.settings = others[:5], others[5:]
        ctx.save_for_backward(query, key, value, out, lse, bias, *tensors)
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[Any, ...]:
        query, key, value, out, lse, *tensors = ctx.saved_tensors
        wants_bias = ctx.needs_input_grad[3]
        found = _attention_backward(grad, query, key, value, out, lse, *tensors, *ctx.settings, wants_bias)
        return *found, *([None] * 13)


def packed_lengths(
    ends: tuple[torch.Tensor, torch.Tensor],
    padded: tuple[torch.Tensor | None, torch.Tensor | None],
    longest: tuple[int | None, int | None],
    right: int | None,
) -> tuple[torch.Tensor, torch.Tensor, int, int]:
    """Return ``lengths`` of :func:`attend` for packed sequences that may have padding at their ends.

    Args:
        ends: cumulative lengths of queries and of keys.
        padded: the same with padding, which only causal attention ignores; None without padding.
        longest: maximum of each; None is computed.
        right: of :func:`attend`.

    Raises:
        ValueError: there is padding, and the attention is not causal; or of queries or keys alone, which
            misaligns them.
    """
    if (padded[0] is None) != (padded[1] is None):
        raise ValueError("packed sequences need the padded cumulative lengths of both queries and keys")
    if right != 0 and any(each is not None for each in padded):
        raise ValueError("packed sequences with padding between them require causal attention")
    found = [plain if other is None else other for plain, other in zip(ends, padded, strict=True)]
    sizes = [int(each.diff().max()) if most is None else int(most)
             for each, most in zip(found, longest, strict=True)]  # fmt: skip
    return found[0], found[1], sizes[0], sizes[1]


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    lengths: tuple[torch.Tensor, torch.Tensor, int, int] | None = None,
    rng: torch.Tensor | None = None,
    scale: float | None = None,
    left: int | None = None,
    right: int | None = None,
    top_left: bool = False,
    softcap: float = 0.0,
    dropout_p: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``dropout(softmax(scale * query @ key.T + ...)) @ value`` and the log-sum-exp of the scores.

    Query i attends to key j if ``i + shift - left <= j <= i + shift + right``, with ``shift = keys - queries``: the
    last query is aligned with the last key. A query with no visible key gives 0, and a log-sum-exp of -inf.

    Args:
        query: [batch, queries, heads, features], or [tokens, heads, features] with lengths.
        key: [batch, keys, key heads, features] or [tokens, ...]; the key heads divide the heads.
        value: [batch, keys, key heads, value features] or [tokens, ...].
        bias: added to the scores after scale and softcap: [batch or 1, heads or 1, queries or 1, keys or 1].
        mask: bool of the same form, True where a key is hidden.
        alibi_slopes: [heads] or [batch, heads]; ``slope * |i + shift - j|`` is subtracted from the scores.
        lengths: cumulative lengths of queries and of keys, int32 or int64 [sequences + 1], and the maximum of each.
        rng: int64 [2] for dropout, from :func:`isthmus.ops.philox.draw`.
        scale: factor of the scores; None is ``1 / sqrt(features)``.
        left: visible keys before a query's position; None is all.
        right: visible keys after it; None is all.
        top_left: left and right use a shift of 0: the first query is aligned with the first key.
        softcap: scores become ``softcap * tanh(scores / softcap)``; 0 disables it.
        dropout_p: probability of dropping a weight.

    Returns:
        [batch, queries, heads, value features] or [tokens, ...] of the query's dtype; [batch, heads, queries] or
        [heads, tokens] in float32 (float64 for float64), without a gradient.

    Raises:
        ValueError: shapes do not match, key heads do not divide the heads, or ``dropout_p`` is outside [0, 1].
    """
    query, key, value = autocast.lower(query, key, value)
    _check(query, key, value, lengths is not None, dropout_p)
    for name, each in (("bias", bias), ("mask", mask)):
        _check_pairs(name, each, query, key, lengths)
    _check_slopes(alibi_slopes, query, lengths)
    cu_q, cu_k, longest_q, longest_k = lengths or (None, None, query.shape[1], key.shape[1])
    query, key, value, cu_q, cu_k = _without_repeats(query, key, value, cu_q, cu_k)
    scale = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    if dropout_p and rng is None:
        rng = philox.draw(query.device)
    arguments = (
        query, key, value, bias, mask, alibi_slopes, cu_q, cu_k, rng if dropout_p else None, longest_q, longest_k,
        float(scale), left, right, top_left, float(softcap), float(dropout_p),
    )  # fmt: skip
    return apply(_Attention, *arguments)


def _without_repeats(*tensors: torch.Tensor | None) -> list[Any]:
    """The tensors without repeated objects, as ``torch.compile`` requires."""
    found: list[Any] = []
    for each in tensors:
        again = each is not None and any(each is other for other in found)
        found.append(each.view_as(each) if again and each is not None else each)
    return found


def _check_slopes(slopes: torch.Tensor | None, query: torch.Tensor, lengths: Any) -> None:
    batch = query.shape[0] if lengths is None else lengths[0].shape[0] - 1
    heads = query.shape[-2]
    if slopes is not None and slopes.shape not in ((heads,), (batch, heads)):
        raise ValueError(
            f"attention: alibi_slopes has shape {tuple(slopes.shape)}; it must be ({heads},) or {(batch, heads)}"
        )


def _check(query: Any, key: Any, value: Any, packed: bool, dropout_p: float) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.dim() == key.dim() == value.dim() == (3 if packed else 4):
        wanted = "[tokens, heads, features]" if packed else "[batch, tokens, heads, features]"
        raise ValueError(f"attention: query, key and value must be {wanted}; got {shapes}")
    if key.shape[:-1] != value.shape[:-1] or query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"attention: key and value must match in tokens and heads, query and key in features; got {shapes}"
        )
    if not packed and query.shape[0] != key.shape[0]:
        raise ValueError(f"attention: query and key must have the same batch size; got {shapes}")
    if key.shape[-2] == 0 or query.shape[-2] % key.shape[-2]:
        raise ValueError(f"attention: query heads must be a multiple of key heads; got {shapes}")
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError(
            f"attention: query is {query.dtype}, key {key.dtype} and value {value.dtype}; they must have one dtype"
        )
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"attention: dropout_p is {dropout_p}; it must be in [0, 1]")


def _check_pairs(name: str, tensor: Any, query: Any, key: Any, lengths: Any) -> None:
    if tensor is None:
        return
    packed = lengths is not None
    batch = lengths[0].shape[0] - 1 if packed else query.shape[0]
    queries, keys = lengths[2:] if packed else (query.shape[1], key.shape[1])
    full = (batch, query.shape[-2], queries, keys)
    if tensor.dim() != 4 or any(a not in (1, b) for a, b in zip(tensor.shape, full, strict=True)):
        raise ValueError(
            f"attention: {name} has shape {tuple(tensor.shape)}; it must be broadcastable to {full}"
        )


@torch.no_grad()
def weights(
    query: torch.Tensor, key: torch.Tensor, lse: torch.Tensor, *, scale: float | None = None, **settings: Any
) -> torch.Tensor:
    """The weights that :func:`attend` applied to the values; those dropped by dropout are negative.

    Args:
        query: as passed to :func:`attend`.
        key: as passed to it.
        lse: as returned by it.
        scale: as passed to it.
        settings: its other keyword arguments.

    Returns:
        [batch, heads, queries, keys] in the query's dtype; with lengths, 0 beyond a sequence's end.
    """
    lengths = settings.pop("lengths", None)
    cu_q, cu_k, longest_q, longest_k = lengths or (None, None, query.shape[1], key.shape[1])
    full = {"bias": None, "mask": None, "alibi_slopes": None, "rng": None, "left": None, "right": None}
    defaults = {**full, "top_left": False, "softcap": 0.0, "dropout_p": 0.0}
    rest = Rest(
        cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=longest_q, max_seqlen_k=longest_k,
        scale=1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale, **{**defaults, **settings},
    )  # fmt: skip
    batched, heads = query.dim() == 4, query.shape[-2]
    batch = query.shape[0] if batched or cu_q is None else cu_q.shape[0] - 1
    found = query.new_zeros(batch, heads, longest_q, longest_k)
    for part in _parts(query, key, rest):
        q = _heads(query, part.query, batched)
        k = _heads(key, part.key, batched, heads // key.shape[-2])
        scores, _ = _scores(q, k, part, rest)
        made = _weights_again(scores, lse if batched else lse[:, part.query].unsqueeze(0))
        factor = _factor(q, k.shape[2], part, rest)
        if isinstance(factor, torch.Tensor):
            made = torch.where(factor > 0, made, -made)
        found[part.batch, :, : made.shape[2], : made.shape[3]] = made
    return found
