"""Compiled models and collectives on two ranks: the losses of torch.compile on CPU with gloo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RANK = """
import sys
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

rank = int(sys.argv[1])
torch.set_num_threads(1)
torch.chip.set_device(rank)
dist.init_process_group("cpu:gloo,chip:chip", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)

def train(device):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    x = torch.randn(8, 16).to(device)
    for _ in range(2):
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item(), model.module[0].weight.tolist()

@torch.compile(fullgraph=True)
def reduced(x):
    return functional.all_reduce(x * 2, "sum", [0, 1]) + 1

assert train(f"chip:{rank}") == train("cpu")
assert reduced(torch.full((3,), 1.0 + rank, device=f"chip:{rank}")).tolist() == [7, 7, 7]
dist.destroy_process_group()
"""


@pytest.mark.full
def test_two_ranks(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", RANK, str(rank), str(tmp_path / "store")],
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        for rank in range(2)
    ]
    try:
        errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors)[-3000:]
