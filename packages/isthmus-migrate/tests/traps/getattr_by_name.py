"""Modules and methods of torch are looked up by the string cuda with getattr, methodcaller and __dict__."""

# answer: True True
# answer: [True, True, True]
# answer: False
# answer: 1 True
# answer: none
import operator

import torch


def backend(name):
    return getattr(torch, name, None)


kind = "cuda" if backend("cuda").is_available() else "cpu"
runtime = backend(kind)
runtime.synchronize()
print(runtime is not torch.cpu, hasattr(torch, kind))

x = torch.ones(2)
movers = [
    lambda t: getattr(t, kind)(),
    operator.methodcaller("cuda"),
    lambda t: getattr(torch.Tensor, "cuda")(t),
]
print([move(x).is_cuda for move in movers])
print(getattr(x, "is_cuda"))
count = getattr(backend(kind), "device_count")()
print(min(count, 1), vars(torch)[kind].current_device() == 0)
print("none" if backend("cu" + "da2") is None else "some")
