"""Activation checkpointing must restore the device's random state or dropout draws another mask in backward."""

# answer: on gpu True
# answer: mask restored True
# answer: mask restored True
# answer: without restoring False
# answer: recomputed 6
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
calls = 0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        global calls
        calls += 1
        return self.drop(x * 1.0)


def same_mask(block, **kwargs):
    x = torch.ones(256, device=device, requires_grad=True)
    out = checkpoint(block, x, **kwargs)
    torch.rand(10, device=device)  # moves the generator on before backward
    out.sum().backward()
    return torch.equal(out != 0, x.grad != 0)


torch.manual_seed(0)
if device.type == "cuda":
    torch.cuda.manual_seed_all(0)
block = Block().to(device).train()
print("on gpu", torch.ones(1, device=device).is_cuda)
print("mask restored", same_mask(block, use_reentrant=False))
print("mask restored", same_mask(block, use_reentrant=True))
print("without restoring", same_mask(block, use_reentrant=True, preserve_rng_state=False))
print("recomputed", calls)
