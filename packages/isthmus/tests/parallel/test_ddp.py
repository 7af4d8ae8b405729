"""DistributedDataParallel on two ranks, against one process that adds their gradients."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from isthmus.stand_ins import provide
from tests.helpers.parallel import models
from tests.helpers.parallel.rank import Rank, difference, tolerance
from tests.helpers.parallel.ranks import checks_of


def compared(
    rank: Rank, model: nn.Module | None = None, loss: models.Loss = models.square, **options: object
) -> float:
    """Train the model in both ways, with these options of DDP."""
    model = model or models.mlp()
    expected = models.train_alone(copy.deepcopy(model), rank.size, rank.device, loss)
    wrapped = DistributedDataParallel(model.to(rank.device), device_ids=[rank.number], **options)
    found = models.train(wrapped, rank.number, rank.device, loss)
    return difference(found + models.parameters(model), expected[rank.number] + expected[-1])


@tolerance(0)
def plain(rank: Rank) -> float:
    return compared(rank)


@tolerance(0)
def many_buckets_that_gradients_are_views_of(rank: Rank) -> float:
    return compared(rank, bucket_cap_mb=0.001, gradient_as_bucket_view=True)


@tolerance(0)
def static_graph(rank: Rank) -> float:
    return compared(rank, static_graph=True)


@tolerance(0)
def static_graph_with_recompute(rank: Rank) -> float:
    from torch.utils.checkpoint import checkpoint

    def loss(model: nn.Module, inputs: Tensor) -> Tensor:
        return checkpoint(model, inputs, use_reentrant=True).square().mean()

    return compared(rank, loss=lambda m, x: loss(m, x.requires_grad_()), static_graph=True)


class Branches(nn.Module):
    """Even inputs go one way, odd ones the other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.ways = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, inputs: Tensor) -> Tensor:
        way = int(inputs[0, 0] > 0)
        return self.ways[way](inputs)


@tolerance(0)
def parameters_without_gradients(rank: Rank) -> float:
    return compared(rank, Branches(), find_unused_parameters=True)


@tolerance(0)
def accumulation_in_no_sync(rank: Rank) -> float:
    """Two micro-batches for each step, the gradients of which are reduced once."""
    expected = models.train_alone(models.mlp(), rank.size, rank.device, micro_batches=2)
    model = DistributedDataParallel(models.mlp().to(rank.device))
    steps, losses = models.optimizer(model), []
    for step in range(models.STEPS):
        first, second = (models.batch(2 * step + micro, rank.number).to(rank.device) for micro in range(2))
        model.zero_grad()
        with model.no_sync():
            losses.append(models.square(model, first))
            losses[-1].backward()
        losses.append(models.square(model, second))
        losses[-1].backward()
        steps.step()
    return difference(losses + models.parameters(model), expected[rank.number] + expected[-1])


@tolerance(0)
def hook_that_compresses(rank: Rank) -> float:
    """Gradients are halved, added and sent in bfloat16."""
    expected = models.train_alone(models.mlp(), rank.size, rank.device, reduced=torch.bfloat16)
    model = DistributedDataParallel(models.mlp().to(rank.device))
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    found = models.train(model, rank.number, rank.device)
    return difference(found + models.parameters(model), expected[rank.number] + expected[-1])


@tolerance(0)
def hook_with_state_keeps_ranks_equal(rank: Rank) -> float:
    """PowerSGD approximates gradients; the parameters of the ranks stay the same, and the loss falls."""
    model = DistributedDataParallel(models.mlp().to(rank.device))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    steps, inputs = models.optimizer(model), models.batch(0, rank.number).to(rank.device)
    losses = []
    for _ in range(6):
        losses.append(models.square(model, inputs))
        model.zero_grad()
        losses[-1].backward()
        steps.step()
    assert losses[-1] < losses[0], losses
    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    others = [torch.empty_like(mine) for _ in range(rank.size)]
    dist.all_gather(others, mine)
    return difference(others, [mine] * rank.size)


