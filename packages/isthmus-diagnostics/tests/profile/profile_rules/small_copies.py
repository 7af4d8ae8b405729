import torch
from record import STEPS, main

weight = torch.randn(1024, 1024, device="chip")
scales = [torch.tensor(float(index)) for index in range(16)]


def before(done):
    for _ in range(STEPS):
        x = weight
        for scale in scales:
            x = x * scale.to("chip")  # slow
        done()


def after(done):
    for _ in range(STEPS):
        x = weight
        for scale in torch.stack(scales).pin_memory().to("chip", non_blocking=True):
            x = x * scale
        done()


main(before, after)
