import os

os.environ["ISTHMUS_ROUTE"] = "aten::erfinv=fallback"  # stands for an operator that a chip lacks

import torch
from record import STEPS, main

values = torch.rand(256, 256, device="chip")


def before(done):
    for _ in range(STEPS):
        values.erfinv() @ values  # slow
        done()


def after(done):
    for _ in range(STEPS):
        values.erf() @ values
        done()


main(before, after)
