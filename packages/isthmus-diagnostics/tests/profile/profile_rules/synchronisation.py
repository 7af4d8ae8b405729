import torch
from record import STEPS, main

weight = torch.randn(256, 256, device="chip", requires_grad=True)


def before(done):
    total = 0.0
    for _ in range(STEPS):
        loss = (weight @ weight).square().mean()
        loss.backward()
        total += loss.item()  # slow
        done()


def after(done):
    total = torch.zeros((), device="chip")
    for _ in range(STEPS):
        loss = (weight @ weight).square().mean()
        loss.backward()
        total += loss.detach()
        done()
    total.item()


main(before, after)
