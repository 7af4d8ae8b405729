"""DataParallel moves a host batch to device_ids[0] by itself, and an averaged copy is kept of its .module."""

# answer: output True [[3.0], [3.0]]
# answer: prefix True
# answer: stripped True
# answer: ema True 0.95
# answer: host module moved True
import copy

import torch
import torch.nn as nn


class EMA:
    def __init__(self, model, decay=0.9):
        self.module = copy.deepcopy(model.module if hasattr(model, "module") else model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        source = model.module.state_dict()
        for key, value in self.module.state_dict().items():
            value.mul_(self.decay).add_(source[key].to(value.device), alpha=1 - self.decay)


net = nn.Linear(3, 1, bias=False)
nn.init.ones_(net.weight)
model = nn.DataParallel(net, device_ids=[0]).cuda()
ema = EMA(model)

out = model(torch.ones(2, 3))  # a host batch: scattered to the device
print("output", out.is_cuda, out.tolist())
state = model.state_dict()
print("prefix", all(k.startswith("module.") for k in state))
net.load_state_dict({k.removeprefix("module."): v.cpu() for k, v in state.items()})
print("stripped", net.weight.is_cuda)

with torch.no_grad():
    model.module.weight.fill_(0.5)
ema.update(model)
print("ema", ema.module.weight.is_cuda, round(ema.module.weight[0, 0].item(), 4))
wrapped = nn.DataParallel(copy.deepcopy(net).cpu(), device_ids=[0])  # a single device: moves the module
print("host module moved", next(wrapped.parameters()).is_cuda)
