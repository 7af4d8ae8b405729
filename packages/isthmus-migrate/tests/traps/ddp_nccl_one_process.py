"""DistributedDataParallel with the nccl backend and synchronised batch norm runs as the only process of its job."""

# answer: backend True 1
# answer: converted 1
# answer: reduced True [2.0, 2.0]
# answer: wrapped True
# answer: gradient True True
# answer: gathered [0.0, 1.0, 2.0]
import os
import socket

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(s.getsockname()[1]))
if torch.cuda.is_available():
    os.environ.setdefault("NCCL_IB_DISABLE", "1")
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")

backend = "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
dist.init_process_group(backend, rank=0, world_size=1)
local_rank = dist.get_rank() % torch.cuda.device_count()
torch.cuda.set_device(local_rank)
print("backend", dist.get_backend() == "nccl", dist.get_world_size())

model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
model = nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda(local_rank)
print("converted", sum(isinstance(m, nn.SyncBatchNorm) for m in model.modules()))
model = DDP(model, device_ids=[local_rank], output_device=local_rank)

x = torch.full((2,), 2.0, device="cuda")
dist.all_reduce(x)
print("reduced", x.is_cuda, x.tolist())
model(torch.randn(4, 3).cuda()).pow(3).sum().backward()
print("wrapped", isinstance(model.module[1], nn.SyncBatchNorm))
grad = model.module[0].weight.grad
print("gradient", grad.is_cuda, bool(grad.abs().sum() > 0))
parts = [torch.empty(3, device="cuda")]
dist.all_gather(parts, torch.arange(3.0).cuda())
print("gathered", parts[0].tolist())
dist.destroy_process_group()
