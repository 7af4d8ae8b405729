"""One of the ranks: ``python -m tests.helpers.run_rank RANK SIZE STORE CHECK...``.

Prints one line of JSON per check: ``{"check": name, "error": traceback or null}``; the first error ends the run,
for the ranks are then no longer at the same collective.
"""

import json
import sys
import traceback

import torch
import torch.distributed as dist

from tests.helpers import collective_checks, matrix_groups, parallel_checks, profile_checks
from tests.helpers.rank_checks import CHECKS, TIMEOUT

__all__ = [
    "collective_checks",
    "matrix_groups",
    "parallel_checks",
    "profile_checks",
]  # imported for the checks they register

BACKENDS = {"default_backend": {}, "composite_backend": {"backend": "cpu:gloo,chip:chip"}}
STAYS = ("killed_peer", "killed_peer_of_gloo", "exit_without_destroying")


def main() -> int:
    rank, size, store, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    torch.set_num_threads(1)
    device = torch.device("chip", rank % torch.chip.device_count())
    torch.chip.set_device(device)
    backend = BACKENDS.get(names[0], {"backend": "chip"})
    if names[0] in ("default_backend", "matrix"):
        backend = {**backend, "device_id": device}
    timeout = 3 * TIMEOUT if names[0] == "matrix" else TIMEOUT
    place = f"file://{store}"
    dist.init_process_group(init_method=place, rank=rank, world_size=size, timeout=timeout, **backend)
    for name in names:
        error = None
        try:
            CHECKS[name](rank, device)
        except Exception:
            error = traceback.format_exc()
        print(json.dumps({"check": name, "error": error}), flush=True)
        if error:
            return 1
    if names[0] not in STAYS:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
