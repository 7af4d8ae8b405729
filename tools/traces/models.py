"""Language models for traces: the operators of a training step on one rank, without torch.distributed.

A collective is reduced to its effect on memory: the buffer it allocates and its use on the communication stream.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tools.traces.fused_kernels import cross_entropy, rms_norm, swiglu
from tools.traces.recorder import Recorder


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a model, or of one rank's part of it.

    Attributes:
        layers: layers of this rank, over all its pipeline chunks.
        hidden: hidden size.
        heads: query heads of all ranks together.
        kv_heads: key and value heads of all ranks together.
        ffn: width of the feed-forward layer (of one expert) of all ranks together.
        vocabulary: vocabulary size of all ranks together.
        tensor_parallel: ranks that share a layer; with more than one, sequence parallelism is on.
        experts: experts of all ranks together; 0 for a dense model.
        expert_parallel: ranks that share the experts.
        fused: RMSNorm, SwiGLU and cross entropy are fused kernels.
        unfused_attention: attention materializes the matrix of scores.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int = 32000
    tensor_parallel: int = 1
    experts: int = 0
    expert_parallel: int = 1
    fused: bool = False
    unfused_attention: bool = False

    @property
    def head(self) -> int:
        """Width of an attention head."""
        return self.hidden // self.heads


def _weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, dtype=torch.bfloat16))


class _Move(torch.autograd.Function):
    """A collective that changes the number of rows: all-gather, reduce-scatter, all-to-all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: int, recorder: Recorder) -> Tensor:
        """[r, h] -> [rows, h]."""
        ctx.rows, ctx.recorder = x.shape[0], recorder
        return _moved(x, rows, recorder)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """[rows, h] -> [r, h]."""
        return _moved(grads[0].contiguous(), ctx.rows, ctx.recorder), None, None


def _moved(x: Tensor, rows: int, recorder: Recorder) -> Tensor:
    out = x.new_empty(rows, *x.shape[1:])
    recorder.use(x)
    recorder.use(out)
    return out


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, width: int, fused: bool) -> None:
        super().__init__()
        self.weight = _weight(width)
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        """[t, h] bfloat16 -> [t, h]."""
        if self.fused:
            return rms_norm(x, self.weight)
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


