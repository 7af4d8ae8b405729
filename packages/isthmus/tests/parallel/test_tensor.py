"""DTensor on four ranks: placements, random numbers, tensor and sequence parallelism, and both with FSDP2."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import randn as distributed_randn
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional

from tests.helpers.parallel import models
from tests.helpers.parallel.rank import Rank, difference, tolerance
from tests.helpers.parallel.ranks import Ranks, checks_of

CLASSES = 24


class Block(nn.Module):
    """A block of a transformer, [batch, sequence, width] to the same."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.second_norm = nn.LayerNorm(width)
        self.mlp = models.mlp(width, layers=1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm(inputs)
        q, k, v = (each(hidden).unflatten(-1, (-1, 4)).transpose(1, 2) for each in self.qkv)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        inputs = inputs + self.out(mixed.transpose(1, 2).flatten(2))
        return inputs + self.mlp(self.second_norm(inputs))


class Classifier(nn.Module):
    """Tokens [batch, sequence] to the logits of CLASSES."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(CLASSES, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, CLASSES, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


def tokens(step: int, shard: int = 0) -> Tensor:
    """[2, 9] of one shard in one step; the last token is only a target."""
    generator = torch.Generator().manual_seed(100 * step + shard)
    return torch.randint(0, CLASSES, (2, 9), generator=generator)


def loss_of(model: nn.Module, data: Tensor) -> Tensor:
    logits = model(data[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), data[:, 1:].flatten())


def train(model: nn.Module, device: torch.device, shards: range, loss: Callable = loss_of) -> list[Tensor]:
    """Losses over all shards of three steps, and the parameters."""
    # Stepped one by one, since only some parameters are DTensors. Not Adam, whose steps amplify the rounding of
    # gradients near 0.
    steps = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    losses = []
    for step in range(models.STEPS):
        data = torch.cat([tokens(step, shard) for shard in shards]).to(device)
        steps.zero_grad()
        value = loss(model, data)
        value.backward()
        steps.step()
        losses.append(value.detach())
    return losses + whole(model)


def whole(model: nn.Module) -> list[Tensor]:
    values = [parameter.detach() for parameter in model.parameters()]
    return [value.full_tensor() if isinstance(value, DTensor) else value for value in values]


COLUMNS, ROWS = ColwiseParallel, RowwiseParallel
TENSOR_PLAN = {
    "qkv.0": COLUMNS(),
    "qkv.1": COLUMNS(),
    "qkv.2": COLUMNS(),
    "out": ROWS(),
    "mlp.0": COLUMNS(),
    "mlp.2": ROWS(),
}


def tensor_parallel(model: Classifier, mesh: DeviceMesh) -> Classifier:
    for block in model.blocks:
        parallelize_module(block, mesh, TENSOR_PLAN)
    plan = {"embedding": ROWS(input_layouts=Replicate()), "head": COLUMNS(output_layouts=Replicate())}
    return parallelize_module(model, mesh, plan)


def sequence_parallel(model: Classifier, mesh: DeviceMesh, *, whole_logits: bool) -> Classifier:
    """Check parallel layers between which each rank has a part of the sequence."""
    whole_input = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
    for block in model.blocks:
        columns = {f"qkv.{i}": COLUMNS(input_layouts=Shard(1)) for i in range(3)}
        plan = {
            **columns,
            "norm": SequenceParallel(),
            "second_norm": SequenceParallel(),
            "out": ROWS(output_layouts=Shard(1)),
            "mlp": whole_input,
            "mlp.0": COLUMNS(),
            "mlp.2": ROWS(output_layouts=Shard(1)),
        }
        parallelize_module(block, mesh, plan)
    logits = COLUMNS(
        input_layouts=Shard(1),
        output_layouts=Replicate() if whole_logits else Shard(-1),
        use_local_output=whole_logits,
    )
    plan = {
        "embedding": ROWS(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": logits,
    }
    return parallelize_module(model, mesh, plan)


@tolerance(0)
def redistribution(rank: Rank) -> float:
    """Redistribute between all placements, forward and backward, in one and two dimensions of the mesh."""
    placements: list[Placement] = [Shard(0), Shard(1), Replicate(), Partial()]
    full = torch.arange(70.0).reshape(10, 7)  # divides among neither 2 nor 4 ranks
    worst = 0.0
    for shape in ((4,), (2, 2)):
        mesh = init_device_mesh("chip", shape)
        sets = list(itertools.product(placements, repeat=len(shape)))
        for before, after in itertools.product(sets, sets):
            if any(
                isinstance(a, Partial) and not isinstance(b, Partial)
                for a, b in zip(after, before, strict=True)
            ):
                continue  # a partial placement converts only from itself
            worst = max(worst, _redistributed(full, mesh, before, after, rank))
    return worst


def _redistributed(
    full: Tensor, mesh: DeviceMesh, before: tuple[Placement, ...], after: tuple[Placement, ...], rank: Rank
) -> float:
    sources = [Replicate() if isinstance(each, Partial) else each for each in before]
    local = distribute_tensor(full.to(rank.device), mesh, sources).to_local()
    times = 1
    for dim, each in enumerate(before):
        times *= mesh.size(dim) if isinstance(each, Partial) else 1
    tensor = DTensor.from_local(local, mesh, before, shape=full.shape, stride=full.stride())
    found = tensor.redistribute(mesh, after).full_tensor()
    return difference([found], [full * times])


@tolerance(0)
def gradients_of_redistribution(rank: Rank) -> float:
    mesh = init_device_mesh("chip", (rank.size,))
    weights = models.batch(1, rows=8).to(rank.device)
    worst = 0.0
    for before, after in itertools.permutations((Shard(0), Shard(1), Replicate()), 2):
        leaf = distribute_tensor(models.batch(0, rows=8).to(rank.device), mesh, [before]).requires_grad_()
        product = leaf.redistribute(mesh, [after]) * distribute_tensor(weights, mesh, [after])
        product.sum().full_tensor().backward()
        worst = max(worst, difference([leaf.grad.full_tensor()], [weights]))
    return worst


@tolerance(0)
def random_numbers(rank: Rank) -> float:
    """Shards are different parts of one stream; replicas are equal; dropout of shards too."""
    mesh = init_device_mesh("chip", (rank.size,))
    torch.manual_seed(3)
    shards = distributed_randn(8, 16, device_mesh=mesh, placements=[Shard(0)]).full_tensor()
    copies = distributed_randn(8, 16, device_mesh=mesh, placements=[Replicate()]).to_local()
    parts = shards.chunk(rank.size)
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(parts, 2))
    ones = distribute_tensor(torch.ones(8, 64, device=rank.device), mesh, [Shard(0)])
    kept = functional.dropout(ones, 0.5).full_tensor().chunk(rank.size)
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(kept, 2))
    others = [torch.empty_like(copies) for _ in range(rank.size)]
    dist.all_gather(others, copies)
    return difference(others, [copies] * rank.size)


@tolerance(0)
def attention_of_shards(rank: Rank) -> float:
    """Each rank has one head, or one row of the batch, forward and backward, with and without a mask."""
    return attention_difference(rank)


@tolerance(2e-6)
def fused_attention_of_shards(rank: Rank) -> float:
    torch.chip.set_fused_attention(True)
    try:
        return attention_difference(rank)
    finally:
        torch.chip.set_fused_attention(False)


def attention_difference(rank: Rank) -> float:
    mesh = init_device_mesh("chip", (rank.size,))
    generator = torch.Generator().manual_seed(0)
    shape = (rank.size, rank.size, 8, 8)  # batch, heads, sequence, features
    whole = [torch.randn(shape, generator=generator).to(rank.device) for _ in range(4)]
    mask = torch.randn(8, 8, generator=generator).to(rank.device)
    worst = 0.0
    for place, of_mask in itertools.product((Shard(0), Shard(1)), (None, mask)):
        parts = [distribute_tensor(each, mesh, [place]) for each in whole]
        spread = None if of_mask is None else distribute_tensor(of_mask, mesh, [Replicate()])
        found, expected = _attended(parts, spread), _attended(whole, of_mask)
        worst = max(worst, difference((each.full_tensor() for each in found), expected))
    return worst


def _attended(tensors: list[Tensor], mask: Tensor | None) -> list[Tensor]:
    """Output and the gradients of query, key and value."""
    *leaves, gradient = (each.detach().requires_grad_() for each in tensors)
    output = functional.scaled_dot_product_attention(*leaves, attn_mask=mask)
    output.backward(gradient.detach())
    return [output, *(leaf.grad for leaf in leaves)]


@tolerance(2e-6)
def tensor_parallelism(rank: Rank) -> float:
    mesh = init_device_mesh("chip", (rank.size,))
    model = tensor_parallel(Classifier().to(rank.device), mesh)
    one = range(1)
    return difference(train(model, rank.device, one), train(Classifier().to(rank.device), rank.device, one))


@tolerance(2e-6)
def sequence_parallelism(rank: Rank) -> float:
    mesh = init_device_mesh("chip", (rank.size,))
    model = sequence_parallel(Classifier().to(rank.device), mesh, whole_logits=True)
    one = range(1)
    return difference(train(model, rank.device, one), train(Classifier().to(rank.device), rank.device, one))


@tolerance(2e-6)
def loss_of_sharded_logits(rank: Rank) -> float:
    """loss_parallel: no rank has the logits of all classes."""
    mesh = init_device_mesh("chip", (rank.size,))
    model = sequence_parallel(Classifier().to(rank.device), mesh, whole_logits=False)

    def loss(model: nn.Module, data: Tensor) -> Tensor:
        logits = model(data[:, :-1])
        assert logits.to_local().shape[-1] == CLASSES // rank.size
        return functional.cross_entropy(logits.flatten(0, 1), data[:, 1:].flatten())

    one = range(1)
    with loss_parallel():
        found = train(model, rank.device, one, loss)
    found = [value.full_tensor() if isinstance(value, DTensor) else value for value in found]
    return difference(found, train(Classifier().to(rank.device), rank.device, one))


@tolerance(2e-6)
def tensor_parallel_and_sharded(rank: Rank) -> float:
    """Two by two: tensor parallel inside, FSDP2 outside."""
    mesh = init_device_mesh("chip", (2, 2), mesh_dim_names=("dp", "tp"))
    model = tensor_parallel(Classifier().to(rank.device), mesh["tp"])
    for block in model.blocks:
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    place = mesh.get_local_rank("dp")
    found = train(model, rank.device, range(place, place + 1))
    expected = train(Classifier().to(rank.device), rank.device, range(2))
    losses = torch.stack(found[: models.STEPS])
    dist.all_reduce(losses, dist.ReduceOp.AVG, group=mesh.get_group("dp"))
    return difference([*losses, *found[models.STEPS :]], expected)


@tolerance(2e-6)
def sharded_and_replicated(rank: Rank) -> float:
    """FSDP2 over a mesh of two dimensions: replicas of two shards each."""
    mesh = init_device_mesh("chip", (2, 2), mesh_dim_names=("replicas", "shards"))
    model = Classifier().to(rank.device)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    found = train(model, rank.device, range(rank.number, rank.number + 1))
    expected = train(Classifier().to(rank.device), rank.device, range(rank.size))
    return difference(found[models.STEPS :], expected[models.STEPS :])


ranks, test_ranks = checks_of(globals(), 4, sampled=5)


def test_random_numbers_of_philox(tmp_path: Path) -> None:
    """With its offsets, shards draw from one sequence, as PyTorch has it."""
    Ranks("tensor", 2, tmp_path, "random_numbers", ISTHMUS_HOST_RNG="philox").assert_passed("random_numbers")
