"""The device is bound ahead of time, by functools.partial, by a default argument and by a list that is looped over."""

# answer: True
# answer: True False
# answer: [False, True]
# answer: 12.0 True
import functools

import torch

DEVICES = ["cpu", "cuda"]
zeros = functools.partial(torch.zeros, device="cuda")
to_gpu = functools.partial(torch.Tensor.to, device="cuda")


def positions(n, scale=1.0, device="cuda", **kw):
    return torch.arange(n, device=device, **kw) * scale


print(zeros(2, 3).is_cuda)
print(positions(3).is_cuda, positions(3, 2.0, "cpu").is_cuda)
print([torch.ones(1, device=name).is_cuda for name in DEVICES])
mixed = zeros(4) + positions(4, 2.0, dtype=torch.float32) + to_gpu(torch.zeros(4))
print(mixed.sum().item(), mixed.is_cuda)