class Normed(nn.Module):
    """Convolution and batch normalisation of images [batch, 2, 2, 4] that are made of rows of 16."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(2, 8, 1), nn.BatchNorm2d(8), nn.GELU(), nn.Conv2d(8, 2, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs.reshape(-1, 2, 2, 4))


@tolerance(1e-5)
def statistics_over_all_ranks(rank: Rank) -> float:
    """SyncBatchNorm against BatchNorm of the whole batch: parameters, and running statistics."""
    alone = Normed().to(rank.device)
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(Normed()).to(rank.device)
    model = DistributedDataParallel(synced, device_ids=[rank.number])
    for each, parts in ((alone, range(rank.size)), (model, [rank.number])):
        steps = torch.optim.SGD(each.parameters(), lr=0.1)
        for step in range(models.STEPS):
            inputs = torch.cat([models.batch(step, part) for part in parts])
            steps.zero_grad()
            models.square(each, inputs.to(rank.device)).backward()
            steps.step()
    found, expected = synced.state_dict(), alone.state_dict()
    return difference(found.values(), expected.values())


@tolerance(0)
def buffers_of_the_first_rank(rank: Rank) -> float:
    """Running statistics of rank 0 reach the others at the next forward pass."""
    model = DistributedDataParallel(Normed().to(rank.device), device_ids=[rank.number])
    for step in range(2):
        model(models.batch(step, rank.number).to(rank.device))
    alone = Normed().to(rank.device)
    alone(models.batch(0, 0).to(rank.device))
    alone(models.batch(1, rank.number).to(rank.device))
    return difference(model.module.buffers(), alone.buffers())


@tolerance(0)
def uneven_inputs(rank: Rank) -> float:
    """Rank 1 has one batch, rank 0 three: gradients of a single rank are no longer halved."""
    model = DistributedDataParallel(models.mlp().to(rank.device), device_ids=[rank.number])
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model], divide_by_initial_world_size=False):
        for step in range(3 if rank.number == 0 else 1):
            steps.zero_grad()
            models.square(model, models.batch(step, rank.number).to(rank.device)).backward()
            steps.step()
    alone = models.mlp().to(rank.device)
    steps = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step, shards in enumerate((2, 1, 1)):
        total: list[Tensor | None] = [None for _ in alone.parameters()]
        for shard in range(shards):
            alone.zero_grad()
            models.square(alone, models.batch(step, shard).to(rank.device)).backward()
            models.add_gradients(total, alone.parameters(), shards, None)
        for parameter, gradient in zip(alone.parameters(), total, strict=True):
            parameter.grad = gradient
        steps.step()
    return difference(models.parameters(model), models.parameters(alone))


@tolerance(0)
def autocast(rank: Rank) -> float:
    def loss(model: nn.Module, inputs: Tensor) -> Tensor:
        with torch.autocast("chip", dtype=torch.bfloat16):
            return model(inputs).float().square().mean()

    return compared(rank, loss=loss)


@tolerance(0)
def mixed_precision(rank: Rank) -> float:
    """Forward and backward pass in bfloat16, gradients added in float32."""
    from torch.nn.parallel.distributed import _MixedPrecision

    expected = models.train_alone(models.mlp(), rank.size, rank.device, models.in_bfloat16)
    policy = _MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = DistributedDataParallel(
        models.mlp().to(rank.device), device_ids=[rank.number], mixed_precision=policy
    )
    # PyTorch's reducer fills the bucket of the first pass in another dtype than the one that it sends.
    models.in_float32(model, models.batch(0).to(rank.device)).backward()
    found = models.train(model, rank.number, rank.device, models.in_float32)
    return difference(found + models.parameters(model), expected[rank.number] + expected[-1])


@tolerance(0)
def sharded_optimizer(rank: Rank) -> float:
    """ZeroRedundancyOptimizer: each rank keeps the state of half of the parameters."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    expected = models.train_alone(models.mlp(), rank.size, rank.device)
    model = DistributedDataParallel(models.mlp().to(rank.device), device_ids=[rank.number])
    steps = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
    for step in range(models.STEPS):
        steps.zero_grad()
        models.square(model, models.batch(step, rank.number).to(rank.device)).backward()
        steps.step()
    assert len(steps.optim.state) < len(list(model.parameters()))
    return difference(models.parameters(model), expected[-1])


