"""One rank of the collective matrix: ``python -m tests.helpers.matrix_rank RANK SIZE STORE``.

Over all ranks, over halves of them and alone. Prints one line of JSON: the cases that differ, and how many ran.
"""

from __future__ import annotations

import json
import sys
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.helpers.matrix_cases import cases, teams
from tests.helpers.matrix_groups import new_groups


def main() -> int:
    rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    device = torch.device("chip", rank % torch.chip.device_count())
    torch.chip.set_device(device)
    dist.init_process_group(
        "chip",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
        device_id=device,
    )
    every = [*new_groups(device)]
    every += [(f"{name}, {team.size} ranks", case) for team in teams(device) for name, case in cases(team)]
    wrong = {}
    for name, case in every:
        try:
            case()
        except AssertionError:
            wrong[name] = traceback.format_exc(limit=-1)
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps({"ran": len(every), "wrong": wrong}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
