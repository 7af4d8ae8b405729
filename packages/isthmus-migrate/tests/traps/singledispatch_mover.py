"""Nested batches are moved by functools.singledispatch, and devices themselves are dispatched on by class."""

# answer: kinds gpu gpu gpu
# answer: host kinds host host
# answer: leaves True 4 label 7
# answer: parameter kept True
from collections import namedtuple
from functools import singledispatch

import torch
import torch.nn as nn

Pair = namedtuple("Pair", "image mask")


@singledispatch
def move(obj, device):
    return obj


move.register(torch.Tensor, lambda obj, device: obj.to(device))
move.register(dict, lambda obj, device: {k: move(v, device) for k, v in obj.items()})
move.register(list, lambda obj, device: [move(v, device) for v in obj])
move.register(Pair, lambda obj, device: Pair(*(move(v, device) for v in obj)))
move.register(tuple, lambda obj, device: tuple(move(list(obj), device)))


@singledispatch
def kind(device):
    raise TypeError(type(device).__name__)


kind.register(torch.device, lambda d: "gpu" if d.type == "cuda" else "host")
kind.register(str, lambda d: kind(torch.device(d)))
kind.register(int, lambda d: kind(torch.device("cuda", d)))
kind.register(torch.Tensor, lambda t: kind(t.device))

x = torch.ones(2)
print("kinds", kind(x.cuda()), kind("cuda:0"), kind(0))
print("host kinds", kind(x), kind("cpu"))
out = move({"a": Pair(x, x), "b": [x, (x, "label")], "n": 7}, torch.device("cuda"))
leaves = [out["a"].image, out["a"].mask, out["b"][0], out["b"][1][0]]
print("leaves", all(t.is_cuda for t in leaves), len(leaves), out["b"][1][1], out["n"])
print("parameter kept", move(nn.Parameter(x), "cuda").requires_grad)
