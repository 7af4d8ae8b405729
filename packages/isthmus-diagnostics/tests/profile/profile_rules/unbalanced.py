import os

import torch
import torch.distributed as dist
from record import STEPS, main


def train(done, layers):
    total = torch.ones(1024, device="chip")
    weight = torch.randn(512, 512, device="chip")
    for _ in range(STEPS):
        for _ in range(layers):
            weight @ weight
        dist.all_reduce(total)  # slow
        done()


def before(done):
    train(done, layers=2 if os.environ["RANK"] == "0" else 12)


def after(done):
    train(done, layers=8)


main(before, after, ranks=2)
