"""``isthmus migrate verify``: saved files, answers of devices, modules, and what is left out."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from isthmus_migrate.verify import answers, file_comparison, scratch
from isthmus_migrate.verify.limits import Reference
from isthmus_migrate.verify.record import Record
from isthmus_migrate.verify.run import Run, Side

PACKAGE = """
import argparse
import torch
from .model import build

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--output")
asked = parser.parse_args()
model = build().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=asked.rate)
for step in range(3):
    loss = model(torch.randn(3, 4, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{__name__} step {step} loss {loss.item()}")
torch.save(model.state_dict(), asked.output)
"""
DEVICES = """
import torch
from torch import nn

device = torch.device("cuda:0")
layer = nn.Linear(4, 2).to(device)
print(torch.cuda.get_device_capability())
print("device", device, "index", layer.weight.get_device())
print(layer.weight.get_device())
print("name", torch.cuda.get_device_name(0))
print(f"{torch.cuda.device_count()} GPU, current {torch.cuda.current_device()}")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
loss = layer(torch.ones(2, 4, device="cuda")).sum()
loss.backward()
optimizer.step()
print("loss", loss.item())
"""
SYNC = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(rank)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
model = nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda(rank)
model = DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(4 + rank, 3, 6, 6).cuda(rank)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.5f}")
if rank == 0:
    torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
"""


def run(root, output=(), shim=False, **facts):
    root.mkdir(exist_ok=True)
    side = Side("a side", root / "train.py", (), root, root, shim)
    written = frozenset(path.name for path in root.iterdir() if path.suffix != ".py")
    return Run(side, 0, 1.0, [list(output)], [], [Record(**facts)], written)


def verify(folder, *arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ISTHMUS_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-m", "isthmus", "migrate", "verify", *arguments],
        capture_output=True, text=True, check=False, cwd=folder, timeout=500,
        env={**kept, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


# ---- saved files ---------------------------------------------------------------------------------------------
def save(root, value=1.0, name="model.pt"):
    root.mkdir(exist_ok=True)
    contents = {
        "model": {"w": torch.full((100,), value), "half": torch.ones(2, dtype=torch.bfloat16)},
        "step": 3,
    }
    torch.save(contents, root / name)
    np.savez(root / "arrays.npz", a=np.full(100, value), b=np.arange(3))
    (root / "log.csv").write_text(f"step,loss\n1,{value:.6f}\n")


def test_checkpoints_arrays_and_logs_are_compared(tmp_path):
    for name, value in (("mine", 1.0), ("near", 1.0 + 1e-7), ("wrong", 1.001), ("noisy", 1.0002)):
        save(tmp_path / name, value)
    mine, near, wrong, noisy = (run(tmp_path / name) for name in ("mine", "near", "wrong", "noisy"))
    found = file_comparison.compare(mine, near, [])
    assert found.same and found.compared >= 5, "three of model.pt, two of arrays.npz, the numbers of log.csv"
    found = file_comparison.compare(mine, wrong, [])
    assert not found.same and found.detail == "a of arrays.npz"
    assert file_comparison.compare(mine, wrong, [Reference(noisy, 1)]).same


def test_a_changed_step_in_a_checkpoint_is_a_difference(tmp_path):
    for name, step in (("mine", 3), ("other", 4)):
        (tmp_path / name).mkdir()
        torch.save({"step": step}, tmp_path / name / "last.ckpt")
    found = file_comparison.compare(run(tmp_path / "mine"), run(tmp_path / "other"), [])
    assert not found.same and found.detail == "step of last.ckpt"


def test_files_of_one_run_only(tmp_path):
    save(tmp_path / "mine")
    save(tmp_path / "other", name="epoch.pt")
    mine, other = run(tmp_path / "mine"), run(tmp_path / "other")
    assert file_comparison.compare(mine, other, []).detail == "epoch.pt: written only by the other run"
    save(tmp_path / "again", name="model-17.pt")
    (tmp_path / "mine" / "model.pt").rename(tmp_path / "mine" / "model-16.pt")
    (tmp_path / "other" / "epoch.pt").rename(tmp_path / "other" / "model-18.pt")
    mine, other, again = (run(tmp_path / name) for name in ("mine", "other", "again"))
    found = file_comparison.compare(mine, other, [Reference(again, 0)])
    assert found.same and found.left_out == (
        "2 files named differently in two runs of the original (model-16.pt)",
    )


def test_files_that_cannot_be_compared_are_named(tmp_path):
    for name, content in (("mine", b"\x80\x01"), ("other", b"\x80\x02")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.bin").write_bytes(content)
        (tmp_path / name / "same.bin").write_bytes(b"\x80")
        np.save(tmp_path / name / "objects.npy", np.array([{"a": content}], object), allow_pickle=True)
    found = file_comparison.compare(run(tmp_path / "mine"), run(tmp_path / "other"), [])
    assert found.same and found.compared == 1
    assert found.left_out == (
        "1 differing file of an unknown format (events.bin)",
        "1 differing file with Python objects in it (objects.npy)",
    )


def test_written_files_are_those_after_the_start(tmp_path):
    (tmp_path / "before.txt").write_text("1")
    os.utime(tmp_path / "before.txt", ns=(1, 1))
    (tmp_path / "after.txt").write_text("1")
    (tmp_path / "link.txt").symlink_to(tmp_path / "after.txt")
    assert list(scratch.written_since(1, tmp_path)) == ["after.txt"]


# ---- answers of devices --------------------------------------------------------------------------------------
CPU = {"type": "cpu", "name": "cpu", "capability": "(8, 0)", "index": "0", "count": "1", "available": "True"}
CHIP = {**CPU, "type": "chip", "name": "A chip", "capability": "(0, 0)", "count": "4"}
NONE = {**CPU, "capability": "(0, 0)", "index": "cpu", "count": "0", "available": "False"}
ASKS = "get_device_capability(); x.get_device(); device_count(); is_available()"


@pytest.mark.parametrize(
    ("source", "other", "mine", "theirs", "hidden"),
    [
        (ASKS, CHIP, "(8, 0)", "(0, 0)", True),
        (ASKS, NONE, "capability (8, 0)", "capability None", True),
        (ASKS, CHIP, "capability 8.0", "capability 0.0", True),
        (ASKS, CHIP, "-1", "0", True),
        (ASKS, CHIP, "device index None", "device index 0", True),
        (ASKS, NONE, "1 GPUs: True", "0 GPUs: False", True),
        (ASKS, CHIP, "1 GPUs", "4 GPUs", True),
        (ASKS, NONE, "using fused AdamW: True", "using fused AdamW: False", True),
        (ASKS, NONE, "converged: True", "converged: False", False),
        (ASKS, CHIP, "1 GPUs", "3 GPUs", False),
        (ASKS, CHIP, "correct 8", "correct 0", False),
        (ASKS, CHIP, "label -1", "label 0", False),
        (ASKS, CHIP, "device index 1", "device index 0", False),
        ("x.cuda()", CHIP, "(8, 0)", "(0, 0)", False),
        ("x.cuda()", CHIP, "-1", "0", False),
    ],
)
def test_answers_of_devices(tmp_path, source, other, mine, theirs, hidden):
    (tmp_path / "train.py").write_text(source)
    allowed = answers.answers(run(tmp_path, device=CPU), run(tmp_path, device=other))
    first, second, number = allowed.hide(mine, theirs)
    assert (first == second) is hidden and bool(number) is hidden


@pytest.mark.full
@pytest.mark.parametrize("options", [["--device", "cpu"], []])
def test_answers_of_devices_are_no_differences(tmp_path, options):
    (tmp_path / "train.py").write_text(DEVICES)
    done = verify(tmp_path, "train.py", *options, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["same"] and any("of the device about itself" in line for line in found["not_compared"])
    (tmp_path / "train.py").write_text(
        DEVICES.replace('print("loss", ', 'print("index", device.type == "cpu", ')
    )


# ---- modules -------------------------------------------------------------------------------------------------
@pytest.mark.full
def test_a_module_with_arguments(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text(PACKAGE)
    (package / "model.py").write_text("import torch\n\n\ndef build():\n    return torch.nn.Linear(4, 2)\n")
    done = verify(
        tmp_path, "-m", "package.train", "--steps", "0", "--", "--rate", "0.1", "--output", "last.pt"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "converted: 2 changes in 1 executed file" and lines[-1] == "verdict: same"
    assert next(line.split()[2:3] for line in lines if line.startswith("saved files")) == ["2"]
    assert {path.name for path in package.iterdir()} == {"__init__.py", "train.py", "model.py"}


# ---- SyncBatchNorm -------------------------------------------------------------------------------------------
@pytest.mark.full
@pytest.mark.parametrize("device", ["", "cpu"])
def test_sync_batch_norm_of_two_ranks(tmp_path, device):
    (tmp_path / "train.py").write_text(SYNC)
    options = ["--nproc", "2", "--steps", "0", "--json", *(["--device", device] if device else [])]
    done = verify(tmp_path, "train.py", *options, ISTHMUS_HOST_DEVICES="2")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    counts = {each["subject"]: each["compared"] for each in found["comparisons"]}
    assert counts["losses"] == 6 and counts["saved files"] >= (1 if device else 9), (
        "the running statistics too"
    )
    stands_in = any("SyncBatchNorm on the CPU" in line for line in found["not_compared"])
    assert stands_in is bool(device)


# ---- failures ------------------------------------------------------------------------------------------------
@pytest.mark.full
def test_a_failure_of_the_other_run_is_in_the_report(tmp_path):
    (tmp_path / "train.py").write_text(
        DEVICES + 'assert torch.ones(1).to(device).device.index is None, "only on the CPU"\n'
    )
    done = verify(tmp_path, "train.py", "--steps", "0")
    assert done.returncode == 1
    problem = "the converted one on the accelerator: ended with status 1: AssertionError: only on the CPU"
    assert done.stdout.splitlines()[-1] == f"verdict: FAILED: {problem}"
    assert done.stderr.splitlines()[-1] == f"isthmus: {problem}"
