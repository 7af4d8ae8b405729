"""A training job that continues after a worker is killed: ``torchrun --max-restarts 1 elastic.py FOLDER STEP``.

Two ranks train with DDP and write a checkpoint after each step. In the first attempt rank 1 kills itself in the
backward pass of STEP (-1: never). Rank 0 writes ``<folder>/losses-<attempt>.json``: the losses by step, and how many
bytes of each rank's device were in use when it began.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
BALLAST = 64 << 20  # bytes that every attempt holds beside its model


def in_use(device: torch.device) -> int:
    free, total = torch.chip.mem_get_info(device)
    return total - free


def kill_in_backward(model: nn.Module) -> None:
    next(model.parameters()).register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))


def train(folder: Path, killed: int) -> dict[int, float]:
    rank, first = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    device = torch.device("chip", rank)
    torch.manual_seed(0)
    layers = [nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8)]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device), device_ids=[rank])
    steps = torch.optim.AdamW(model.parameters(), lr=1e-2)
    begin, losses = resume(folder, model, steps), {}
    for step in range(begin, STEPS):
        torch.manual_seed(1000 * step + rank)
        if (first, rank, step) == (True, 1, killed):
            kill_in_backward(model)
        loss = model(torch.randn(32, 16).to(device)).square().mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses[step] = loss.item()
        save(folder, model, steps, step)
    return losses


def save(folder: Path, model: nn.Module, steps: torch.optim.Optimizer, step: int) -> None:
    state, steps_state = get_state_dict(model, steps)
    dcp.save({"model": state, "steps": steps_state}, checkpoint_id=folder / f"step-{step}")
    if dist.get_rank() == 0:
        (folder / "beside").write_text(str(step))
        (folder / "beside").replace(folder / "last")


def resume(folder: Path, model: nn.Module, steps: torch.optim.Optimizer) -> int:
    """Load the last checkpoint; return the next step."""
    if not (folder / "last").exists():
        return 0
    last = int((folder / "last").read_text())
    state, steps_state = get_state_dict(model, steps)
    whole = {"model": state, "steps": steps_state}
    dcp.load(whole, checkpoint_id=folder / f"step-{last}")
    set_state_dict(model, steps, model_state_dict=whole["model"], optim_state_dict=whole["steps"])
    return last + 1


def main(folder: Path, killed: int) -> None:
    device = torch.device("chip", int(os.environ["LOCAL_RANK"]))
    torch.chip.set_device(device)
    before = in_use(device)
    torch.set_num_threads(1)
    dist.init_process_group()
    ballast = torch.ones(BALLAST, dtype=torch.uint8, device=device)
    losses = train(folder, killed)
    held = [None, None]
    dist.all_gather_object(held, before)
    assert in_use(device) >= ballast.nbytes
    if dist.get_rank() == 0:
        attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
        (folder / f"losses-{attempt}.json").write_text(json.dumps({"losses": losses, "before": held}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
