"""An ordinary DistributedDataParallel script for GPUs."""
# ruff: noqa - written as its author would

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group(backend="nccl")
backend = dist.get_backend()
assert backend == "nccl", backend
assert torch.cuda.current_device() == local_rank

torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DistributedDataParallel(
    torch.nn.Linear(8, 1).cuda(), device_ids=[local_rank], output_device=local_rank
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = (model(x.cuda()) - y.cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

weights = [torch.empty_like(model.module.weight) for _ in range(dist.get_world_size())]
dist.all_gather(weights, model.module.weight.detach())
assert all(torch.equal(weight, weights[0]) for weight in weights)
objects = [None] * dist.get_world_size()
dist.all_gather_object(objects, {"rank": dist.get_rank()})
dist.barrier()
if dist.get_rank() == 0:
    print("agreed", objects, flush=True)
dist.destroy_process_group()