class Attention(nn.Module):
    """Causal attention with rotary positions and grouped keys."""

    def __init__(self, shape: Shape, recompute: bool) -> None:
        super().__init__()
        self.shape, self.recompute = shape, recompute
        self.heads = shape.heads // shape.tensor_parallel
        self.kv_heads = max(1, shape.kv_heads // shape.tensor_parallel)
        self.query = _weight(self.heads * shape.head, shape.hidden)
        self.key = _weight(self.kv_heads * shape.head, shape.hidden)
        self.value = _weight(self.kv_heads * shape.head, shape.hidden)
        self.output = _weight(shape.hidden, self.heads * shape.head)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], batch: int) -> Tensor:
        """[b * s, h] -> [b * s, h]."""
        query = _rotate(self._heads(F.linear(x, self.query), batch), rotary)
        key = _rotate(self._heads(F.linear(x, self.key), batch), rotary)
        value = self._heads(F.linear(x, self.value), batch)
        key, value = self._repeat(key), self._repeat(value)
        if not self.shape.unfused_attention:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        elif self.recompute:
            mixed = recompute(_attend, query, key, value)
        else:
            mixed = _attend(query, key, value)
        return F.linear(mixed.transpose(1, 2).reshape(x.shape[0], -1), self.output)

    def _heads(self, x: Tensor, batch: int) -> Tensor:
        return x.view(batch, x.shape[0] // batch, -1, self.shape.head).transpose(1, 2)

    def _repeat(self, x: Tensor) -> Tensor:
        if (times := self.heads // self.kv_heads) == 1:
            return x
        batch, _, length, width = x.shape
        return x[:, :, None].expand(-1, -1, times, -1, -1).reshape(batch, self.heads, length, width)


def _rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * rotary[0] + torch.cat((-second, first), -1) * rotary[1]


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = torch.matmul(query, key.transpose(2, 3)) * query.shape[-1] ** -0.5
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    scores = scores.masked_fill(mask, float("-inf"))
    return torch.matmul(F.softmax(scores, -1, dtype=torch.float32).to(query.dtype), value)


class FeedForward(nn.Module):
    """SwiGLU feed-forward layer, dense or of one expert."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.ffn // shape.tensor_parallel
        self.fused = shape.fused
        self.gate_up = _weight(2 * width, shape.hidden)
        self.down = _weight(shape.hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """[t, h] -> [t, h]."""
        both = F.linear(x, self.gate_up)
        if self.fused:
            return F.linear(swiglu(both), self.down)
        gate, up = both.chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.down)


class Experts(nn.Module):
    """Mixture of experts with top-2 routing; the number of tokens received varies."""

    def __init__(self, shape: Shape, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self.router = _weight(shape.experts, shape.hidden)
        self.local = nn.ModuleList(FeedForward(shape) for _ in range(shape.experts // shape.expert_parallel))

    def forward(self, x: Tensor, counts: Sequence[int]) -> Tensor:
        """[t, h] -> [t, h].

        Args:
            x: tokens of this rank.
            counts: tokens received by each local expert.
        """
        scores = F.softmax(F.linear(x, self.router).float(), -1)
        weights, chosen = torch.topk(scores, 2)
        order = torch.argsort(chosen.view(-1))
        sent = x.index_select(0, order // 2)
        received: Tensor = _Move.apply(sent, sum(counts), self.recorder)
        done = [expert(part) for expert, part in zip(self.local, received.split(list(counts)), strict=True)]
        returned: Tensor = _Move.apply(torch.cat(done), len(order), self.recorder)
        weighted = returned * weights.view(-1).index_select(0, order)[:, None].to(x.dtype)
        return torch.zeros_like(x).index_add(0, order // 2, weighted)


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self, shape: Shape, recorder: Recorder, recompute_attention: bool = False) -> None:
        super().__init__()
        self.shape, self.recorder = shape, recorder
        self.norms = nn.ModuleList(Norm(shape.hidden, shape.fused) for _ in range(2))
        self.attention = Attention(shape, recompute_attention)
        self.feed_forward = Experts(shape, recorder) if shape.experts else FeedForward(shape)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], batch: int, counts: Sequence[int]) -> Tensor:
        """[b * s / tensor_parallel, h] -> [b * s / tensor_parallel, h]."""
        mixed = self.attention(self._gather(self.norms[0](x)), rotary, batch)
        x = x + self._scatter(mixed, x.shape[0])
        wide = self._gather(self.norms[1](x))
        wide = self.feed_forward(wide, counts) if self.shape.experts else self.feed_forward(wide)
        return x + self._scatter(wide, x.shape[0])

    def _gather(self, x: Tensor) -> Tensor:
        return self._scatter(x, x.shape[0] * self.shape.tensor_parallel)

    def _scatter(self, x: Tensor, rows: int) -> Tensor:
        if rows == x.shape[0]:
            return x
        moved: Tensor = _Move.apply(x, rows, self.recorder)
        return moved


class Head(nn.Module):
    """Final norm, output projection and loss."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = Norm(shape.hidden, shape.fused)
        self.weight = _weight(shape.vocabulary // shape.tensor_parallel, shape.hidden)
        self.fused = shape.fused

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """[t, h] and int64 [t] -> mean loss."""
        logits = F.linear(self.norm(x), self.weight)
        if self.fused:
            return cross_entropy(logits, labels)
        return F.cross_entropy(logits.float(), labels)


def rotary(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [s, head], bfloat16."""
    angles = torch.outer(torch.arange(length).float(), torch.empty(shape.head // 2))
    angles = torch.cat((angles, angles), -1)
    return angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)


def recompute(function: Any, *arguments: Any) -> Any:
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
