"""A job that hangs as its arguments say, one case after another: ``health_jobs.py FOLDER CASE...``.

Step 0 is one without a hang, and each case is a step, but for ``slow``, which is many. The rank that is the cause
goes on when the file ``go-CASE`` appears in the folder; if it is stopped, at SIGCONT; in ``hold`` after ten seconds;
in ``other`` it does not.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

CAUSES = {"slow": 1, "sleep": 2, "loop": 1, "hold": 2, "stop": 3, "other": 0}  # ranks


def slow(go: Path, x: torch.Tensor) -> None:
    """Take longer than the other ranks."""
    time.sleep(0.04)


def sleep(go: Path, x: torch.Tensor) -> None:
    """Do not arrive."""
    while not go.exists():
        time.sleep(0.05)


def loop(go: Path, x: torch.Tensor) -> None:
    """Compute without end."""
    count = 0
    while count % 1000 or not go.exists():
        count += 1


def stop(go: Path, x: torch.Tensor) -> None:
    """Stop this process."""
    os.kill(os.getpid(), signal.SIGSTOP)


def hold(go: Path, x: torch.Tensor) -> None:
    """Sleep in native code without releasing the interpreter's lock."""
    ctypes.PyDLL(None).sleep(10)


def other(go: Path, x: torch.Tensor) -> None:
    """Take part in a collective that no other rank has started."""
    dist.all_gather([torch.ones_like(x) for _ in range(dist.get_world_size())], x)


def main(folder: Path, *cases: str) -> None:
    """Run the cases."""
    is_launched = "ISTHMUS_SHIM" in os.environ
    if is_launched:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
    else:  # `isthmus run --health` starts the watch
        from isthmus_diagnostics.health import environment, session

        session._PERIOD, session._INTERVAL = 0.02, 50
        environment.start()
        rank = int(os.environ["RANK"])
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
    x = torch.ones(3, device="cuda" if is_launched else "cpu")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    for case in ("start", *cases):
        is_over = False
        while not is_over:
            if dist.get_rank() == CAUSES.get(case):
                globals()[case](folder / f"go-{case}", x)
            x.fill_((folder / f"go-{case}").exists())
            dist.all_reduce(x)
            is_over = bool(x.any()) or case != "slow"
            optimizer.step()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
