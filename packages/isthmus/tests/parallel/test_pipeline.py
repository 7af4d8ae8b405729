"""torch.distributed.pipelining on four ranks: every schedule, against one process with the same micro-batches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    SplitPoint,
    pipeline,
)
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

from tests.helpers.parallel import models
from tests.helpers.parallel.rank import Rank, difference, tolerance
from tests.helpers.parallel.ranks import checks_of

MICRO_BATCHES = 8  # as many micro-batches as the stages of four ranks that have two each
BATCH = 16


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def data(step: int, device: torch.device) -> tuple[Tensor, Tensor]:
    return tuple(models.batch(step, kind, rows=BATCH).to(device) for kind in range(2))


def alone(
    device: torch.device, layers: int, *, backwards: bool = False
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Losses of each micro-batch, in order, and the parameters by name.

    Args:
        device: where to.
        layers: of the model.
        backwards: gradients of the last micro-batch come first.
    """
    model = models.mlp(layers=layers).to(device)
    steps, losses = models.optimizer(model), []
    for step in range(models.STEPS):
        steps.zero_grad()
        inputs, targets = (each.chunk(MICRO_BATCHES) for each in data(step, device))
        parts = [loss_of(model(one), target) for one, target in zip(inputs, targets, strict=True)]
        for part in reversed(parts) if backwards else parts:
            (part / MICRO_BATCHES).backward()
        losses += [part.detach() for part in parts]
        steps.step()
    return losses, dict(model.named_parameters())


def compared(rank: Rank, schedule: Callable, places: list[int], *, backwards: bool = False) -> float:
    """Train with stages on this rank at these places of the model, of which there are as many as all ranks have."""
    count = len(places) * rank.size
    expected, whole = alone(rank.device, layers=count, backwards=backwards)
    layers = models.mlp(layers=count)
    stages = [
        PipelineStage(layers[3 * place : 3 * place + 3].to(rank.device), place, count, rank.device)
        for place in places
    ]
    single = issubclass(schedule, PipelineScheduleSingle)
    runner = schedule(stages[0] if single else stages, MICRO_BATCHES, loss_fn=loss_of)
    mine = nn.ModuleList(stage.submod for stage in stages)
    steps = models.optimizer(mine)
    found: list[Tensor] = []
    for step in range(models.STEPS):
        steps.zero_grad()
        inputs, targets = data(step, rank.device)
        losses: list[Tensor] = []
        first = (inputs,) if 0 in places else ()
        last = {"target": targets, "losses": losses} if count - 1 in places else {}
        runner.step(*first, **last)
        steps.step()
        found += losses
    names = [f"{3 * place + layer}" for place in places for layer in range(3)]
    parameters = [p for name in names for p in layers.get_submodule(name).parameters()]
    others = [
        whole[f"{name}.{kind}"] for name in names for kind in ("weight", "bias") if f"{name}.{kind}" in whole
    ]
    return difference(found + parameters, (expected if count - 1 in places else []) + others)


def around(rank: Rank) -> list[int]:
    """Two stages a rank, dealt around."""
    return [rank.number, rank.number + rank.size]


def there_and_back(rank: Rank) -> list[int]:
    """Two stages a rank, in the shape of a V."""
    return [rank.number, 2 * rank.size - 1 - rank.number]


@tolerance(0)
def gpipe(rank: Rank) -> float:
    return compared(rank, ScheduleGPipe, [rank.number])


@tolerance(0)
def one_forward_one_backward(rank: Rank) -> float:
    return compared(rank, Schedule1F1B, [rank.number])


@tolerance(0)
def interleaved(rank: Rank) -> float:
    return compared(rank, ScheduleInterleaved1F1B, around(rank))


@tolerance(0)
def looped_breadth_first(rank: Rank) -> float:
    return compared(rank, ScheduleLoopedBFS, around(rank), backwards=True)


@tolerance(0)
def interleaved_zero_bubble(rank: Rank) -> float:
    return compared(rank, ScheduleInterleavedZeroBubble, around(rank))


@tolerance(0)
def zero_bubble_in_a_v(rank: Rank) -> float:
    return compared(rank, ScheduleZBVZeroBubble, there_and_back(rank))


@tolerance(0)
def two_pipes_in_a_v(rank: Rank) -> float:
    return compared(rank, ScheduleDualPipeV, there_and_back(rank))


@tolerance(0)
def split_by_tracing(rank: Rank) -> float:
    """pipeline() cuts the model by torch.export."""
    layers = rank.size
    expected, _ = alone(rank.device, layers)
    model = models.mlp(layers=layers)
    cuts = {f"{3 * place}": SplitPoint.BEGINNING for place in range(1, layers)}
    pipe = pipeline(model, (torch.zeros(BATCH // MICRO_BATCHES, 16),), split_spec=cuts)
    stage = pipe.build_stage(rank.number, rank.device)
    runner = ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=loss_of)
    steps, found = models.optimizer(stage.submod), []
    for step in range(models.STEPS):
        steps.zero_grad()
        inputs, targets = data(step, rank.device)
        losses: list[Tensor] = []
        last = {"target": targets, "losses": losses} if rank.number == rank.size - 1 else {}
        runner.step(*((inputs,) if rank.number == 0 else ()), **last)
        found += losses
        steps.step()
    return difference(found, expected if last else [])


ranks, test_ranks = checks_of(globals(), 4, sampled=3)
