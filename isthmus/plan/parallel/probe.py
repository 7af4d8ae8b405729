"""A cluster measured on this machine: ``python -m isthmus.plan.parallel.probe FILE`` on each rank."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isthmus.plan.files import PlanError
from isthmus.plan.parallel.cluster import Cluster, Link

_PRODUCTS = {"float32": 1024, "bfloat16": 256}  # sides of matrices; a host may be slow with the latter
_SIZES = 1 << 16, 1 << 22  # bytes of the tensors whose times give latency and bandwidth


def measure(cards: int, progress: Callable[[str], None]) -> Cluster:
    """Measure the devices of this machine in jobs of 1, 2, 4 ... ranks.

    Args:
        cards: the most ranks.
        progress: told what is measured.

    Raises:
        PlanError: a job fails.
    """
    counts = sorted({1, cards, *(1 << each for each in range(1, cards.bit_length()))})
    with tempfile.TemporaryDirectory(prefix="isthmus-plan-") as folder:
        found = {}
        for count in counts:
            progress(f"measuring {count} of {cards} cards")
            found[count] = _job(count, Path(folder) / f"{count}.json")
    alone, together = found[1], found[counts[-1]]
    # Cards of one machine may share processors: all of them at once, over one alone.
    share = alone["time"] / together["time"]
    return Cluster(
        cards=cards,
        memory=int(alone["memory"]),
        flops=alone["flops"],
        bandwidth=alone["bandwidth"],
        overhead=alone["overhead"],
        links=[Link(count, *found[count]["link"]) for count in counts[1:]],
        cores=round(share * cards, 2) if share < 0.9 else 0.0,
    )


def _job(count: int, path: Path) -> dict[str, Any]:
    import subprocess

    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    environment = {"OMP_NUM_THREADS": "1", "ISTHMUS_HOST_DEVICES": str(count), **os.environ}
    done = subprocess.run(
        [*command, "-m", "isthmus.plan.parallel.probe", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode or not path.exists():
        lines = [line for line in done.stderr.splitlines() if "Error" in line] or [
            f"exit status {done.returncode}"
        ]
        raise PlanError(f"the measurement of {count} ranks failed: {lines[0].strip()}")
    return dict(json.loads(path.read_text()))


def _measure_rank(path: Path) -> None:
    import torch
    import torch.distributed as dist

    if not torch.accelerator.is_available():
        raise RuntimeError("no accelerator is available; isthmus doctor says why")
    torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    device = torch.accelerator.current_accelerator()
    assert device is not None
    dist.init_process_group(dist.get_default_backend_for_device(device.type))
    found: dict[str, Any] = {"memory": torch.accelerator.get_memory_info()[1], "flops": {}}
    for name, side in _PRODUCTS.items():
        matrix = torch.ones(side, side, device=device, dtype=getattr(torch, name))
        found["flops"][name] = 2 * side**3 / _time(lambda matrix=matrix: torch.mm(matrix, matrix))  # type: ignore[misc]
    matrix = torch.ones(1024, 1024, device=device)
    found["time"] = _time(lambda: [torch.mm(matrix, matrix) for _ in range(4)], until_all=True)
    source = torch.ones(1 << 22, device=device)
    found["bandwidth"] = 3 * source.nbytes / _time(lambda: source + source)
    small = torch.ones(1, device=device)
    found["overhead"] = _time(lambda: [small + small for _ in range(100)]) / 100
    count = dist.get_world_size()
    if count > 1:
        times = []
        for size in _SIZES:
            tensor = torch.ones(size // 4, device=device)
            times.append(_time(lambda tensor=tensor: dist.all_reduce(tensor)))  # type: ignore[misc]
        slope = (times[1] - times[0]) / (_SIZES[1] - _SIZES[0])
        latency = max(1e-7, times[0] - slope * _SIZES[0])
        found["link"] = latency, 2 * (count - 1) / count / slope
    if dist.get_rank() == 0:
        path.write_text(json.dumps(found))
    dist.destroy_process_group()


def _time(call: Callable[[], Any], rounds: int = 15, *, until_all: bool = False) -> float:
    """Return the median seconds of a call while all ranks do the same, or until all have done it."""
    import torch
    import torch.distributed as dist

    times = []
    for _ in range(rounds):
        dist.barrier()
        start = time.perf_counter()
        call()
        torch.accelerator.synchronize()
        if until_all:
            dist.barrier()
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:])


if __name__ == "__main__":
    _measure_rank(Path(sys.argv[1]))
