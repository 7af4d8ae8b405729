import time

import torch
from record import STEPS, main
from torch.utils.data import DataLoader

weight = torch.randn(512, 512, device="chip")


class Samples:
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.randn(512)


def before(done):
    for batch in DataLoader(Samples(0.01)):  # slow
        (batch.to("chip") @ weight).add(weight @ weight @ weight)
        done()


def after(done):
    batches = list(DataLoader(Samples(0)))
    for batch in batches:
        (batch.to("chip") @ weight).add(weight @ weight @ weight)
        done()


main(before, after)
