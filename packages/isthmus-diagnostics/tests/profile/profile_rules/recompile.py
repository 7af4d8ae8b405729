import torch
from record import STEPS, main


@torch.compile(backend="aot_eager", dynamic=False)
def compiled(x):
    return x.sin() + x.cos()


def before(done):
    for step in range(STEPS):
        compiled(torch.ones((1 << 20) + step, device="chip"))  # slow
        done()


def after(done):
    for _ in range(STEPS):
        compiled(torch.ones(1 << 20, device="chip"))
        done()


main(before, after)
