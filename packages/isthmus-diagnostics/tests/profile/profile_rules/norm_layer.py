import torch
import torch.nn.functional as F
from record import STEPS, main

weight = torch.ones(512, device="chip", requires_grad=True)
bias = torch.zeros(512, device="chip", requires_grad=True)
rows = torch.randn(2048, 512, device="chip")


def layer_norm(x):
    deviation = x - x.mean(-1, keepdim=True)  # slow
    variance = deviation.pow(2).mean(-1, keepdim=True)
    return weight * (deviation / torch.sqrt(variance + 1e-6)) + bias


def run(done, norm):
    for _ in range(STEPS):
        x = rows
        for _ in range(4):
            x = norm(x)
        x.sum().backward()
        done()


def before(done):
    run(done, layer_norm)


def after(done):
    run(done, lambda x: F.layer_norm(x, (512,), weight, bias))


main(before, after)
