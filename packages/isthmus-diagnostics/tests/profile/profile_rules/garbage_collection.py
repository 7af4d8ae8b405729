import gc

import torch
from record import STEPS, main

weight = torch.randn(512, 512, device="chip")


def before(done):
    for _ in range(STEPS):
        weight @ weight
        gc.collect()  # slow
        done()


def after(done):
    gc.collect()
    for _ in range(STEPS):
        weight @ weight
        done()


main(before, after)
