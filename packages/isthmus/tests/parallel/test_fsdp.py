"""FSDP2 (and FSDP1) on two ranks, against one process that adds their gradients."""

from __future__ import annotations

import copy
import itertools

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor

from isthmus import ops
from tests.helpers.parallel import models
from tests.helpers.parallel.rank import Rank, difference, tolerance
from tests.helpers.parallel.ranks import checks_of


def sharded(rank: Rank, device: torch.device | None = None, **options: object) -> nn.Sequential:
    """The model with each of its linear layers as a unit."""
    model = models.mlp().to(device or rank.device)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    fully_shard(model, **options)
    return model


def whole(model: nn.Module) -> list[Tensor]:
    """Parameters, gathered from all ranks."""
    return [parameter.full_tensor().cpu() for parameter in model.parameters()]


def compared(rank: Rank, **options: object) -> float:
    expected = models.train_alone(models.mlp(), rank.size, rank.device)
    model = sharded(rank, **options)
    found = models.train(model, rank.number, rank.device)
    return difference(found + whole(model), expected[rank.number] + expected[-1])


@tolerance(0)
def each_layer_a_unit(rank: Rank) -> float:
    model = sharded(rank)
    parameter = next(model.parameters())
    assert isinstance(parameter, DTensor)
    assert parameter.to_local().shape[0] == parameter.shape[0] // rank.size
    return compared(rank)


@tolerance(0)
def kept_whole_after_forward(rank: Rank) -> float:
    return compared(rank, reshard_after_forward=False)


@tolerance(0)
def resharded_to_smaller_groups(rank: Rank) -> float:
    return compared(rank, reshard_after_forward=1)


@tolerance(0)
def uneven_shards(rank: Rank) -> float:
    """A bias of 17 elements: 9 and 8."""

    def model() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(16, 17), nn.GELU(), nn.Linear(17, 3))

    expected = models.train_alone(model(), rank.size, rank.device)
    sharded_model = fully_shard(model().to(rank.device))
    found = models.train(sharded_model, rank.number, rank.device)
    return difference(found + whole(sharded_model), expected[rank.number] + expected[-1])


@tolerance(0)
def offloaded_to_the_cpu(rank: Rank) -> float:
    """Parameters, gradients and the optimizer's state stay on the CPU, pinned."""
    expected = models.train_alone(models.mlp(), rank.size, rank.device)
    model = sharded(rank, torch.device("cpu"), offload_policy=CPUOffloadPolicy())
    found = models.train(model, rank.number, rank.device)
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    return difference(
        found + [p.to_local() for p in model.parameters()],
        expected[rank.number] + [part.chunk(rank.size)[rank.number] for part in expected[-1]],
    )


@tolerance(0)
def mixed_precision(rank: Rank) -> float:
    """Passes in bfloat16, gradients added in float32."""

    expected = models.train_alone(models.mlp(), rank.size, rank.device, models.in_bfloat16)
    model = sharded(rank, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    found = models.train(model, rank.number, rank.device, models.in_float32)
    return difference(found + whole(model), expected[rank.number] + expected[-1])


@tolerance(0)
def accumulation(rank: Rank) -> float:
    """Two micro-batches a step, the gradients of which are reduced once."""
    expected = models.train_alone(models.mlp(), rank.size, rank.device, micro_batches=2)
    model = sharded(rank)
    assert isinstance(model, FSDPModule)
    steps, losses = models.optimizer(model), []
    for step, micro in itertools.product(range(models.STEPS), range(2)):
        model.set_requires_gradient_sync(micro == 1)
        losses.append(models.square(model, models.batch(2 * step + micro, rank.number).to(rank.device)))
        losses[-1].backward()
        if micro == 1:
            steps.step()
            steps.zero_grad()
    return difference(losses + whole(model), expected[rank.number] + expected[-1])


@tolerance(16 * 2.0**-23)  # a bias is three of Adam's quotients, which differ by some roundings each
def fused_optimizer(rank: Rank) -> float:
    """isthmus.ops.AdamW over shards, clipping by the norm of all, beside PyTorch's."""
    found = []
    for is_fused in (True, False):
        model = sharded(rank)
        steps = ops.AdamW(model.parameters(), lr=1e-2, max_norm=0.01) if is_fused else models.optimizer(model)
        for step in range(models.STEPS):
            models.square(model, models.batch(step, rank.number).to(rank.device)).backward()
            if not is_fused:
                nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            steps.step()
            steps.zero_grad()
        found.append(whole(model))
    return difference(*found)


@tolerance(1e-6)
def clipped_gradients(rank: Rank) -> float:
    """The norm over all shards, and the gradients by it."""
    alone = models.mlp().to(rank.device)
    total: list[Tensor | None] = [None for _ in alone.parameters()]
    for shard in range(rank.size):
        alone.zero_grad()
        models.square(alone, models.batch(0, shard).to(rank.device)).backward()
        models.add_gradients(total, alone.parameters(), rank.size, None)
    for parameter, gradient in zip(alone.parameters(), total, strict=True):
        parameter.grad = gradient
    expected = nn.utils.clip_grad_norm_(alone.parameters(), 0.01)
    model = sharded(rank)
    models.square(model, models.batch(0, rank.number).to(rank.device)).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    assert isinstance(norm, DTensor)
    gradients = [parameter.grad.full_tensor() for parameter in model.parameters()]
    return difference([norm.full_tensor(), *gradients], [expected, *(p.grad for p in alone.parameters())])


@tolerance(0)
def whole_state_dict(rank: Rank) -> float:
    """State of a sharded model and its optimizer, gathered, goes into one process and back into shards."""
    model = sharded(rank)
    models.train(model, rank.number, rank.device)
    steps = models.optimizer(model)
    models.square(model, models.batch(5, rank.number).to(rank.device)).backward()
    steps.step()
    options = StateDictOptions(full_state_dict=True)
    state = get_model_state_dict(model, options=options)
    alone = models.mlp().to(rank.device)
    alone.load_state_dict(state)
    assert difference(alone.parameters(), whole(model)) == 0
    # A copy: the counts of steps are the optimizer's own tensors, and the other optimizer would take them over.
    steps_state = copy.deepcopy(get_optimizer_state_dict(model, steps, options=options))
    other = sharded(rank)
    others_steps = models.optimizer(other)
    set_model_state_dict(other, state, options=options)
    set_optimizer_state_dict(other, others_steps, steps_state, options=options)
    for each, each_steps in ((model, steps), (other, others_steps)):
        each_steps.zero_grad()
        models.square(each, models.batch(6, rank.number).to(rank.device)).backward()
        each_steps.step()
    return difference(whole(other), whole(model))


@tolerance(0)
def made_without_memory(rank: Rank) -> float:
    """Made on the meta device, sharded, then given memory and values."""
    with torch.device("meta"):
        model = models.mlp()
    fully_shard(model)
    model.to_empty(device=rank.device)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, models.mlp().state_dict() if rank.number == 0 else {}, options=options)
    return difference(whole(model), models.parameters(models.mlp()))


@tolerance(0)
def first_generation(rank: Rank) -> float:
    """FullyShardedDataParallel."""
    expected = models.train_alone(models.mlp(), rank.size, rank.device)
    model = FullyShardedDataParallel(
        models.mlp(),
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        device_id=rank.device,
        use_orig_params=True,
    )
    found = models.train(model, rank.number, rank.device)
    with FullyShardedDataParallel.summon_full_params(model):
        return difference(found + models.parameters(model), expected[rank.number] + expected[-1])


ranks, test_ranks = checks_of(globals(), 2)
