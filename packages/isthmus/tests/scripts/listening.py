"""A rank that opens all that PyTorch lets it open: listening.py FOLDER.

Stores, groups of the accelerator and of gloo, torch.distributed.rpc. Writes MASTER_PORT to FOLDER/port when all is
open, and ends when FOLDER/end exists.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import rpc

folder, rank, size = Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
agents = dist.TCPStore(host, port, size, is_master=False)
own = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
dist.init_process_group("nccl", init_method=f"tcp://{host}:{port}", rank=rank, world_size=size)
ones, group = torch.ones(3), dist.new_group(backend="gloo")
dist.all_reduce(ones, group=group)
rpc.init_rpc(f"rank-{rank}", rank=rank, world_size=size)
assert rpc.rpc_sync(f"rank-{1 - rank}", torch.add, args=(ones, 1)).tolist() == [3, 3, 3]
agents.add("open", 1)
if rank == 0:
    while agents.add("open", 0) < size:
        time.sleep(0.01)
    (folder / "beside").write_text(str(port))
    (folder / "beside").rename(folder / "port")
while not (folder / "end").exists():
    time.sleep(0.02)
there = ones.cuda()
dist.all_reduce(there)
rpc.shutdown()
dist.destroy_process_group()
print("sum", there.tolist())
