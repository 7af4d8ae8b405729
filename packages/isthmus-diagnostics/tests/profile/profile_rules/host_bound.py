import torch
from record import STEPS, main

small = torch.randn(8, 8, device="chip")
large = torch.randn(1024, 1024, device="chip")


def grow(x):
    return x + 1


def before(done):
    for _ in range(STEPS):
        x = small
        for _ in range(100):
            x = grow(x)  # slow
        done()


def after(done):
    for _ in range(STEPS):
        large @ large
        done()


main(before, after)
