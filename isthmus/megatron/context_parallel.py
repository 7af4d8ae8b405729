"""Causal attention whose sequence is split over ranks in zigzag: rank r of n has chunks r and 2n - 1 - r of 2n.

Three ways to bring queries and keys together: a ring in which keys and values travel (Liu et al., Ring Attention,
2023), gathering the keys and values of all ranks, and exchanging tokens for heads, so that every rank has the whole
sequence of some heads (Jacobs et al., DeepSpeed Ulysses, 2023). All compute every pair once and are balanced.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from isthmus.ops import attention
from isthmus.ops.attention import attend

KINDS = ("p2p", "all_gather", "a2a")


def check(config: Any, kind: str | None, dropout: float) -> None:
    """Refuse what is not computed.

    Raises:
        ValueError: another kind of communication, dropout of attention, or a sliding window.
    """
    if kind not in (None, *KINDS):
        raise ValueError(f"--cp-comm-type {kind}: context parallelism is by {', '.join(KINDS)}")
    if dropout:
        raise ValueError(
            f"context parallelism has no dropout of attention; set --attention-dropout 0, not {dropout}"
        )
    if config.window_size is not None:
        raise ValueError("context parallelism has no sliding window; leave --window-size out")


class _Block(NamedTuple):
    """What a rank computes with the keys of another: parts of its queries and of those keys, causal or whole."""

    query: slice
    key: slice
    causal: bool


def _block(rank: int, source: int, tokens: int) -> _Block:
    """All queries see the first chunk of an earlier rank; only the second chunk of them sees a later one's, whole."""
    half, whole = tokens // 2, slice(0, tokens)
    if source == rank:
        return _Block(whole, whole, True)
    if source < rank:
        return _Block(whole, slice(0, half), False)
    return _Block(slice(half, tokens), whole, False)