# ---- apex.parallel of --provide apex ---------------------------------------------------------------------------
def apex_parallel() -> Any:
    if provide.folders("apex")[0] not in sys.path:
        sys.path[:0] = provide.folders("apex")
    import apex.parallel

    return apex.parallel


def compared_to_apex(rank: Rank, **options: object) -> float:
    expected = models.train_alone(models.mlp(), rank.size, rank.device)
    start = models.mlp()
    if rank.number:
        with torch.no_grad():
            for param in start.parameters():  # the broadcast from rank 0 replaces them
                param.add_(1)
    wrapped = apex_parallel().DistributedDataParallel(start.to(rank.device), **options)
    found = models.train(wrapped, rank.number, rank.device)
    return difference(found + models.parameters(start), expected[rank.number] + expected[-1])


@tolerance(0)
def apex_in_one_bucket(rank: Rank) -> float:
    return compared_to_apex(rank)


@tolerance(1e-5)
def apex_in_many_buckets_and_divided_before(rank: Rank) -> float:
    return compared_to_apex(rank, message_size=100, gradient_predivide_factor=2.0, allreduce_always_fp32=True)


@tolerance(1e-6)
def apex_reduces_when_asked(rank: Rank) -> float:
    """Two backward passes, of which the first is local; and a Reducer of the local gradients."""
    apex = apex_parallel()
    model, alone, first = (models.mlp().to(rank.device) for _ in range(3))
    wrapped = apex.DistributedDataParallel(model)
    wrapped.disable_allreduce()
    models.square(wrapped, models.batch(0, rank.number).to(rank.device)).backward()
    local = [param.grad.clone() for param in model.parameters()]
    wrapped.enable_allreduce()
    models.square(wrapped, models.batch(1, rank.number).to(rank.device)).backward()
    for each, steps in ((alone, (0, 1)), (first, (0,))):
        for step in steps:
            for part in range(rank.size):
                (models.square(each, models.batch(step, part).to(rank.device)) / rank.size).backward()
    apex.Reducer([local]).reduce()
    found = [param.grad for param in model.parameters()] + local
    return difference(found, [param.grad for each in (alone, first) for param in each.parameters()])


@tolerance(1e-5)
def apex_statistics_over_all_ranks(rank: Rank) -> float:
    """SyncBatchNorm of apex with channels second and last, against BatchNorm of the whole batch."""
    apex, worst = apex_parallel(), 0.0
    for channel_last in (False, True):
        alone = Normed().to(rank.device)
        synced = apex.convert_syncbn_model(Normed(), channel_last=channel_last).to(rank.device)
        assert isinstance(synced.layers[1], apex.SyncBatchNorm)
        if channel_last:
            synced.layers[1] = Moved(synced.layers[1])
        model = apex.DistributedDataParallel(synced)
        for each, parts in ((alone, range(rank.size)), (model, [rank.number])):
            steps = torch.optim.SGD(each.parameters(), lr=0.1)
            for step in range(models.STEPS):
                inputs = torch.cat([models.batch(step, part) for part in parts])
                steps.zero_grad()
                models.square(each, inputs.to(rank.device)).backward()
                steps.step()
        worst = max(worst, difference(synced.state_dict().values(), alone.state_dict().values()))
    return worst


class Moved(nn.Module):
    """A layer with the channels last, for an input with the channels second."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs.movedim(1, -1)).movedim(-1, 1)


@tolerance(0)
def apex_groups_of_statistics(rank: Rank) -> float:
    """A group of one rank normalizes its own batch."""
    apex = apex_parallel()
    assert apex.create_syncbn_process_group(0) is None
    group = apex.create_syncbn_process_group(1)
    layer = apex.SyncBatchNorm(16, process_group=group, fuse_relu=True).to(rank.device)
    alone = nn.BatchNorm1d(16).to(rank.device)
    inputs = models.batch(0, rank.number).to(rank.device)
    return difference([layer(inputs, inputs)], [(alone(inputs) + inputs).relu()])


ranks, test_ranks = checks_of(globals(), 2)
