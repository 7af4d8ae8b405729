"""A training run on one rank: schedule, model chunks, optimizer."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tools.traces.models import Block, Head, Shape, recompute, rotary
from tools.traces.optimizers import AdamW, ShardedAdamW
from tools.traces.recorder import COMMUNICATION, COMPUTE, Recorder

Lengths = Callable[[random.Random], tuple[int, int]]  # -> sequences of a micro-batch, tokens per sequence


@dataclass(frozen=True, kw_only=True)
class Job:
    """The job of one rank.

    Attributes:
        shape: sizes of the model.
        lengths: draws the lengths of a micro-batch.
        steps: optimizer steps.
        micro_batches: micro-batches per step.
        recompute: "none", "full" (every layer), "alternate" (every second layer), "selective" (attention).
        pipeline: pipeline stages; this rank is the first.
        chunks: model chunks on this rank, for the interleaved schedule.
        optimizer: "loop", "foreach", or "sharded" with states divided by data_parallel.
        data_parallel: data-parallel ranks.
        gathered: weights are sharded too, and gathered layer by layer on the communication stream.
        seed: seed of lengths and routing.
    """

    shape: Shape
    lengths: Lengths
    steps: int = 5
    micro_batches: int = 1
    recompute: str = "none"
    pipeline: int = 1
    chunks: int = 1
    optimizer: str = "sharded"
    data_parallel: int = 8
    gathered: bool = False
    seed: int = 0


class _Gather(torch.autograd.Function):
    """All-gather of a layer's weights; backward is a reduce-scatter of the gradients."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, ranks: int, recorder: Recorder) -> Tensor:
        ctx.ranks, ctx.recorder = ranks, recorder
        with recorder.on(COMMUNICATION):
            narrow = part.to(torch.bfloat16)
            whole = narrow.new_empty(narrow.numel() * ranks)
        recorder.use(whole, COMPUTE)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        ctx.recorder.use(grads[0])
        with ctx.recorder.on(COMMUNICATION):
            part = grads[0].new_empty(grads[0].numel() // ctx.ranks, dtype=torch.float32)
        ctx.recorder.use(part, COMPUTE)
        return part, None, None


class _Gathered(nn.Module):
    """A layer whose weights are sharded."""

    def __init__(self, make: Callable[[], Block], ranks: int, recorder: Recorder) -> None:
        super().__init__()
        with recorder.pause():
            template = make()
        self.layer = [template]  # in a list, so that its weights are not registered with this module
        self.ranks, self.recorder = ranks, recorder
        elements = sum(p.numel() for p in template.parameters())
        self.part = nn.Parameter(torch.empty(-(-elements // ranks), dtype=torch.float32))

    def forward(self, x: Tensor, *arguments: Any) -> Tensor:
        whole: Tensor = _Gather.apply(self.part, self.ranks, self.recorder)
        names = dict(self.layer[0].named_parameters())
        used = sum(p.numel() for p in names.values())
        pieces = whole[:used].split([p.numel() for p in names.values()])
        weights = {name: piece.view(p.shape) for (name, p), piece in zip(names.items(), pieces, strict=True)}
        result: Tensor = functional_call(self.layer[0], weights, (x, *arguments))
        return result


class Training:
    """A run of a job; must run inside its recorder."""

    def __init__(self, job: Job, recorder: Recorder) -> None:
        self.job, self.recorder = job, recorder
        self.random = random.Random(job.seed)
        shape = job.shape
        rows = shape.vocabulary // shape.tensor_parallel
        self.embedding = nn.Parameter(torch.empty(rows, shape.hidden, dtype=torch.bfloat16))
        self.layers = nn.ModuleList(self._layer() for _ in range(shape.layers))
        self.head = Head(shape) if job.pipeline == 1 else None
        parameters = [self.embedding, *self.layers.parameters()]
        parameters += list(self.head.parameters()) if self.head else []
        self.optimizer: AdamW | ShardedAdamW
        if job.optimizer == "sharded":
            self.optimizer = ShardedAdamW(parameters, job.data_parallel, recorder)
        else:
            self.optimizer = AdamW(parameters, foreach=job.optimizer == "foreach")

    def _layer(self) -> nn.Module:
        def make() -> Block:
            return Block(self.job.shape, self.recorder, self.job.recompute == "selective")

        return _Gathered(make, self.job.data_parallel, self.recorder) if self.job.gathered else make()

    def run(self) -> None:
        """Run all steps."""
        for _ in range(self.job.steps):
            self._step()
            self.recorder.step()

    def _step(self) -> None:
        sizes = [self.job.lengths(self.random) for _ in range(self.job.micro_batches)]
        job = self.job
        waiting: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        for forward, chunk, micro_batch in schedule(job.pipeline, job.chunks, job.micro_batches):
            key = (chunk, micro_batch)
            if forward:
                waiting[key] = self._forward(chunk, *sizes[micro_batch])
            else:
                self._backward(*waiting.pop(key))
        self.optimizer.step()

    def _forward(self, chunk: int, batch: int, length: int) -> tuple[Tensor, Tensor]:
        """Run a chunk and return its input and output."""
        shape = self.job.shape
        if chunk == 0:
            tokens = torch.empty(batch * length, dtype=torch.int64)
            x = nn.functional.embedding(tokens, self.embedding)
            x = x[: len(x) // shape.tensor_parallel].clone() if shape.tensor_parallel > 1 else x
        else:
            x = self._receive(torch.Size([batch * length // shape.tensor_parallel, shape.hidden]))
            x.requires_grad_()
        start, per_chunk = x, shape.layers // self.job.chunks
        angles = rotary(shape, length)
        for number in range(chunk * per_chunk, (chunk + 1) * per_chunk):
            x = self._run_layer(number, x, angles, batch)
        if self.head is not None:
            return start, self.head(x, torch.empty(batch * length, dtype=torch.int64))
        self.recorder.use(x)
        return start, x

    def _run_layer(self, number: int, x: Tensor, angles: tuple[Tensor, Tensor], batch: int) -> Tensor:
        arguments = (x, angles, batch, self._counts(len(x)))
        mode = self.job.recompute
        if mode == "full" or self.job.gathered or (mode == "alternate" and number % 2):
            x = recompute(self.layers[number], *arguments)
        else:
            x = self.layers[number](*arguments)
        return x

    def _counts(self, tokens: int) -> list[int]:
        """Draw the tokens received by each local expert; two experts per token, uneven."""
        shape = self.job.shape
        if not shape.experts:
            return []
        mean = 2 * tokens * shape.expert_parallel // shape.experts
        return [
            max(1, round(mean * self.random.lognormvariate(0, 0.25)))
            for _ in range(shape.experts // shape.expert_parallel)
        ]

    def _receive(self, shape: torch.Size) -> Tensor:
        buffer = torch.empty(shape, dtype=torch.bfloat16)
        self.recorder.use(buffer)
        return buffer

    def _backward(self, start: Tensor, end: Tensor) -> None:
        if self.head is not None:
            end.backward()
            return
        gradient = self._receive(end.shape)
        end.backward(gradient)
        if start.is_leaf:  # the gradient is sent to the previous stage
            assert start.grad is not None
            self.recorder.use(start.grad)


def schedule(stages: int, chunks: int, micro_batches: int) -> list[tuple[bool, int, int]]:
    """Return the passes of the first stage in order, as (is forward, chunk, micro-batch).

    The 1F1B schedule (Narayanan et al., 2021), interleaved if chunks > 1; micro_batches must then be a multiple of
    stages. With one stage it is gradient accumulation.
    """
    total = chunks * micro_batches
    warm_up = stages - 1 if chunks == 1 else (stages - 1) * 2 + (chunks - 1) * stages
    warm_up = min(warm_up, total)
    passes = []
    for index in range(total + warm_up):
        if index < total:
            passes.append((True, *_place(index, stages, chunks, forward=True)))
        if index >= warm_up:
            passes.append((False, *_place(index - warm_up, stages, chunks, forward=False)))
    return passes


def _place(index: int, stages: int, chunks: int, *, forward: bool) -> tuple[int, int]:
    """Return chunk and micro-batch of the index-th pass."""
    if chunks == 1:
        return 0, index
    group, within = divmod(index, stages * chunks)
    chunk = within // stages
    return (chunk if forward else chunks - 1 - chunk), group * stages + within % stages