class _Ring:
    """The neighbours of this rank; what goes round is sent to the next and received from the one before."""

    def __init__(self, group: Any) -> None:
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        self._next, self._before = (self.rank + 1) % self.size, (self.rank - 1) % self.size

    def start(self, tensor: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
        """Begin to pass a tensor on: where the other's arrives, and what to wait for."""
        arriving = torch.empty_like(tensor)
        pair = [
            dist.P2POp(dist.isend, tensor, group=self.group, group_peer=self._next),
            dist.P2POp(dist.irecv, arriving, group=self.group, group_peer=self._before),
        ]
        return arriving, dist.batch_isend_irecv(pair if self.rank % 2 == 0 else pair[::-1])


def _wait(works: list[Any]) -> None:
    for work in works:
        work.wait()


def _forward(
    query: torch.Tensor, pair: torch.Tensor, ring: _Ring, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output in float32 and logarithm of the sums, each block merged as its keys come round."""
    batch, tokens, heads, _ = query.shape
    out = query.new_zeros(batch, tokens, heads, pair.shape[-1], dtype=torch.float32)
    lse = query.new_full((batch, heads, tokens), -torch.inf, dtype=torch.float32)
    for step in range(ring.size):
        arriving, works = ring.start(pair) if step < ring.size - 1 else (pair, [])
        block = _block(ring.rank, (ring.rank - step) % ring.size, tokens)
        key, value = pair[:, :, block.key].unbind()
        part, sums = attend(query[:, block.query], key, value, scale=scale, right=0 if block.causal else None)
        _merge(out[:, block.query], lse[:, :, block.query], part, sums)
        _wait(works)
        pair = arriving
    return out, lse


def _merge(out: torch.Tensor, lse: torch.Tensor, part: torch.Tensor, sums: torch.Tensor) -> None:
    """Add softmax over further keys to softmax over some, in place; every query has seen its own key before."""
    total = torch.logaddexp(lse, sums)
    for each, factor in ((out, lse), (part.float(), sums)):
        weight = (factor - total).exp().transpose(1, 2).unsqueeze(-1)
        out.copy_(each * weight if each is out else out + each * weight)
    lse.copy_(total)


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, group: Any, scale: float) -> torch.Tensor:
        ring, pair = _Ring(group), torch.stack([key, value])
        out, ctx.lse = _forward(query, pair, ring, scale)
        out = out.to(query.dtype)
        ctx.save_for_backward(query, pair, out)
        ctx.ring, ctx.scale = ring, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        query, pair, out = ctx.saved_tensors
        ring, tokens = ctx.ring, query.shape[1]
        dq = torch.zeros_like(query, dtype=torch.float32)
        dkv, passing = torch.zeros_like(pair, dtype=torch.float32), None
        for step in range(ring.size):
            arriving, works = ring.start(pair) if step < ring.size - 1 else (pair, [])
            block = _block(ring.rank, (ring.rank - step) % ring.size, tokens)
            found = _block_gradients(grad, query, pair, out, ctx.lse, block, ctx.scale)
            if passing is not None:  # the gradients of these keys, of the ranks that had them before
                _wait(passing[1])
                dkv = passing[0]
            dq[:, block.query] += found[0]
            dkv[:, :, block.key] += torch.stack(found[1:])
            passing = ring.start(dkv)
            _wait(works)
            pair = arriving
        assert passing is not None
        _wait(passing[1])
        dk, dv = passing[0].to(pair.dtype)
        return dq.to(query.dtype), dk, dv, None, None


def _block_gradients(
    grad: torch.Tensor,
    query: torch.Tensor,
    pair: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    block: _Block,
    scale: float,
) -> tuple[torch.Tensor, ...]:
    """Gradients of the parts of query, key and value in a block: the weights follow from the sums over all keys."""
    key, value = pair[:, :, block.key].unbind()
    part, dy, y = query[:, block.query], grad[:, block.query], out[:, block.query]
    settings = (scale, None, 0 if block.causal else None, False, 0.0, 0.0)
    found = attention._attention_backward(
        dy,
        part,
        key,
        value,
        y,
        lse[:, :, block.query],
        *[None] * 6,
        part.shape[1],
        key.shape[1],
        *settings,
        False,
    )
    return tuple(found[:3])


def ring(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, group: Any, scale: float
) -> torch.Tensor:
    """Keys and values travel from rank to rank while the block before is computed.

    Args:
        query: [tokens, batch, heads, features], this rank's two chunks.
        key: [tokens, batch, key heads, features], likewise.
        value: like ``key``.
        group: process group of the context-parallel ranks.
        scale: of the scores.

    Returns:
        [tokens, batch, heads, features] of the query's dtype.
    """
    batch_first = (each.transpose(0, 1).contiguous() for each in (query, key, value))
    return _RingAttention.apply(*batch_first, group, scale).transpose(0, 1)


class _Gather(torch.autograd.Function):
    """[tokens, ...] of each rank to those of all, rank after rank; the gradient is summed and scattered."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group, size = group, dist.get_world_size(group)
        whole = tensor.new_empty(size * tensor.shape[0], *tensor.shape[1:])
        dist.all_gather_into_tensor(whole, tensor.contiguous(), group=group)
        return whole

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        part = grad.new_empty(grad.shape[0] // dist.get_world_size(ctx.group), *grad.shape[1:])
        dist.reduce_scatter_tensor(part, grad.contiguous(), group=ctx.group)
        return part, None


def _in_order(whole: torch.Tensor, size: int) -> torch.Tensor:
    """Tokens of all ranks, rank after rank, in the order of the sequence."""
    last = 2 * size - 1
    places = [2 * chunk if chunk < size else 2 * (last - chunk) + 1 for chunk in range(2 * size)]
    return _chunks(whole, places)


def _by_rank(whole: torch.Tensor, size: int) -> torch.Tensor:
    """Tokens in the order of the sequence as those of one rank after the other."""
    last = 2 * size - 1
    return _chunks(whole, [chunk for rank in range(size) for chunk in (rank, last - rank)])


def _chunks(whole: torch.Tensor, places: list[int]) -> torch.Tensor:
    chunks = whole.unflatten(0, (len(places), -1))
    return chunks.index_select(0, torch.tensor(places, device=whole.device)).flatten(0, 1)


def gathered(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, group: Any, scale: float
) -> torch.Tensor:
    """Keys and values of all ranks are gathered; arguments and result are those of :func:`ring`."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    pair = _in_order(_Gather.apply(torch.stack([key, value], 1), group), size)
    half, parts = query.shape[0] // 2, []
    for number, chunk in ((rank, query[:half]), (2 * size - 1 - rank, query[half:])):
        seen = pair[: (number + 1) * half]
        q, k, v = (each.transpose(0, 1) for each in (chunk, seen[:, 0], seen[:, 1]))
        out, _ = attend(q, k, v, scale=scale, right=0)  # the last query is beside the last key
        parts.append(out.transpose(0, 1))
    return torch.cat(parts)


class _Exchange(torch.autograd.Function):
    """[ranks, ...]: part i goes to rank i, and part i of the result is from there; so does the gradient."""

    @staticmethod
    def forward(ctx: Any, parts: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return _exchange(parts, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _exchange(grad, ctx.group), None


def _exchange(parts: torch.Tensor, group: Any) -> torch.Tensor:
    parts = parts.contiguous()
    out = torch.empty_like(parts)
    dist.all_to_all_single(out, parts, group=group)
    return out


def _whole_sequence(tensor: torch.Tensor, group: Any) -> torch.Tensor:
    """[tokens, batch, heads, features] of each rank to [all tokens, batch, heads / ranks, features]."""
    size = dist.get_world_size(group)
    parts = tensor.unflatten(2, (size, -1)).movedim(2, 0)
    return _in_order(_Exchange.apply(parts, group).flatten(0, 1), size)


def exchanged(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, group: Any, scale: float
) -> torch.Tensor:
    """Every rank computes the whole sequence of some heads; arguments and result are those of :func:`ring`.

    Raises:
        ValueError: heads cannot be shared out among the ranks.
    """
    size, heads, key_heads = dist.get_world_size(group), query.shape[2], key.shape[2]
    if key_heads % size and size % key_heads == 0:
        key, value = (each.repeat_interleave(size // key_heads, 2) for each in (key, value))
    if heads % size or key.shape[2] % size:
        raise ValueError(
            f"--cp-comm-type a2a shares heads out among {size} ranks, and a rank has {heads} of queries and "
            f"{key_heads} of keys; take p2p or all_gather"
        )
    q, k, v = (_whole_sequence(each, group).transpose(0, 1) for each in (query, key, value))
    out = attend(q, k, v, scale=scale, right=0)[0].transpose(0, 1)
    parts = _by_rank(out, size).unflatten(0, (size, -1))
    return _Exchange.apply(parts, group).movedim(0, 2).flatten(2, 3)


_COMPUTED_BY = {"p2p": ring, "all_gather": gathered, "a2a": exchanged}


def over_ranks(
    kind: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, group: Any, scale: float
) -> torch.Tensor:
    """Attention over the sequence of all ranks; arguments and result are those of :func:`ring`.

    Args:
        kind: one of :data:`KINDS`.

    Raises:
        ValueError: a rank's tokens are not two chunks of one length, or heads cannot be shared out.
    """
    if query.shape[0] % 2:
        raise ValueError(
            f"context parallelism: {query.shape[0]} tokens on a rank are no two chunks; "
            f"let {2 * dist.get_world_size(group)} divide the sequence"
        )
    return _COMPUTED_BY[kind](query, key, value, group, scale)
