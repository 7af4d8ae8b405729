"""A device is picked in a chain with xpu and mps branches, and a model built on meta is then filled there."""

# answer: picked 0
# answer: on meta True False
# answer: filled True False
# answer: host model True
# answer: output 6.0
import torch
import torch.nn as nn


def pick_device():
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device()), 0
    elif hasattr(torch, "xpu") and torch.xpu.is_available():
        return torch.device("xpu"), 1
    elif torch.backends.mps.is_available():
        return torch.device("mps"), 2
    return torch.device("cpu"), 3


def fill(model, device):
    if any(p.device.type == "meta" for p in model.parameters()):
        model.to_empty(device=device)
    for p in model.parameters():
        if p.device.type in ("cuda", "xpu"):
            nn.init.constant_(p, 2.0)
        elif p.device.type != "meta":
            nn.init.constant_(p, 1.0)
    return model


device, choice = pick_device()
print("picked", choice)
with torch.device("meta"):
    model = nn.Linear(2, 1)
print("on meta", model.weight.is_meta, model.weight.is_cuda)
model = fill(model, device)
print("filled", model.weight.is_cuda, model.weight.is_meta)
print("host model", fill(nn.Linear(2, 1), "cpu").weight.eq(1.0).all().item())
print("output", model(torch.ones(2, device=device)).item())
