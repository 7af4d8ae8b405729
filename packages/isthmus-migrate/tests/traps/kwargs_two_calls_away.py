"""The word cuda travels through a class constant, ** dictionaries, a walrus, a lambda and two helper functions."""

# answer: True 5
# answer: True False
# answer: True
# answer: 10.0 True
import torch


class Defaults:
    DEVICE = "cuda"
    DTYPE = torch.float32
    FACTORY = {"device": DEVICE, "dtype": DTYPE}


def outer(size, **options):
    options.setdefault("requires_grad", False)
    return inner(size, options)


def inner(size, options):
    return torch.ones(size, **options)


def pick(prefer=None):
    if name := (prefer or Defaults.DEVICE):
        return name


w = outer(5, **Defaults.FACTORY)
print(w.is_cuda, w.numel())
place = lambda t, where=Defaults.DEVICE: t.to(where)
print(place(torch.zeros(1)).is_cuda, place(w, "cpu").is_cuda)
print(torch.tensor(1.0, **{**Defaults.FACTORY, "dtype": torch.float64}).is_cuda)
total = torch.zeros(5, device=(dev := pick())) + w + place(torch.ones(5), dev)
print(total.sum().item(), total.device == w.device)
