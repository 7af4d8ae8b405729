"""Destroys all process groups and makes others under the same names, several times; run by torchrun on two ranks."""

import os
import sys

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
for turn in range(4):
    dist.init_process_group("chip")
    parts = [dist.new_group([0, 1]), dist.new_group([rank], use_local_synchronization=True)]
    for group in (None, *parts[turn % 2 :]):
        value = torch.full((10_000,), rank + 1.0, device="chip")
        dist.all_reduce(value, group=group)
        expected = 3.0 if dist.get_world_size(group) == 2 else rank + 1.0
        assert (value == expected).all(), (turn, value[0], expected)
    dist.destroy_process_group()
sys.stdout.write(f"rank {rank}: done\n")  # in one piece, unlike print, as the other rank writes there too
