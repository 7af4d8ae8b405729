"""Calls of a distributed CUDA script on two ranks; print the results as a line of JSON."""
# ruff: noqa - written as its author would

import json
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.filesystem import _OverlappingCpuLoader
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _new_group_with_tag, get_backend
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, SplitPoint, pipeline
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
device = torch.device("cuda", local)
dist.init_process_group(backend="nccl", device_id=device)
found = {}


def trained(module, inputs=None):
    """The outputs' sum and its gradients exist."""
    out = module(torch.ones(2, 4, device="cuda") if inputs is None else inputs)
    out.float().sum().backward()
    assert out.is_cuda
    return out.float().sum().item()


def linear():
    torch.manual_seed(0)
    return nn.Linear(4, 4)


# names of the backend
nccl = dist.new_group(
    [0, 1], backend="nccl", pg_options=dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
)
found["backends"] = [
    dist.get_backend() == "nccl",
    dist.get_backend() == dist.Backend.NCCL,
    get_backend(nccl) == "nccl",
    dist.get_backend(dist.new_group(backend="gloo")) == "gloo",
    dist.get_backend(dist.new_group(backend="cpu:gloo,cuda:nccl")) == "cpu:gloo,cuda:nccl",
    get_backend(_new_group_with_tag([0, 1], backend="nccl", pg_tag="tag")) == "nccl",
    isinstance(nccl._get_backend(torch.device("cuda")), dist.ProcessGroupNCCL),
    isinstance(dist.new_group(backend="gloo")._get_backend(torch.device("cpu")), dist.ProcessGroupNCCL),
]
x = torch.ones(2, device="cuda")
dist.all_reduce(x, group=nccl)
dist.barrier(device_ids=[local])
objects = [{"rank": rank}]
dist.broadcast_object_list(objects, src=0, device=torch.device("cuda"))
on_cpu = dist.new_group(backend="gloo")
y, gathered = torch.ones(2), [None, None]
dist.all_reduce(y, group=on_cpu)
dist.all_gather_object(gathered, rank, group=on_cpu)
dist.monitored_barrier(on_cpu)
found["collectives"] = [x.tolist(), objects, y.tolist(), gathered]

# data parallel
expected = linear()(torch.ones(2, 4)).sum().item()
found["ddp"] = [
    trained(DistributedDataParallel(linear().cuda(local), device_ids=[local], output_device=local)),
    trained(DistributedDataParallel(linear().cuda(), device_ids=[device])),
    trained(DistributedDataParallel(linear().cuda(), device_ids=[f"cuda:{local}"]), torch.ones(2, 4)),
    trained(DistributedDataParallel(linear().to("cuda"))),
]
found["fsdp"] = [
    trained(FullyShardedDataParallel(linear(), device_id=local)),
    trained(FullyShardedDataParallel(linear(), device_id=torch.cuda.current_device())),
    trained(FullyShardedDataParallel(linear(), device_id=torch.device("cuda", local), use_orig_params=True)),
    trained(FullyShardedDataParallel(linear().cuda())),
]
found["scaler"] = ShardedGradScaler().is_enabled()

# meshes
mesh = init_device_mesh("cuda", (2,), mesh_dim_names=("dp",))
meshes = [mesh, DeviceMesh("cuda", [0, 1]), DeviceMesh.from_group(dist.group.WORLD, "cuda")]
found["meshes"] = [each.device_type for each in meshes]
on_cpu, on_gpu = linear(), linear().cuda()
found["fully_shard"] = [trained(fully_shard(on_gpu, mesh=mesh)), trained(fully_shard(on_cpu))]
tensor = distribute_tensor(torch.arange(4.0, device="cuda"), mesh, [Shard(0)])
found["tensor"] = [tensor.is_cuda, tensor.device.type, tensor.full_tensor().tolist()]


# pipelining
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = linear(), linear()

    def forward(self, x):
        return self.second(self.first(x))


stages = [
    PipelineStage(linear().to(device), rank, 2, torch.device("cuda", local)),
    PipelineStage(linear().to(device), rank, 2, device=f"cuda:{local}"),
    pipeline(Two(), (torch.ones(2, 4),), split_spec={"second": SplitPoint.BEGINNING}).build_stage(
        rank, device
    ),
]
whole = Two()(torch.ones(4, 4))
same = []
for stage in stages:
    schedule = ScheduleGPipe(stage, 2)
    out = schedule.step(torch.ones(4, 4, device=device)) if rank == 0 else schedule.step()
    if rank == 1:
        same.append(torch.allclose(out.cpu(), whole, atol=1e-6))
gathered = [None, None]
dist.all_gather_object(gathered, same)
found["pipeline"] = gathered[1]  # the last stage has the outputs

# checkpoints
folder = sys.argv[1]
writer = checkpoint.FileSystemWriter(folder, single_file_per_rank=True, per_thread_copy_ahead=1 << 20)
checkpoint.save({"tensor": tensor}, storage_writer=writer)
loaded = {"tensor": distribute_tensor(torch.zeros(4, device="cuda"), mesh, [Shard(0)])}
checkpoint.load(loaded, checkpoint_id=folder)
loader = _OverlappingCpuLoader(lambda each: each, inflight_threshhold=1)
loader.add(4, torch.full((4,), 7.0, device="cuda"))
found["checkpoint"] = [
    loaded["tensor"].full_tensor().tolist(),
    [each.tolist() for each, _ in loader.values()],
]

if rank == 0:
    print(json.dumps({"expected": expected, **found}))
dist.destroy_process_group()
