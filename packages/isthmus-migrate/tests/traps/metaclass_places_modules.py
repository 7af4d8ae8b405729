"""A metaclass reads a class attribute with the device's name and places every instance there."""

# answer: default True
# answer: derived True 4.0
# answer: host False placed ['gpu', 'gpu', 'host']
# answer: same kind True False
import torch
import torch.nn as nn


class Placed(type):
    log = []

    def __new__(mcs, name, bases, namespace):
        namespace.setdefault("placement", getattr(bases[0], "placement", "cuda"))
        return super().__new__(mcs, name, bases, namespace)

    def __call__(cls, *args, **kwargs):
        module = super().__call__(*args, **kwargs).to(cls.placement)
        Placed.log.append("gpu" if module.weight.device.type == "cuda" else "host")
        return module


class Scale(nn.Module, metaclass=Placed):
    def __init__(self, value=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([value]))

    def forward(self, x):
        return self.weight * x.to(self.weight.device)


class Double(Scale):
    def forward(self, x):
        return 2 * super().forward(x)


class HostScale(Scale):
    placement = "cpu"


a, b, c = Scale(), Double(2.0), HostScale()
print("default %s\nderived" % a.weight.is_cuda, b(torch.ones(1)).is_cuda, b(torch.ones(1)).item())
print("host", c(torch.ones(1)).is_cuda, "placed", Placed.log)
print("same kind", a.weight.device.type == Scale.placement, c.weight.device.type == Scale.placement)
