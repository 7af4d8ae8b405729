"""The names cuda, torch and device mean something else in places: a rival package, a test double, a printer."""

# answer: False True
# answer: none gpu
# answer: 42
# answer: laser
# answer: True
import types

import torch

cuda = types.ModuleType("cuda")  # what `from numba import cuda` would bring in
cuda.is_available = lambda: False
cuda.jit = lambda f: f


@cuda.jit
def add(a, b):
    return a + b


def pick(torch):
    return "gpu" if torch.cuda.is_available() else "none"


def brightness(torch):
    return torch.cuda * 2


print(cuda.is_available(), torch.cuda.is_available())
print(pick(types.SimpleNamespace(cuda=cuda)), pick(torch))
print(brightness(types.SimpleNamespace(cuda=21)))
device = {"type": "laser", "index": 0}
print(device["type"])


def train(device="cuda"):
    return add(torch.ones(1, device=device), torch.ones(1).cuda())


print(train().is_cuda)
