"""One rank of a job on two machines: ``python -m tests.helpers.machine_cases RANK SIZE ADDRESS PORT``.

Prints one line of JSON: the seconds of the first collective, the cases that are wrong and how many ran, and by
how much data-parallel training is off one process.
"""

from __future__ import annotations

import copy
import json
import sys
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.helpers.matrix_cases import Team, cases

TIMEOUT = timedelta(seconds=120)
DTYPES = ("torch.float32", "torch.bfloat16", "torch.int64", "torch.bool")
MOVED_BY_GLOO = (*DTYPES, "torch.complex64", "torch.int16")
MOVES = ("gathers", "from_root", "exchanges", "messages", "unequal_reduce_scatter", "coalesced")
REDUCTIONS = ("reductions", "reduce_scatters")  # followed by the operation
COUNTS = (["7"], ["5003"])
GROUPS = ([0, 2], [1, 3], [0, 1], [2, 3])  # the last two are each on one machine


def is_chosen(name: str) -> bool:
    """Dtypes supported by gloo, in two sizes."""
    what, *rest = name.split()
    if what in REDUCTIONS:
        what, *rest = rest
    dtype, *count = rest or [""]
    if what == "PREMUL_SUM" or count not in ([], *COUNTS):
        return False
    return dtype in (MOVED_BY_GLOO if what in MOVES else DTYPES)


def wrong_cases(team: Team) -> tuple[dict[str, str], int]:
    wrong, ran = {}, 0
    for name, case in cases(team):
        if not is_chosen(name):
            continue
        ran += 1
        try:
            case()
        except AssertionError:
            wrong[f"{name}, ranks {team.ranks}"] = traceback.format_exc(limit=-1)
    return wrong, ran


def train(model: nn.Module, batches: list[Tensor]) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def distance_from_one_process(rank: int, size: int, device: torch.device) -> float:
    """The largest difference of a parameter after three steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)).double()
    batches = [torch.randn(4 * size, 16, dtype=torch.float64) for _ in range(3)]
    mine = [batch[4 * rank : 4 * rank + 4].to(device) for batch in batches]
    found = train(DistributedDataParallel(copy.deepcopy(model).to(device)), mine)
    expected = train(copy.deepcopy(model), batches)
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))


def main() -> None:
    rank, size, address, port = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    device = torch.device("chip", rank % 2)
    torch.chip.set_device(device)
    method = f"tcp://{address}:{port}"
    dist.init_process_group("chip", init_method=method, rank=rank, world_size=size, timeout=TIMEOUT)
    begin = time.monotonic()
    dist.all_reduce(torch.ones(4, device=device))
    torch.chip.synchronize()
    found: dict[str, object] = {"first_seconds": time.monotonic() - begin}
    assert dist.group.WORLD is not None
    groups = [dist.group.WORLD, *(dist.new_group(ranks) for ranks in GROUPS)]
    mine = [group for group in groups if rank in dist.get_process_group_ranks(group)]
    results = [wrong_cases(Team(group, device)) for group in mine]
    found["wrong"] = {name: error for wrong, _ in results for name, error in wrong.items()}
    found["ran"] = sum(ran for _, ran in results)
    found["distance"] = distance_from_one_process(rank, size, device)
    print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
