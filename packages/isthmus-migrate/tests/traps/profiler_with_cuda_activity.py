"""The profiler is asked for CUDA activity if it is there, with a schedule, labels and NVTX ranges."""

# answer: activities 2
# answer: traced 1
# answer: labels True 2
# answer: operators True
# answer: result True 16.0
import contextlib

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

device = "cuda" if torch.cuda.is_available() else "cpu"
activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
print("activities", len(activities))


@contextlib.contextmanager
def region(name):
    if device.startswith("cuda"):
        torch.cuda.nvtx.range_push(name)
    with record_function(name):
        yield
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()


tables = []
model = torch.nn.Linear(4, 4, bias=False).to(device)
torch.nn.init.ones_(model.weight)
plan = schedule(wait=1, warmup=1, active=2, repeat=1)
ready = lambda p: tables.append(p.key_averages())
with profile(activities=activities, schedule=plan, on_trace_ready=ready, record_shapes=True) as prof:
    for _ in range(5):
        with region("forward"):
            out = model(torch.ones(1, 4, device=device))
        prof.step()

counts = {e.key: e.count for e in tables[0] if e.device_type == torch.autograd.DeviceType.CPU}
print("traced", len(tables))
print("labels", "forward" in counts, counts["forward"])
print("operators", bool({"aten::mm", "aten::addmm", "aten::matmul"} & set(counts)))
print("result", out.is_cuda, out.sum().item())
