"""The chip's process group under PyTorch's names. The collectives have tests of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.privateuse1.inventory import covers


def _work(rank: int, store: str) -> None:
    torch.chip.set_device(rank)
    dist.init_process_group(init_method=f"file://{store}", rank=rank, world_size=2)
    group = dist.distributed_c10d._get_default_group()
    name = dist.get_default_backend_for_device("chip")
    assert name in dist.Backend.backend_list
    assert name in dist.get_backend_config(group)
    assert (dist.get_rank(), dist.get_world_size()) == (rank, 2)
    x = torch.full((3,), float(rank + 1), device="chip")
    future = dist.all_reduce(x, async_op=True).get_future()
    future.wait()
    assert future.done()
    assert x.tolist() == [3, 3, 3]
    dist.destroy_process_group()


@pytest.mark.full
@covers("distributed", "test_occl_backend_registration_and_default_group", "test_occl_allreduce")
def test_default_group_reduces(tmp_path: Path):
    mp.spawn(_work, args=(str(tmp_path / "store"),), nprocs=2)
