import torch
from record import STEPS, main

parameters = [torch.randn(512, 512, device="chip", requires_grad=True) for _ in range(12)]


def train(done, fused):
    optimizer = torch.optim.AdamW(parameters, fused=fused, foreach=not fused)
    for _ in range(STEPS):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()  # slow
        done()


def before(done):
    train(done, fused=False)


def after(done):
    train(done, fused=True)


main(before, after)
