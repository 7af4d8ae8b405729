"""Kernels are looked up in a dict that a decorator fills and whose keys are device types."""

# answer: dense fast 8.0
# answer: dense reference 8.0
# answer: default fast
# answer: parameters on gpu 2 of 3
from collections import Counter

import torch
import torch.nn as nn

KERNELS = {}


def register(*types):
    def wrap(fn):
        for kind in types:
            KERNELS[kind] = fn
        return fn

    return wrap


@register("cpu", "mps")
def dense_reference(a, b):
    return "dense reference", (a.unsqueeze(-1) * b).sum().item()


@register("cuda")
def dense_fast(a, b):
    return "dense fast", torch.mm(a, b).sum().item()


def slow(a, b):
    return "python loop", 0.0


a, b = torch.ones(2, 2), torch.ones(2, 2)
print(*KERNELS[a.cuda().device.type](a.cuda(), b.cuda()))
print(*KERNELS[a.device.type](a, b))
print("default", KERNELS.get(a.cuda().device.type, slow)(a.cuda(), b.cuda())[0].split()[1])

model = nn.Sequential(nn.Linear(2, 2).cuda(), nn.Linear(2, 2, bias=False))
where = Counter(p.device.type for p in model.parameters())
print("parameters on gpu", where["cuda"], "of", sum(where.values()))
