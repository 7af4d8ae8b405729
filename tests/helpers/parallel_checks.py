"""Groups, data-parallel training, and destruction of groups; run_rank.py runs these."""

import copy
import os
import signal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.helpers.rank_checks import TIMEOUT, check, equal, raises


@check
def groups(rank: int, device: torch.device) -> None:
    assert dist.get_backend() == "chip"
    both = dist.new_group([0, 1], timeout=TIMEOUT)
    alone = [dist.new_group([i]) for i in range(2)]
    tensor = torch.ones(2, device=device)
    dist.all_reduce(tensor, group=both)
    dist.all_reduce(tensor, group=alone[rank])
    equal(tensor, [2.0, 2.0])
    mesh = dist.init_device_mesh("chip", (2,), mesh_dim_names=("dp",))
    dist.all_reduce(tensor, group=mesh.get_group("dp"))
    equal(tensor, [4.0, 4.0])
    dist.barrier(device_ids=[rank])
    dist.destroy_process_group(both)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Linear(64, 8))


def train(model: nn.Module, rank: int, device: torch.device) -> list[Tensor]:
    """Losses and final parameters of three steps, on the CPU."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(rank)
    record = []
    for _ in range(3):
        batch = torch.randn(8, 16, generator=generator).to(device)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        record.append(loss.detach().cpu())
    return record + [parameter.detach().cpu() for parameter in model.parameters()]


@check
def data_parallel(rank: int, device: torch.device) -> None:
    """The chip's DDP is bit-equal to the CPU's over gloo."""
    from torch.nn.parallel import DistributedDataParallel

    gloo = dist.new_group([0, 1], backend="gloo")
    on_cpu = train(DistributedDataParallel(network(), process_group=gloo), rank, torch.device("cpu"))
    model = network().to(device)
    for wrapped in (
        DistributedDataParallel(copy.deepcopy(model), device_ids=[rank]),
        DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=1, gradient_as_bucket_view=True),
    ):
        on_chip = train(wrapped, rank, device)
        assert all(torch.equal(a, b) for a, b in zip(on_cpu, on_chip, strict=True))


@check
def data_parallel_with_hook(rank: int, device: torch.device) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(network().to(device), device_ids=[rank])
    model._set_ddp_runtime_logging_sample_rate(1)
    model.register_comm_hook(None, fp16_compress_hook)
    *_, parameter = train(model, rank, device)
    other = parameter.clone()
    dist.broadcast(other, 0)
    assert torch.equal(parameter, other)
    assert model._get_ddp_logging_data()["avg_backward_compute_time"] > 0  # measured by events on the chip


@check
def fully_sharded(rank: int, device: torch.device) -> None:
    """FSDP2 follows DDP to the rounding of another order of additions."""
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    expected = train(DistributedDataParallel(network().to(device), device_ids=[rank]), rank, device)
    model = network().to(device)
    fully_shard(model[0])
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(rank)
    for step in range(3):
        loss = model(torch.randn(8, 16, generator=generator).to(device)).square().mean()
        torch.testing.assert_close(loss.detach().cpu(), expected[step], rtol=1e-5, atol=1e-6)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@check
def killed_peer(rank: int, device: torch.device) -> None:
    """The last check: rank 1 exits in it."""
    tensor = torch.ones(1 << 20, device=device)
    dist.all_reduce(tensor)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(tensor)  # only enqueued
    raises(RuntimeError, "rank 1 (process", lambda: tensor.sum().item())
    raises(RuntimeError, "rank 1 (process", lambda: dist.all_reduce(tensor, async_op=True))


@check
def killed_peer_of_gloo(rank: int, device: torch.device) -> None:
    tensor = torch.ones(1 << 20, device=device)
    dist.all_reduce(tensor)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    raises(RuntimeError, "", lambda: dist.all_reduce(tensor))
    raises(RuntimeError, "", lambda: dist.all_reduce(tensor, async_op=True).wait())


@check
def default_backend(rank: int, device: torch.device) -> None:
    """Default backend of a group; bound to its device, the group can be split."""
    assert dist.get_backend() == "chip"
    mesh = dist.init_device_mesh("chip", (2, 1), mesh_dim_names=("dp", "tp"))
    tensor = torch.ones(2, device=device)
    dist.all_reduce(tensor, group=mesh["dp"].get_group())
    dist.all_reduce(tensor, group=mesh["tp"].get_group())
    dist.all_reduce(tensor, group=dist.new_group([0, 1]))
    alone = dist.new_group([1])  # rank 0 gets the non-member value
    assert (alone == dist.GroupMember.NON_GROUP_MEMBER) == (rank == 0)
    half = dist.split_group(split_ranks=[[0], [1]])
    dist.all_reduce(tensor, group=half)
    equal(tensor, [4.0, 4.0])
    cpu = torch.ones(1)
    dist.all_reduce(cpu, group=half)
    dist.all_reduce(cpu)
    assert cpu.tolist() == [2.0]
    dist.barrier()


@check
def composite_backend(rank: int, device: torch.device) -> None:
    """A different backend for each device type, as in scripts."""
    tensor, cpu = torch.ones(2, device=device), torch.ones(2)
    dist.all_reduce(tensor)
    dist.all_reduce(cpu)
    equal(tensor, [2.0, 2.0])
    assert cpu.tolist() == [2.0, 2.0]
    dist.barrier()


@check
def exit_without_destroying(rank: int, device: torch.device) -> None:
    """Exit like many scripts; the last work holds tensors with Python objects."""
    tensors = [torch.ones(1 << 10, device=device) for _ in range(4)]
    for tensor in tensors:
        dist.all_reduce(tensor)
