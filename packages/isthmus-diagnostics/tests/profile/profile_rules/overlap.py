import torch
import torch.distributed as dist
from record import STEPS, main


def train(done, overlapped):
    gradient = torch.ones(1 << 22, device="chip")
    weight = torch.randn(512, 512, device="chip")
    for _ in range(STEPS):
        work = dist.all_reduce(gradient, async_op=overlapped)  # slow
        for _ in range(4):
            weight @ weight
        if overlapped:
            work.wait()
        done()


def before(done):
    train(done, overlapped=False)


def after(done):
    train(done, overlapped=True)


main(before, after, ranks=2)
