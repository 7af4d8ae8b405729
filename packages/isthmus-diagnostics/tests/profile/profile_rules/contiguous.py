import torch
from record import STEPS, main

batch = torch.randn(8, 128, 256, device="chip")
weight = torch.randn(128, 64, device="chip")


def layer(x, copied):
    turned = x.transpose(1, 2)
    if copied:
        turned = turned.contiguous()  # slow
    return turned @ weight


def before(done):
    for _ in range(STEPS):
        layer(batch, copied=True)
        done()


def after(done):
    for _ in range(STEPS):
        layer(batch, copied=False)
        done()


main(before, after)
