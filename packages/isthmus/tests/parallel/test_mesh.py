"""DeviceMesh on four ranks, and groups of it under other parallelism."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from tests.helpers.parallel import models
from tests.helpers.parallel.rank import Rank, difference, tolerance
from tests.helpers.parallel.ranks import checks_of


def members(rank: Rank, group: dist.ProcessGroup) -> list[int]:
    """Return the ranks of a group, in order, by an all-gather."""
    mine = torch.tensor([rank.number], device=rank.device)
    found = torch.empty(dist.get_world_size(group), dtype=torch.int64, device=rank.device)
    dist.all_gather_into_tensor(found, mine, group=group)
    return found.tolist()


@tolerance(0)
def rows_and_columns(rank: Rank) -> float:
    mesh = init_device_mesh("chip", (2, 2), mesh_dim_names=("dp", "tp"))
    row, column = divmod(rank.number, 2)
    assert mesh.shape == (2, 2)
    assert mesh.get_coordinate() == (row, column) == (mesh.get_local_rank("dp"), mesh.get_local_rank("tp"))
    assert members(rank, mesh.get_group("tp")) == [2 * row, 2 * row + 1]
    assert members(rank, mesh["dp"].get_group()) == [column, column + 2]
    assert all(dist.get_backend(group) == "chip" for group in mesh.get_all_groups())
    assert torch.chip.current_device() == rank.number
    return 0


@tolerance(0)
def slices_of_three_dimensions(rank: Rank) -> float:
    mesh = init_device_mesh("chip", (2, 1, 2), mesh_dim_names=("pp", "dp", "tp"))
    inner = mesh["dp", "tp"]
    assert inner.shape == (1, 2)
    assert members(rank, inner["tp"].get_group()) == [rank.number // 2 * 2, rank.number // 2 * 2 + 1]
    assert members(rank, mesh["dp"].get_group()) == [rank.number]
    assert inner["tp"] == mesh["tp"]
    return 0


@tolerance(0)
def flattened(rank: Rank) -> float:
    mesh = init_device_mesh("chip", (2, 2), mesh_dim_names=("dp", "cp"))
    flat = mesh["dp", "cp"]._flatten("dp_cp")
    assert members(rank, flat.get_group()) == [0, 1, 2, 3]
    assert mesh["dp_cp"].size() == 4
    return 0


@tolerance(0)
def from_groups(rank: Rank) -> float:
    """A mesh of groups that exist."""
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    row, column = divmod(rank.number, 2)
    groups = [columns[column], rows[row]]
    mesh = DeviceMesh.from_group(groups, "chip", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
    assert members(rank, mesh["tp"].get_group()) == [2 * row, 2 * row + 1]
    one = DeviceMesh.from_group(dist.group.WORLD, "chip")
    assert members(rank, one.get_group()) == [0, 1, 2, 3]
    return 0


@tolerance(0)
def of_some_ranks(rank: Rank) -> float:
    """A mesh that two of the four ranks are in."""
    mesh = DeviceMesh("chip", [1, 3], mesh_dim_names=("some",))
    place = {1: 0, 3: 1}.get(rank.number)
    assert mesh.get_coordinate() == (None if place is None else (place,))
    if place is not None:
        assert members(rank, mesh.get_group()) == [1, 3]
    dist.barrier()
    return 0


@tolerance(0)
def data_parallel_over_one_dimension(rank: Rank) -> float:
    """Two groups of two train apart: of each, the gradients are those of its own two ranks."""
    mesh = init_device_mesh("chip", (2, 2), mesh_dim_names=("apart", "dp"))
    shard = mesh.get_local_rank("dp")
    expected = models.train_alone(models.mlp(), 2, rank.device)
    model = DistributedDataParallel(models.mlp().to(rank.device), device_mesh=mesh["dp"])
    found = models.train(model, shard, rank.device)
    return difference(found + models.parameters(model), expected[shard] + expected[-1])


@tolerance(0)
def data_parallel_in_some_ranks(rank: Rank) -> float:
    """DDP of a group that two of the four ranks are in, while the others do something else."""
    group = dist.new_group([0, 3])
    if rank.number not in (0, 3):
        dist.barrier()
        return 0
    shard = dist.get_rank(group)
    expected = models.train_alone(models.mlp(), 2, rank.device)
    model = DistributedDataParallel(models.mlp().to(rank.device), process_group=group)
    found = models.train(model, shard, rank.device)
    dist.barrier()
    return difference(found + models.parameters(model), expected[shard] + expected[-1])


ranks, test_ranks = checks_of(globals(), 4)
