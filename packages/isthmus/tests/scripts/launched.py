"""A rank of a job in which rank 1 fails: launched.py HOW [FILE], without PyTorch unless collectives are used.

Rank 0 creates FILE when it has printed; rank 1 fails after that.
"""

import os
import signal
import sys
import time
from pathlib import Path

how, rank = sys.argv[1], int(os.environ["RANK"])
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"


def collectives():
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", timeout=timedelta(seconds=60))
    ones = torch.ones(10, device="cuda")
    dist.all_reduce(ones)
    group = dist.new_group(timeout=timedelta(seconds=2))

    def step():
        dist.all_reduce(ones, group=group)
        ones.sum().item()

    step()
    return step


def steps():
    for iteration in range(1, 1000):
        if rank == 1:
            print(f" iteration {iteration}/ 1000 | lm loss: {1 / iteration} |", flush=True)
        time.sleep(0.1)


print("out", rank, flush=True)
print("err", rank, file=sys.stderr, flush=True)
if sys.argv[2:]:
    has_printed = Path(sys.argv[2])
    if rank == 0:
        has_printed.touch()
    while not has_printed.exists():
        time.sleep(0.01)
if how in ("collectives-raise", "collectives-hang"):
    step = collectives()
    if rank == 1:
        if how == "collectives-raise":
            raise ValueError("my own mistake")
        time.sleep(1000)
    step()
elif how == "child":
    if rank == 1:
        os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "1000.25")
    steps()
elif how == "again":
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    # With static node ranks, only rank 1's node counts the restart.
    total = torch.tensor([1.0, not first])
    dist.all_reduce(total)
    if not total[1] and rank == 1:
        os._exit(4)
    if not total[1]:
        time.sleep(1000)
    print("sum", int(total[0]), flush=True)
    dist.barrier()
elif rank == 1 and how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
elif rank == 1 and how == "exit":
    sys.exit(3)
elif rank == 1 and how == "once":
    sys.exit(4 if first else 0)
elif how != "once":
    time.sleep(1000)
