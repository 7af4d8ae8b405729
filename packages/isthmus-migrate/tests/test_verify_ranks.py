"""``isthmus migrate verify`` of scripts on two ranks, and of the fixtures that train."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent / "fixtures"
RANKS = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(8, 2).cuda(rank), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    x = torch.randn(4, 8, device=f"cuda:{rank}")
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    print(f"rank {rank} step {step} loss {total.item():.6f}")
"""
ONE_PROCESS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda:0")
loader = DataLoader(TensorDataset(torch.randn(32, 8), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.DataParallel(nn.Linear(8, 1)).to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    for x, y in loader:
        loss = criterion(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        print(f"loss {loss.item():.6f}")
        optimizer.step()
"""
# Modules of the fixtures' project that they import.
PROJECT = """
import torch
from torch.utils.data import Dataset


class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(12, 4)


class Images(Dataset):
    def __init__(self, part):
        generator = torch.Generator().manual_seed(len(part))
        self.images = torch.randn(256, 12, generator=generator)
        self.labels = torch.randint(0, 4, (256,), generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]
"""


def verify(folder, *arguments):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ISTHMUS_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-m", "isthmus", "migrate", "verify", "train.py", *arguments],
        capture_output=True, text=True, check=False, cwd=folder, timeout=500,
        env={**kept, "OMP_NUM_THREADS": "1", "ISTHMUS_HOST_DEVICES": "2"},
    )  # fmt: skip


@pytest.mark.full
def test_two_ranks_are_compared_one_by_one(tmp_path):
    (tmp_path / "train.py").write_text(RANKS)
    done = verify(tmp_path, "--nproc", "2", "--steps", "2")
    assert done.returncode == 0, done.stderr + done.stdout
    lines = {line.split("  ")[0]: line.split() for line in done.stdout.splitlines()}
    assert lines["losses"][1] == lines["parameters"][1] == "4", "two of each rank"
    assert lines["losses"][2] == lines["parameters"][2] == "0", "gloo and the chip add in the same order"


@pytest.mark.full
def test_one_process_against_its_conversion_to_ranks(tmp_path):
    (tmp_path / "train.py").write_text(ONE_PROCESS)
    done = verify(tmp_path, "--ddp", "--steps", "5", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout)
    losses, parameters, printed = found["comparisons"]
    assert (losses["subject"], losses["compared"], printed["compared"]) == ("losses", 5, 5)
    assert losses["difference"] < losses["tolerance"] == 2e-5
    assert (parameters["subject"], parameters["same"], parameters["compared"]) == ("parameters", True, 2)
    one, two = found["runs"]
    assert (one["optimizer_steps"], two["optimizer_steps"]) == ([5], [5, 5])
    assert two["losses"][0] != two["losses"][1] != one["losses"][0], "each rank has samples of its own"


@pytest.mark.full
@pytest.mark.parametrize("fixture", ["data-parallel"])
def test_fixtures_that_train(fixture, tmp_path):
    shutil.copy(FIXTURES / fixture / "before.py", tmp_path / "train.py")
    (tmp_path / "project.py").write_text(PROJECT)
    done = verify(tmp_path, "--steps", "3")
    assert done.returncode == 0, done.stderr + done.stdout
