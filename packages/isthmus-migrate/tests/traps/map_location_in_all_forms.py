"""One checkpoint saved from the GPU is loaded with a string, a device, a dictionary, a lambda and a function."""

# answer: cuda ok
# answer: device ok
# answer: none ok
# answer: dict False
# answer: up True
# answer: lambda False
# answer: back True
# answer: 2
import io

import torch


def saved(where):
    buf = io.BytesIO()
    torch.save({"a": torch.ones(2, device=where), "b": torch.zeros(3, device=where)}, buf)
    return buf.getvalue()


def load(blob, **kw):
    return torch.load(io.BytesIO(blob), **kw)["a"]


gpu, host = saved("cuda:0"), saved("cpu")
print("cuda", "ok" if load(host, map_location="cuda").is_cuda else "wrong")
print("device", "ok" if load(host, map_location=torch.device("cuda", 0)).is_cuda else "wrong")
print("none", "ok" if load(gpu).is_cuda and not load(host).is_cuda else "wrong")
print("dict", load(gpu, map_location={"cuda:0": "cpu"}).is_cuda)
print("up", load(host, map_location={"cpu": "cuda:0"}).is_cuda)
print("lambda", load(gpu, map_location=lambda storage, loc: storage).is_cuda)
print("back", load(host, map_location=lambda storage, loc: storage.cuda(0)).is_cuda)
tags = []


def remember(storage, tag):
    tags.append(tag)
    return storage if tag.startswith("cuda") else None


load(gpu, map_location=remember)
print(sum(tag == "cuda:0" for tag in tags))
