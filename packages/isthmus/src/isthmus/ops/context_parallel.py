"""Context parallelism: causal attention over a sequence split in zigzag.

Of 2n chunks, rank r of n has chunks r and 2n - 1 - r.

Three communication schemes: a ring of keys and values (Liu et al., Ring Attention, 2023), an all-gather of keys and
values, and an all-to-all of tokens and heads, which gives every rank the whole sequence of some heads (Jacobs et al.,
DeepSpeed Ulysses, 2023). All are load-balanced.
"""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from isthmus.ops import attention
from isthmus.ops.attention import attend

KINDS = ("p2p", "all_gather", "a2a")


def check(config: Any, kind: str | None, dropout: float) -> None:
    """Check that the configuration is supported.

    Raises:
        ValueError: unknown communication scheme, attention dropout, or a sliding window.
    """
    if kind not in (None, *KINDS):
        raise ValueError(f"--cp-comm-type {kind}: expected one of {', '.join(KINDS)}")
    if dropout:
        raise ValueError(
            f"context parallelism does not support attention dropout {dropout}; set --attention-dropout 0"
        )
    if config.window_size is not None:
        raise ValueError("context parallelism does not support a sliding window; omit --window-size")


class _Block(NamedTuple):
    """A block of queries and of another rank's keys, causal or full."""

    query: slice
    key: slice
    causal: bool


def _block(rank: int, source: int, tokens: int) -> _Block:
    """Visible block: all queries see an earlier rank's first chunk; the second chunk sees later ranks in full."""
    half, whole = tokens // 2, slice(0, tokens)
    if source == rank:
        return _Block(whole, whole, True)
    if source < rank:
        return _Block(whole, slice(0, half), False)
    return _Block(slice(half, tokens), whole, False)


class _Ring:
    """Neighbours of this rank: sends go to the next rank, receives come from the previous one."""

    def __init__(self, group: Any) -> None:
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        self._next, self._before = (self.rank + 1) % self.size, (self.rank - 1) % self.size

    def start(self, tensor: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
        """Start passing a tensor on; returns the receive buffer and the works to wait for."""
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
    """Output in float32 and log-sum-exp, merged block by block."""
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
    """Merge the softmax over further keys in place; the first block contains each query's own key."""
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
            if passing is not None:  # gradients of these keys from the previous ranks
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
    """Gradients of query, key and value in a block, with the log-sum-exp over all keys."""
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


def ring_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, group: Any, scale: float
) -> torch.Tensor:
    """Ring attention: pass keys and values from rank to rank, overlapped with computation.

    Args:
        query: [tokens, batch, heads, features], this rank's two chunks.
        key: [tokens, batch, key heads, features], like ``query``.
        value: like ``key``.
        group: process group of the context-parallel ranks.
        scale: factor of the scores.

    Returns:
        [tokens, batch, heads, features] of the query's dtype.
    """
    batch_first = (each.transpose(0, 1).contiguous() for each in (query, key, value))
    return _RingAttention.apply(*batch_first, group, scale).transpose(0, 1)


class _Gather(torch.autograd.Function):
    """All-gather along the tokens; the backward is a reduce-scatter."""

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
    """Reorder tokens from rank order to sequence order."""
    last = 2 * size - 1
    places = [2 * chunk if chunk < size else 2 * (last - chunk) + 1 for chunk in range(2 * size)]
    return _chunks(whole, places)


def _by_rank(whole: torch.Tensor, size: int) -> torch.Tensor:
    """Reorder tokens from sequence order to rank order."""
    last = 2 * size - 1
    return _chunks(whole, [chunk for rank in range(size) for chunk in (rank, last - rank)])


def _chunks(whole: torch.Tensor, places: list[int]) -> torch.Tensor:
    chunks = whole.unflatten(0, (len(places), -1))
    return chunks.index_select(0, torch.tensor(places, device=whole.device)).flatten(0, 1)


def all_gather_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, group: Any, scale: float
) -> torch.Tensor:
    """Attention with all-gathered keys and values; arguments and result as :func:`ring_attention`."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    pair = _in_order(_Gather.apply(torch.stack([key, value], 1), group), size)
    half, parts = query.shape[0] // 2, []
    for number, chunk in ((rank, query[:half]), (2 * size - 1 - rank, query[half:])):
        seen = pair[: (number + 1) * half]
        q, k, v = (each.transpose(0, 1) for each in (chunk, seen[:, 0], seen[:, 1]))
        out, _ = attend(q, k, v, scale=scale, right=0)  # aligned at the last query and key
        parts.append(out.transpose(0, 1))
    return torch.cat(parts)


class _Exchange(torch.autograd.Function):
    """All-to-all along the first dimension; the backward is the same."""

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
    """All-to-all from [tokens, batch, heads, features] to [all tokens, batch, heads / ranks, features]."""
    size = dist.get_world_size(group)
    parts = tensor.unflatten(2, (size, -1)).movedim(2, 0)
    return _in_order(_Exchange.apply(parts, group).flatten(0, 1), size)


def all_to_all_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, group: Any, scale: float
) -> torch.Tensor:
    """Ulysses attention: each rank computes some heads of all tokens; arguments and result as :func:`ring_attention`.

    Raises:
        ValueError: the ranks do not divide the heads.
    """
    size, heads, key_heads = dist.get_world_size(group), query.shape[2], key.shape[2]
    if key_heads % size and size % key_heads == 0:
        key, value = (each.repeat_interleave(size // key_heads, 2) for each in (key, value))
    if heads % size or key.shape[2] % size:
        raise ValueError(
            f"--cp-comm-type a2a: {size} ranks must divide the {heads} query heads and {key_heads} key heads of a "
            "rank; use p2p or all_gather"
        )
    q, k, v = (_whole_sequence(each, group).transpose(0, 1) for each in (query, key, value))
    out = attend(q, k, v, scale=scale, right=0)[0].transpose(0, 1)
    parts = _by_rank(out, size).unflatten(0, (size, -1))
    return _Exchange.apply(parts, group).movedim(0, 2).flatten(2, 3)


_COMPUTED_BY = {"p2p": ring_attention, "all_gather": all_gather_attention, "a2a": all_to_all_attention}


def over_ranks(
    kind: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, group: Any, scale: float
) -> torch.Tensor:
    """Attention over the sequence of all ranks; other arguments and result as :func:`ring_attention`.

    Args:
        kind: one of :data:`KINDS`.

    Raises:
        ValueError: an odd number of tokens on a rank, or the ranks do not divide the heads.
    """
    if query.shape[0] % 2:
        raise ValueError(
            f"context parallelism: {query.shape[0]} tokens on a rank cannot be split into two chunks; "
            f"the sequence length must be a multiple of {2 * dist.get_world_size(group)}"
        )
    return _COMPUTED_BY[kind](query, key, value, group, scale)
