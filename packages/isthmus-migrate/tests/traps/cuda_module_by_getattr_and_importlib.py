"""The module torch.cuda is reached by getattr, importlib and __import__ and its methods by name."""

# answer: available True True True
# answer: same module True True
# answer: moved True False
# answer: stack True 6.0
# answer: has all True
import importlib
import operator
import sys

import torch

by_getattr = getattr(torch, "cuda")
by_importlib = importlib.import_module("torch.cuda")
by_dunder = __import__("torch.cuda", fromlist=["is_available"])

print("available", *(module.is_available() for module in (by_getattr, by_importlib, by_dunder)))
print("same module", by_getattr is by_importlib is by_dunder, sys.modules["torch.cuda"] is torch.cuda)


def move(tensor, where):
    return getattr(tensor, where)()


x = torch.ones(2, 3)
print("moved", move(x, "cuda").is_cuda, move(move(x, "cuda"), "cpu").is_cuda)

to_gpu = operator.methodcaller("to", "cuda:%d" % by_importlib.current_device())
total = sum(map(torch.sum, map(to_gpu, x)))
print("stack", operator.attrgetter("is_cuda")(total), total.item())

needed = ("synchronize", "empty_cache", "Stream", "Event", "device_count", "manual_seed_all")
print("has all", all(callable(getattr(by_getattr, name, None)) for name in needed))
