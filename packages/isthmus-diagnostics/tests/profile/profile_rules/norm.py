import torch
import torch.nn.functional as F
from record import STEPS, main

weight = torch.ones(256, device="chip", requires_grad=True)
rows = torch.randn(512, 256, device="chip")


def rms_norm(x):
    variance = x.pow(2).mean(-1, keepdim=True)  # slow
    return weight * (x * torch.rsqrt(variance + 1e-6))


def before(done):
    for _ in range(STEPS):
        x = rows
        for _ in range(4):
            x = rms_norm(x)
        x.sum().backward()
        done()


def after(done):
    for _ in range(STEPS):
        x = rows
        for _ in range(4):
            x = F.rms_norm(x, (256,), weight)
        x.sum().backward()
        done()


main(before, after)
